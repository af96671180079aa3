"""The state of a run in the storage, `<study>/live.json`, from which it is watched on any machine.

Its driver writes it every few seconds and once more when it ends. A driver that was killed leaves one that is not
renewed any more.
"""

import contextlib
import threading
import time
from dataclasses import asdict, replace

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.live.state import Display, RunState
from contrasweep.planning.durations import duration
from contrasweep.storage.json_file import JsonFile
from contrasweep.storage.records import StudyRecords

LIVE = "live.json"
EVERY_S = 5.0
POLL_S = 2.0
CLOSE_S = 10.0  # how long the end of a run waits for a storage that does not answer
SILENT_S = 60.0
"""A run whose state was not renewed for so long has no living driver, as far as can be seen."""
LIVE_FILE: JsonFile[RunState] = JsonFile(RunState, 1, "it is written anew by the next run")


class LiveFile:
    """Keeps the state of a run in the storage, from a thread of its own, so that a slow storage delays nothing."""

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
        """Do nothing: the state has the messages already."""

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


def is_living(state: RunState) -> bool:
    """Whether the driver of a run is there, as far as its `live.json` tells."""
    return not state.ended and time.time() - state.updated < SILENT_S


def watch(records: StudyRecords, display: Display, *, once: bool = False, poll_s: float = POLL_S) -> RunState | None:
    """Show the study's newest run until it ends, or `once`; its last state, None where no run has kept one.

    Clocks are compared at the first look only; after it, a driver is alive as long as its state changes.
    """
    watched = Watched()
    while (state := read_live(records)) is not None:
        shown = watched.seen(state, time.time(), time.monotonic())
        for text in watched.news(state):
            display.say(text)
        if state.ended or once:
            display.close(shown)
            return shown
        display.show(shown)
        time.sleep(poll_s)
    return None


class Watched:
    """The last state of a run that was read, and when it was read by the clock of this process."""

    def __init__(self) -> None:
        self.updated, self.at, self.silent_s = 0.0, 0.0, 0.0
        self.told_at = 0.0  # the newest event that was told
        self.silence_told = False

    def seen(self, state: RunState, now: float, clock: float) -> RunState:
        """Return the last written state, with its clocks moved on to now."""
        if state.updated != self.updated:
            # Of the first state its age is not known but by both clocks; an old one is not a second old.
            age = max(0.0, now - state.updated) if not self.updated and not state.ended else 0.0
            self.updated, self.at = state.updated, clock - age
            self.silence_told = False
        self.silent_s = 0.0 if state.ended else clock - self.at
        return state if state.ended else replace(state, updated=state.updated + min(self.silent_s, SILENT_S))

    def news(self, state: RunState) -> list[str]:
        """Return lines for new events, and one where the run has given no sign of life for a while."""
        news = [text for at, text in state.events if at > self.told_at]
        self.told_at = max([self.told_at, *(at for at, _ in state.events)])
        if self.silent_s > SILENT_S and not self.silence_told:
            self.silence_told = True
            news.append(
                f"no sign of life for {duration(self.silent_s)} from process {state.pid} on {state.host}: it has ended "
                f"without a word, or cannot reach the storage; `contrasweep run` goes on from what is recorded"
            )
        return news
