"""`sync`: brings a tracker up to date with the storage of a study, once."""

import threading
import time
from dataclasses import dataclass
from functools import partial

from contrasweep.errors import SpecError, StorageError
from contrasweep.imports import import_from_here, import_path
from contrasweep.live.live_file import is_living, read_live
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.follower import Follower, Target, alone, follow_all
from contrasweep.tracking.kinds import FOLDERS, ToldTracker, Trackers
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.tracker import Outcome, TrackedStudy, Tracker, TrackingError

LOCK_S = 10.0
"""How long another process is waited for that shows the same study in the same place."""

INTERRUPT_S = 5.0


@dataclass(frozen=True)
class SyncSummary:
    """The result of a sync: trials that were new to the tracker, completed or replaced, and already right.

    `values` is how many values the completed trials lacked that the tracker had shown whole before.
    """

    study: str
    uri: str
    added: int
    mended: int
    values: int
    unchanged: int
    seconds: float
    url: str | None

    def __str__(self) -> str:
        page = f"; {self.url}" if self.url else ""
        values = f" ({self.values} values were missing)" if self.values else ""
        return (
            f"{self.study}: {self.added} trials added to {self.uri}, {self.mended} completed{values}, "
            f"{self.unchanged} were there, in {self.seconds:.1f} s{page}"
        )


def targets(trackers: Trackers, study: TrackedStudy, records: StudyRecords) -> list[Target]:
    """Return the targets that show the study, each for a follower of its own."""
    stores = [] if trackers.store.is_none else [Server(trackers.store, study, records)]
    return [*stores, *(ToldTracker(uri, records, partial(_tracker, uri, study)) for uri in trackers.others)]


def _tracker(uri: str, study: TrackedStudy) -> Tracker:
    kind, _, place = uri.partition(":")
    if kind in FOLDERS:
        return FOLDERS[kind](place, study)
    import_from_here()
    tracker: Tracker = import_path(uri, "tracking", "tracker")(study)
    return tracker


def sync(
    records: StudyRecords,
    trackers: Trackers,
    study: TrackedStudy | None = None,
    *,
    complete: bool | None = None,
    compare: bool = True,
) -> list[SyncSummary]:
    """Bring `trackers` up to the storage; `StorageError` if one does not take it.

    A trial that a tracker refuses, or whose files cannot be read, stops none of the others.

    Args:
        records: The study's records.
        trackers: Their checked addresses.
        study: How the study is shown; left out, as study.json tells.
        complete: Whether all that the study needs is done; left out, whether each planned trial has a record.
        compare: Whether trials that MLflow shows already are compared value by value, so that gaps are mended.
    """
    study = study or TrackedStudy.stored(records)
    shown = targets(trackers, study, records)
    if not shown:
        raise SpecError("there is nothing to bring up to date without tracking", place="tracking", value="none")
    return [_sync(records, target, study.trials, complete, compare) for target in shown]


def follow(records: StudyRecords, trackers: Trackers) -> list[str]:
    """Show a study while it runs, until its driver has ended or KeyboardInterrupt.

    Returns:
        A line for each tracker that lacks something.
    """
    shown = targets(trackers, TrackedStudy.stored(records), records)
    followers, stopped = [Follower(records, target) for target in shown], threading.Event()

    def outcome(seconds: float) -> Outcome | None:
        if stopped.wait(min(seconds, threading.TIMEOUT_MAX)):
            return "running"
        state = read_live(records)
        if state is None or is_living(state):
            return None
        planned = TrackedStudy.stored(records).trials
        whole = state.ended == "complete" or (planned is not None and len(records.finished()) >= planned)
        return "complete" if whole else "interrupted"

    threads = follow_all(followers, outcome)
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        stopped.set()
        for thread in threads:
            thread.join(INTERRUPT_S)
    return [gap for follower in followers if (gap := follower.gap())]


def _sync(
    records: StudyRecords, target: Target, planned: int | None, complete: bool | None, compare: bool
) -> SyncSummary:
    began, follower, mended = time.time(), Follower(records, target, whole=compare), dict[str, int]()
    try:
        with alone(records, target, LOCK_S):
            follower.look(last=True)
            while follower.waiting:
                time.sleep(1.0)  # a trial that was not taken is sent again
                follower.look(last=True)
            if compare:
                mended = follower.compare()
            whole = complete if complete is not None else planned is None or len(follower.ended) >= planned
            outcome: Outcome = "running" if follower.is_running else "complete" if whole else "interrupted"
            follower.close(outcome)
    except TrackingError as error:
        raise StorageError(f"tracking {target.name}: {error}") from None
    if follower.refused:
        raise StorageError(f"tracking {target.name} lacks {follower.refusals()}; the other trials are there")
    added = min(target.added, follower.shown)
    completed = len(mended) + follower.shown - added
    unchanged, values = len(follower.ended) - added - completed, sum(mended.values())
    seconds = time.time() - began
    return SyncSummary(records.study, target.name, added, completed, values, unchanged, seconds, target.url())
