"""The state of a run in the storage, `<study>/live.json`, from which it is watched on any machine.

Its driver writes it every few seconds and once more when it ends. A driver that was killed leaves one that is not
renewed any more.
"""

import contextlib
import threading
import time
from dataclasses import asdict

import pydantic

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.live.state import RunState
from contrasweep.storage.json_file import JsonFile
from contrasweep.storage.records import StudyRecords

LIVE = "live.json"
EVERY_S = 5.0
CLOSE_S = 10.0  # how long the end of a run waits for a storage that does not answer
SILENT_S = 60.0
"""A run whose state was not renewed for so long has no living driver, as far as can be seen."""
LIVE_FILE: JsonFile[RunState] = JsonFile(pydantic.TypeAdapter(RunState), 1, "it is written anew by the next run")


class LiveFile:
    """Keeps the state of a run in the storage, in a thread of its own: nobody waits for the storage."""

    def __init__(self, records: StudyRecords, every_s: float = EVERY_S) -> None:
        self.records, self.every_s = records, every_s
        self.due = 0.0
        self._thread: threading.Thread | None = None

    def show(self, state: RunState) -> None:
        """Write it, if it is time and the last one is written."""
        if time.monotonic() >= self.due and not (self._thread and self._thread.is_alive()):
            self.due = time.monotonic() + self.every_s
            self._begin(state)

    def say(self, text: str) -> None:
        """What is said is in the state."""

    def close(self, state: RunState) -> None:
        """Write how it ended."""
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        self._begin(state)
        assert self._thread is not None
        self._thread.join(CLOSE_S)

    def _begin(self, state: RunState) -> None:
        self._thread = threading.Thread(target=self._write, args=(state,), name="live-file", daemon=True)
        self._thread.start()

    def _write(self, state: RunState) -> None:
        with contextlib.suppress(StorageError):  # the run itself says so; whoever watches sees no sign of life
            LIVE_FILE.write(self.records.store, f"{self.records.study}/{LIVE}", asdict(state))


def read_live(records: StudyRecords) -> RunState | None:
    """The state that the study's newest run kept; None where there is none that can be read."""
    try:
        return LIVE_FILE.read(records.store, f"{records.study}/{LIVE}")
    except (FileNotFoundError, BrokenFileError):
        return None
