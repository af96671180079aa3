"""A tracker whose calls may take time or fail, behind a thread: none of its calls waits or raises but `close`."""

import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from contrasweep.storage.record import Record
from contrasweep.tracking.tracker import SyncGap, Tracker
from contrasweep.trial import Trial

MAX_ERROR = 300
"""Characters of an error that are shown."""


class BackgroundTracker:
    """Passes each call on to the tracker that `build` makes, in order, from one thread. The first error is printed, and
    `close` says of which trials not everything arrived: all that were begun, where the tracker could not be built."""

    def __init__(self, name: str, study: str, build: Callable[[], Tracker]) -> None:
        self.name, self.study = name, study
        self._calls: queue.SimpleQueue[tuple[str, Callable[[Tracker], Any]] | None] = queue.SimpleQueue()
        self._failed: dict[str, str] = {}  # trial id ("" for none) -> the first error
        self._thread = threading.Thread(target=self._work, args=(build,), name=f"tracking-{name}", daemon=True)
        self._thread.start()

    def start(self, trial: Trial) -> None:
        """A trial begins."""
        self._calls.put((trial.id, lambda tracker: tracker.start(trial)))

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """One report of a trial."""
        self._calls.put((trial_id, lambda tracker: tracker.report(trial_id, step, metrics, time)))

    def finish(self, record: Record) -> None:
        """A trial has its record."""
        self._calls.put((record.trial_id, lambda tracker: tracker.finish(record)))

    def close(self, timeout_s: float = 30.0) -> SyncGap | None:
        """Wait for the rest, for at most `timeout_s` seconds; what did not arrive, if anything."""
        self._calls.put(("", lambda tracker: tracker.close(timeout_s)))
        self._calls.put(None)
        self._thread.join(timeout_s)
        if not self._failed and not self._thread.is_alive():
            return None
        reason = next(iter(self._failed.values()), f"it took longer than {timeout_s:g} s")
        remedy = "the records have everything"
        return SyncGap(self.study, self.name, tuple(filter(None, self._failed)), reason, remedy)

    def _work(self, build: Callable[[], Tracker]) -> None:
        tracker: Tracker | None = None
        try:
            tracker = build()
        except BaseException as error:  # someone else's code, which may call sys.exit: that would end this thread alone
            self._note("", error)
        while (call := self._calls.get()) is not None:
            if tracker is None:
                self._failed.setdefault(call[0], self._failed[""])
                continue
            try:
                call[1](tracker)
            except BaseException as error:  # as above
                self._note(call[0], error)

    def _note(self, trial_id: str, error: BaseException) -> None:
        text = " ".join(f"{type(error).__name__}: {_text(error)}".split())[:MAX_ERROR]
        if not self._failed:
            print(f"tracking by {self.name} fails: {text}", file=sys.stderr)
        self._failed.setdefault(trial_id, text)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # someone else's too
        return "its text cannot be made"
