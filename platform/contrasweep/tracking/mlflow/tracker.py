"""`MlflowTracker`: the tracker of an MLflow store. Its methods append to a list; `Writer` sends it on."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.description import points
from contrasweep.tracking.mlflow.writer import FLUSH_S, MAX_BACKLOG_POINTS, Inbox, Writer
from contrasweep.tracking.tracked_study import TrackedStudy
from contrasweep.tracking.tracker import SyncGap
from contrasweep.trial import Trial


class MlflowTracker:
    """Tracks one study on one store; for one process, the driver. Give it the `records` that the driver
    writes: artifacts, and reports that were dropped, are read from there.

    `start`, `report` and `finish` cost microseconds whatever the server does.
    """

    def __init__(
        self,
        uri: str | TrackingAddress,
        study: TrackedStudy,
        records: StudyRecords | None = None,
        *,
        flush_s: float = FLUSH_S,
        backlog: int = MAX_BACKLOG_POINTS,
    ) -> None:
        self.uri, self.study = uri if isinstance(uri, TrackingAddress) else TrackingAddress(uri), study
        self._finished: set[str] = set()
        self._inbox = Inbox(backlog)
        self._writer = Writer(self.uri, study, records, self._inbox, flush_s)
        self._thread = threading.Thread(target=self._writer.work, name="tracking", daemon=True)
        self._thread.start()

    @property
    def error(self) -> str:
        """Why the store does not take data at the moment; "" when it does."""
        return self._writer.error

    def start(self, trial: Trial) -> None:
        """A trial (or its next attempt) begins."""
        now = time.time()
        self._inbox.put(lambda writer: writer.on_start(trial, now))

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """One report of a trial that was started; `time` in unix seconds, as in its metrics file."""
        self._inbox.put_points(trial_id, points(metrics, step, time))

    def finish(self, record: Record) -> None:
        """A trial has its record in the storage."""
        self._finished.add(record.trial_id)
        self._inbox.put(lambda writer: writer.on_finish(record))

    def log_study_artifacts(
        self, files: Mapping[str, Path], *, note: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Put files (name below the run's artifacts -> path, there until `close`) on the study's run, and
        `note`, the result table in Markdown, at the head of its description."""
        self._inbox.put(lambda writer: writer.on_study(files, note, metrics or {}))

    def log_model(self, trial_id: str, module: Any, *, step: int = 0) -> None:
        """Log a trained torch module with the trial's run, for `mlflow.pytorch.load_model`."""
        self._inbox.put(lambda writer: writer.on_model(trial_id, module, step))

    def flush(self, timeout_s: float) -> None:
        """Wait until what was reported so far is sent, for at most `timeout_s` seconds; not at all while the store is
        away."""
        sent = threading.Event()
        self._inbox.put(lambda writer: writer.on_flushed(sent.set))
        self._inbox.hurry()
        until = time.monotonic() + timeout_s
        while not (sent.wait(0.05) or self.error or time.monotonic() > until or not self._thread.is_alive()):
            pass

    def run_url(self, trial_id: str | None = None) -> str | None:
        """The page of a trial, or of the study; None while it is not known."""
        return self._writer.server.url(trial_id)

    def run_ids(self) -> dict[str, str]:
        """Trial id -> MLflow run id, as far as known."""
        return {trial_id: run.run_id for trial_id, run in self._writer.server.runs.copy().items()}

    def close(self, timeout_s: float = 30.0) -> SyncGap | None:
        """Send the rest, for at most `timeout_s` seconds; what could not be sent, if anything."""
        self._inbox.close()
        self._thread.join(timeout_s)
        self._inbox.stop()
        unsynced, reason = self._writer.unsynced(self._finished)
        if not unsynced and not reason and not self._thread.is_alive():
            return None
        where = f"MLflow at {self.uri}"
        return SyncGap(self.study.name, where, unsynced, reason or f"it took longer than {timeout_s:g} s")
