"""The background thread of a tracker: sends in batches, waits out a store that does not answer, sends again.

When a trial ends, what its run lacks of its record is sent too: what did not fit in memory meanwhile, or was
lost with an earlier driver. The records are the truth, and MLflow a view of them.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from contrasweep.errors import ContrasweepError
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.mlflow import models
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.client import TrackingError
from contrasweep.tracking.mlflow.description import Point, TrialOrRecord, describe_run
from contrasweep.tracking.mlflow.replay import insert_record, write_record
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.mlflow.transaction import in_transactions
from contrasweep.tracking.tracked_study import TrackedStudy

logger = logging.getLogger("contrasweep.tracking")

FLUSH_S = 1.0
MAX_PAUSE_S = 5.0
MAX_BACKLOG_POINTS = 500_000  # points, about 100 MB; later ones come from the records
MAX_ATTEMPTS = 5  # for one trial's data that a store in good health does not take
HTTP_CONNECTIONS = 8

Event = Callable[["Writer"], None]


class Inbox:
    """What the driver has reported and the thread has not taken yet. `backlog` bounds the points held in memory."""

    def __init__(self, backlog: int) -> None:
        self._backlog, self._held = backlog, 0
        self._events: list[Event] = []
        self._dropped: set[str] = set()
        self._changed = threading.Condition()
        self.closing = self.stopped = self._hurried = False

    def put(self, event: Event) -> None:
        """Take an event; the thread handles events in their order."""
        with self._changed:
            self._events.append(event)

    def put_points(self, trial_id: str, points: list[Point]) -> None:
        """Take the points of a report, or note that the trial has lost some."""
        with self._changed:
            if self._held + len(points) > self._backlog:
                self._dropped.add(trial_id)
                return
            self._held += len(points)
            self._events.append(lambda writer: writer.on_points(trial_id, points))

    def sent(self, count: int) -> None:
        """`count` points are out of memory."""
        with self._changed:
            self._held -= count

    def hurry(self) -> None:
        """Somebody waits for what was put: the thread takes it at once."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def take(self, wait_s: float) -> tuple[list[Event], set[str], bool]:
        """All events, the trials that lost points, and whether these are the last; waits unless closing or hurried."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self.closing or self._hurried, wait_s)
            events, dropped = self._events, self._dropped
            self._events, self._dropped, self._hurried = [], set(), False
            return events, dropped, self.closing

    def pause(self, seconds: float) -> None:
        """Wait, closing or not, until stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped, seconds)

    def close(self) -> None:
        """No more events will come: the thread sends the rest and ends."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()

    def stop(self) -> None:
        """The thread ends as soon as it can, whatever is still unsent."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()


@dataclass
class PendingTrial:
    """A trial with something to send. `has_missing_steps`: the store may lack reports that only the records have."""

    trial: TrialOrRecord
    started: float
    new: bool = True
    points: list[Point] = field(default_factory=list)
    record: Record | None = None
    has_missing_steps: bool = False
    attempts: int = 0
    rejected: str = ""  # why the store will not take the rest
    done: bool = False
    created: bool = False  # these three: what is written and counts once its transaction is committed
    sent: int = 0
    written: bool = False

    @property
    def has_data(self) -> bool:
        """Whether something of it is unsent that the store may still take."""
        return not self.rejected and not self.done and bool(self.new or self.points or self.record)


class Writer:
    """The thread's side of a tracker. Only `unsynced` and `error` are for others."""

    def __init__(
        self, uri: TrackingAddress, study: TrackedStudy, records: StudyRecords | None, inbox: Inbox, flush_s: float
    ) -> None:
        self.study, self.records, self.server = study, records, Server(uri, study)
        self.error = ""
        self._uri, self._inbox, self._flush_s = uri, inbox, flush_s
        self._open: dict[str, PendingTrial] = {}
        self._complete: set[str] = set()  # trials whose runs show their records
        self._jobs: list[Callable[[], None]] = []
        self._rejected_job = ""
        self._connected = False
        self._pool = ThreadPoolExecutor(HTTP_CONNECTIONS if uri.is_server else 1, "tracking")

    def on_start(self, trial: Any, now: float) -> None:
        """A trial begins, at `now` in unix seconds; nothing changes for one that is already open."""
        self._open.setdefault(trial.id, PendingTrial(trial, now))

    def on_points(self, trial_id: str, points: list[Point]) -> None:
        """Add points to a trial's unsent ones; those of a trial that is not open are dropped."""
        if trial_id in self._open:
            self._open[trial_id].points += points
        else:
            self._inbox.sent(len(points))

    def on_finish(self, record: Record) -> None:
        """A trial has its record; of one that was never started, its reports are sent from the records."""
        entry = self._open.setdefault(record.trial_id, PendingTrial(record, record.started, has_missing_steps=True))
        entry.record = record

    def on_study(self, files: Mapping[str, Path], note: str | None, metrics: Mapping[str, float]) -> None:
        """Queue the files, note and metrics of the study's page."""
        self._jobs.append(lambda: self.server.describe_study(files, note, metrics))

    def on_model(self, trial_id: str, module: Any, step: int) -> None:
        """Queue a trained module for a trial's run."""
        self._jobs.append(lambda: models.log_model(self.server, trial_id, module, step))

    def on_flushed(self, notify: Callable[[], None]) -> None:
        """Call `notify` when all that came before it is sent."""
        self._jobs.append(notify)  # jobs come after the trials

    def unsynced(self, finished: Collection[str]) -> tuple[tuple[str, ...], str]:
        """Trials whose runs lack something, and why: "" while there is no reason but time. `finished` are all that have
        a record: what the thread has not come to yet lies in its inbox."""
        entries = self._open.copy().items()  # the thread goes on
        reasons = [self.error, *(entry.rejected for _, entry in entries), self._rejected_job]
        waiting = (i for i, entry in entries if entry.rejected or entry.has_data)
        complete = self._complete | {i for i, entry in entries if entry.done}
        unseen = (i for i in finished if i not in complete)
        return tuple(dict.fromkeys([*waiting, *unseen])), next(filter(None, reasons), "")

    def work(self) -> None:
        """The thread: until closed and all is sent, or stopped. Whatever breaks here, training goes on."""
        try:
            self._work()
        except Exception as error:
            logger.exception("tracking stopped; the records are complete, `contrasweep sync` shows them later")
            self.error = f"{type(error).__name__}: {error}"
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        failures = 0
        while not self._inbox.stopped:
            events, dropped, last = self._inbox.take(self._flush_s)
            for event in events:
                event(self)
            for trial_id in dropped & self._open.keys():
                self._open[trial_id].has_missing_steps = True
            try:
                self._send()
                if last:
                    self._end()
                    break
                failures = 0
                self._set_error("")
            except TrackingError as error:
                failures += 1
                self._connected = False
                self._set_error(str(error))
                self._inbox.pause(min(self._flush_s * 2 ** min(failures, 8), MAX_PAUSE_S))

    def _send(self) -> None:
        """Everything unsent, trials first; raises `TrackingError` when the store is away."""
        while True:
            if not self._connected:
                self.server.connect()
                self.server.begin_study()
                self._connected = True
            unreachable: list[TrackingError] = []
            waiting = [entry for entry in self._open.values() if entry.has_data]
            self._send_trials(waiting, unreachable)
            self._complete |= {i for i, entry in self._open.items() if entry.done}
            self._open = {i: entry for i, entry in self._open.items() if not entry.done}
            if unreachable:
                raise unreachable[0]
            if self._connected:
                break
            self._inbox.pause(self._flush_s)
        while self._jobs:
            self._send_job(self._jobs[0])
            self._jobs.pop(0)

    def _send_trials(self, waiting: list[PendingTrial], unreachable: list[TrackingError]) -> None:
        """The news of `waiting`: to a server several at once, to a local file many in one transaction."""
        if not self._uri.is_sqlite:
            list(self._pool.map(self._send_trial, waiting, repeat(unreachable)))
            for entry in waiting:
                self._settle(entry)
            return
        try:
            for committed in in_transactions(
                self.server.client, waiting, lambda entry: self._send_trial(entry, unreachable)
            ):
                for entry in committed:
                    self._settle(entry)
                if self._inbox.stopped:
                    return
        except TrackingError:
            for entry in waiting:  # undone with the transaction: to be sent again
                entry.created, entry.sent, entry.written = False, 0, False
            raise

    def _settle(self, entry: PendingTrial) -> None:
        """Forget what the store has of a trial now."""
        entry.new &= not entry.created
        self._sent(entry, entry.sent)
        entry.done |= entry.written
        entry.created, entry.sent, entry.written = False, 0, False

    def _send_trial(self, entry: PendingTrial, unreachable: list[TrackingError]) -> None:
        """One trial's news. An error of its own is counted against it; the store's ends the round."""
        if unreachable:
            return
        try:
            self._write(entry)
        except TrackingError as error:
            self._connected = False  # look again which runs there are: a call may have worked without an answer
            if error.retryable and not self.server.is_reachable():
                unreachable.append(error)
                return
            entry.attempts += 1
            if entry.attempts >= MAX_ATTEMPTS or not (error.retryable or error.not_found):
                entry.rejected = str(error)
        except (ContrasweepError, OSError) as error:  # the records cannot be read
            entry.rejected = str(error)

    def _write(self, entry: PendingTrial) -> None:
        server, description = self.server, describe_run(self.study, entry.trial)
        if entry.record is not None and server.is_current(entry.record):
            entry.sent, entry.written = len(entry.points), True
            return
        if entry.new:
            server.drop_finished(description.trial_id)
        known = description.trial_id in server.runs
        if server.inserter is not None and entry.record is not None and self.records is not None and not known:
            count = len(entry.points)
            insert_record(server, description, entry.started, entry.points, entry.record, self.records)
            entry.created, entry.sent, entry.written = True, count, True
            return
        entry.has_missing_steps |= known if entry.new else not known
        run = server.ensure(description, entry.started)
        server.resume(run)
        entry.created = True
        count = len(entry.points)
        server.append(run, entry.points[:count])
        entry.sent = count
        if entry.record is not None:
            self._write_record(entry, entry.record)

    def _write_record(self, entry: PendingTrial, record: Record) -> None:
        run = self.server.runs[record.trial_id]
        if self.records is not None:
            write_record(self.server, run, record, self.records)
        else:
            self.server.finish(run, record, {}, complete=not entry.has_missing_steps)
            entry.rejected = "reports were dropped while the store was away" if entry.has_missing_steps else ""
        entry.written = not entry.rejected

    def _send_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except TrackingError as error:
            if error.retryable and not self.server.is_reachable():
                raise
            self._rejected_job = str(error)

    def _sent(self, entry: PendingTrial, count: int) -> None:
        del entry.points[:count]
        self._inbox.sent(count)

    def _end(self) -> None:
        """Leave the study as it stands: unfinished trials wait, the parent says whether any does."""
        for trial_id in self._open:
            self.server.park(trial_id)
        self.server.end_study()
        self._set_error("")

    def _set_error(self, error: str) -> None:
        if error and not self.error:
            logger.warning(
                "MLflow does not take data at the moment (%s); training goes on, and the rest is sent later", error
            )
        elif self.error and not error:
            logger.warning("MLflow takes data again")
        self.error = error
