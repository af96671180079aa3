"""`sync`: brings a tracker up to date with the storage of a study, once.

MLflow is a target of its own; any other tracker has four calls and is a target by `ToldTracker`. The storage keeps what
it was told, so that nothing is told twice.

    <study>/told-<tracker>.json    the tracker's address; trial id -> digest of the record that it got at the end
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from contrasweep.errors import BrokenFileError, SpecError, StorageError, plural
from contrasweep.imports import import_from_here, import_path
from contrasweep.live.state import COMPLETE, FAILURES, has_driver, is_living, read_live
from contrasweep.rows import Row, metrics_of, step_of
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.follower import Follower, follow_all, locked
from contrasweep.tracking.kinds import FOLDERS, Trackers
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.tracker import (
    EndedTrial,
    Outcome,
    Target,
    TrackedStudy,
    Tracker,
    TrackingError,
    TrialFiles,
    record_digest,
    system_metrics,
)

LOCK_S = 10.0
"""Seconds for which another process that shows the same study on the same tracker is waited for."""

INTERRUPT_S = 5.0
"""Seconds for which trackers are waited for after Ctrl-C."""
TOLD_PREFIX = "told-"


@stored
class Told:
    """The content of told-<tracker>.json: which trials a tracker has received."""

    tracker: Label  # its address
    # Trial id -> digest of the record that the tracker has received as the trial's end.
    trials: Mapping[Name, Label] = field(default_factory=dict)


TOLD_FILE = JsonFile(Told, 1, "the next run tells the tracker everything again")


class _Sent(NamedTuple):
    """What a tracker was sent of a running trial.

    `first` is the time of the trial's first report. `report` and `use` are the newest rows of its reports and of its
    system use that were sent.
    """

    first: float
    report: Row
    use: Row


class ToldTracker(Target):
    """Shows a study on a tracker of the class `Tracker`, which `build()` makes. Each report is sent once.

    `told` is trial id -> digest of the record, of trials whose end the tracker has received. `added` counts the trials
    that were new to the tracker.
    """

    def __init__(self, name: str, records: StudyRecords, build: Callable[[], Tracker]) -> None:
        """Prepare to report the study of `records`; `name` is the tracker's address."""
        self.name = name
        self.records = records
        self.build = build
        self.tracker: Any = None  # until `connect` has built it
        self.told: dict[str, str] = {}
        self.added = 0
        self._last: dict[str, _Sent] = {}  # by trial id
        self._kept = True  # whether the storage has `told` as it is now

    def connect(self, began: float | None = None) -> None:
        """Make the tracker, and read from the storage which trials it has received before.

        Only the first call does this. Where that file is missing or broken, the tracker counts as having received none.
        """
        if self.tracker is None:
            try:
                self.told = dict(TOLD_FILE.read(self.records.store, self._key).trials)
            except (FileNotFoundError, BrokenFileError):
                self.told = {}
            self.tracker = _tried(self.build)

    def shows(self, record: Record) -> bool:
        """Return whether the tracker was told the end of this trial, with exactly this record."""
        return self.told.get(record.trial_id) == record_digest(record)

    def doubt(self, trial_id: str) -> None:
        """Forget which reports of a trial were sent, so that all are sent again."""
        self._last.pop(trial_id, None)

    def show_running(self, trial: Record, started: float, files: TrialFiles) -> None:
        """Send the tracker the new reports of a trial, and the new rows of its system use.

        A trial has started over if its first report is not the one that was sent before. Then the tracker is told to
        start it again, and is sent all reports.
        """
        first = files.reports[0]["time"] if files.reports else 0.0
        sent = self._last.get(trial.id)
        if sent is None or (sent.first and sent.first != first):
            _tried(self.tracker.start, trial)
            sent = _Sent(first, {"step": -1}, {"step": -1})  # every row comes after step -1
        report = self._send(trial, files.reports, metrics_of, sent.report)
        use = self._send(trial, files.system, system_metrics, sent.use)
        self._last[trial.id] = _Sent(first, report, use)

    def _send(
        self, trial: Record, rows: list[Row], metrics: Callable[[Row], Row], last: Row
    ) -> Row:
        """Send the tracker those of `rows` that are new since the row `last`; return the newest row.

        New is a row of a later step, and a row of the same step with other values. `metrics(row)` returns the metrics
        that are sent for a row.
        """
        for row in rows:
            # As texts, since NaN is not equal to itself.
            revised = step_of(row) == step_of(last) and repr(row) != repr(last)
            if step_of(row) > step_of(last) or revised:
                _tried(self.tracker.report, trial.id, step_of(row), metrics(row), row["time"])
        newest = rows[-1] if rows else last
        return max(newest, last, key=step_of)

    def show_ended(self, record: Record, files: TrialFiles) -> None:
        """Send the tracker the reports of the trial that it lacks, and then the trial's end.

        Note that it has received the end, so that it is not sent again.
        """
        self.show_running(record, record.started, files)
        _tried(self.tracker.finish, record)
        self._last.pop(record.trial_id, None)
        if record.trial_id not in self.told:
            self.added += 1
        self.told[record.trial_id] = record_digest(record)
        self._kept = False

    def end(self, ended: Mapping[str, EndedTrial], outcome: Outcome) -> None:
        """Close the tracker; `keep`, which is called next, writes what it has received."""
        if self.tracker is not None:
            _tried(self.tracker.close, 30.0)

    def keep(self) -> None:
        """Write to the storage what the tracker has received, where that has changed since."""
        if not self._kept:
            TOLD_FILE.write(self.records.store, self._key, Told(self.name, self.told))
            self._kept = True

    @property
    def _key(self) -> str:
        """The key of the file that keeps what the tracker was told."""
        return f"{self.records.study}/{TOLD_PREFIX}{hashlib.sha256(self.name.encode()).hexdigest()[:12]}.json"


def _tried(call: Callable[..., Any], *arguments: object) -> Any:
    """Return what `call(*arguments)` returns; `call` is the user's code.

    Any error of it, also `SystemExit`, becomes a `TrackingError` that is not retryable, because the same code would
    fail again. `KeyboardInterrupt` is raised as it is.
    """
    try:
        return call(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        try:
            text = str(error)
        except Exception:
            text = "its text cannot be made"
        raise TrackingError(f"{type(error).__name__}: {text}", retryable=False) from error


@dataclass(frozen=True)
class SyncSummary:
    """The result of a sync of one tracker.

    `study` is the study's name, `uri` the tracker's name, `url` the study's page there (None: it has none). `added`
    counts trials that were new to the tracker, `mended` those that were completed or replaced, `unchanged` those that
    were right already, `removed` those that it shows no more since their records are gone. `seconds` is how long the
    sync took.
    """

    study: str
    uri: str
    added: int
    mended: int
    unchanged: int
    removed: int
    seconds: float
    url: str | None

    def __str__(self) -> str:
        page = f"; {self.url}" if self.url else ""
        return (
            f"{self.study}: {plural(self.added, 'trial')} added to {self.uri}, {self.mended} completed, "
            f"{self.unchanged} were there, {self.removed} removed, in {self.seconds:.1f} s{page}"
        )


def targets(trackers: Trackers, study: TrackedStudy, records: StudyRecords) -> list[Target]:
    """Return the trackers that show the study, as a `Target` each, MLflow's first; [] without tracking.

    Each is for a follower of its own.
    """
    stores = [] if trackers.store.is_none else [Server(trackers.store, study, records)]
    return [
        *stores,
        *(ToldTracker(uri, records, partial(_tracker, uri, study)) for uri in trackers.others),
    ]


def _tracker(uri: str, study: TrackedStudy) -> Tracker:
    """Return the tracker of an address that `checked_tracking` has checked, built for the study."""
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
) -> list[SyncSummary]:
    """Bring each of `trackers` up to date with the storage, and return what was done for each.

    A trial that a tracker refuses, or whose files cannot be read, does not stop the others; at last it raises
    `StorageError`. So does a tracker that cannot be reached.

    Args:
        records: The study's records.
        trackers: Their checked addresses.
        study: How the study is shown; None: as study.json says.
        complete: Whether all that the study needs is done; None: it is if each planned trial has a record.
    """
    study = study or TrackedStudy.stored(records)
    targets_shown = targets(trackers, study, records)
    if not targets_shown:
        raise SpecError(
            "there is nothing to bring up to date without tracking", place="tracking", value="none"
        )
    return [_sync(records, target, study.trials, complete) for target in targets_shown]


def follow(records: StudyRecords, trackers: Trackers) -> list[str]:
    """Show a study while it runs, until its driver has ended and all is shown, or Ctrl-C.

    Returns:
        A line for each tracker that lacks something, as `Follower.gap` gives it; [] where none does.
    """
    targets_shown = targets(trackers, TrackedStudy.stored(records), records)
    followers = [Follower(records, target) for target in targets_shown]
    stopped = threading.Event()

    def outcome(seconds: float) -> Outcome | None:
        """Wait for the end of the study, `seconds` at most; return its outcome, or None if it has not ended.

        Where the user has stopped this command, the outcome is "running": the study goes on without it.
        """
        if stopped.wait(min(seconds, threading.TIMEOUT_MAX)):
            return "running"
        state = read_live(records)
        if state is not None and is_living(state):
            return None
        planned = TrackedStudy.stored(records).trials
        has_all = planned is not None and len(records.finished()) >= planned
        if has_all or (state is not None and state.ended in (COMPLETE, FAILURES)):
            return "complete"
        # Without a state no driver has begun yet, or an array of Slurm trains: it is waited for.
        return None if state is None else "interrupted"

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
    records: StudyRecords, target: Target, planned: int | None, complete: bool | None
) -> SyncSummary:
    """Bring one tracker up to date with the storage, and return what was added, mended and removed there.

    `planned` is the number of trials that the study has; None: it is not known, and the study counts as complete. The
    other arguments and the errors are those of `sync`.
    """
    began = time.time()
    follower = Follower(records, target)
    try:
        with locked(records, target, LOCK_S):
            follower.look(last=True)
            while follower.waiting:
                time.sleep(1.0)  # a trial that was not taken is sent again
                follower.look(last=True)
            if complete is None:
                complete = planned is None or len(follower.ended) >= planned
            if has_driver(records):
                outcome: Outcome = "running"
            elif complete:
                outcome = "complete"
            else:
                outcome = "interrupted"
            follower.close(outcome)
    except TrackingError as error:
        raise StorageError(f"tracking {target.name}: {error}") from None
    if follower.refused:
        raise StorageError(
            f"tracking {target.name} lacks {follower.refusals()}; the other trials are there"
        )
    # A trial that this follower has shown was new, or shown before in part; any other one was right already.
    # `target.added` counts running trials too, whose end this follower need not have shown.
    added = min(target.added, follower.shown)
    return SyncSummary(
        study=records.study,
        uri=target.name,
        added=added,
        mended=follower.shown - added,
        unchanged=len(follower.ended) - follower.shown,
        removed=target.removed,
        seconds=time.time() - began,
        url=target.url(),
    )
