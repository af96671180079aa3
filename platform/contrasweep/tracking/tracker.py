"""`MlflowTracker`: what the driver tells of its trials. Its methods append to a list; `Writer` sends it on."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking import address
from contrasweep.tracking.facts import StudyFacts, points
from contrasweep.tracking.writer import FLUSH_S, LARGEST_BACKLOG, Inbox, Writer


@dataclass(frozen=True)
class Gap:
    """What MLflow does not show although the records have it, and the command that mends it."""

    study: str
    uri: str
    trials: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        what = f"{len(self.trials)} trial{'s' * (len(self.trials) != 1)}" if self.trials else "the summary"
        return (
            f"MLflow at {address.without_password(self.uri)} lacks {what} of study {self.study} ({self.reason}); "
            "the records have everything: run `contrasweep sync` for this study"
        )


class Tracker(Protocol):
    """Where a driver tells of its trials. Only `close` waits, and none raises."""

    def start(self, trial: Any) -> None: ...
    def log(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None: ...
    def finish(self, record: Record) -> None: ...
    def log_study_artifacts(
        self, files: Mapping[str, Path], *, note: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> None: ...
    def log_model(self, trial_id: str, module: Any, *, step: int = 0) -> None: ...
    def settle(self, timeout_s: float) -> None: ...
    def run_url(self, trial_id: str | None = None) -> str | None: ...
    def run_ids(self) -> dict[str, str]: ...
    def close(self, timeout_s: float = 30.0) -> Gap | None: ...


class MlflowTracker:
    """Tracks one study on one store; for one process, the driver. Give it the `records` that the driver
    writes: artifacts, and reports that were dropped, are read from there.

    `start`, `log` and `finish` cost microseconds whatever the server does.
    """

    def __init__(
        self,
        uri: str,
        study: StudyFacts,
        records: StudyRecords | None = None,
        *,
        flush_s: float = FLUSH_S,
        backlog: int = LARGEST_BACKLOG,
    ) -> None:
        self.uri, self.study = uri, study
        self._inbox = Inbox(backlog)
        self._writer = Writer(uri, study, records, self._inbox, flush_s)
        self._thread = threading.Thread(target=self._writer.work, name="tracking", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why the store takes nothing at the moment; "" when it does."""
        return self._writer.trouble

    def start(self, trial: Any) -> None:
        """A trial (or its next attempt) begins."""
        now = time.time()
        self._inbox.put(lambda writer: writer.on_start(trial, now))

    def log(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """One report of a trial that was started; `time` in unix seconds, as in its metrics file."""
        self._inbox.put_points(trial_id, points(metrics, step, time))

    def finish(self, record: Record) -> None:
        """A trial has its record in the storage."""
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

    def settle(self, timeout_s: float) -> None:
        """Wait until what was told so far is sent, for at most `timeout_s` seconds; not at all while the store is
        away."""
        sent = threading.Event()
        self._inbox.put(lambda writer: writer.on_settled(sent.set))
        until = time.monotonic() + timeout_s
        while not (sent.wait(0.05) or self.trouble or time.monotonic() > until or not self._thread.is_alive()):
            pass

    def run_url(self, trial_id: str | None = None) -> str | None:
        """The page of a trial, or of the study; None while the store has not told."""
        return self._writer.server.url(trial_id)

    def run_ids(self) -> dict[str, str]:
        """Trial id -> MLflow run id, as far as known."""
        return {trial_id: run.run_id for trial_id, run in list(self._writer.server.runs.items())}

    def close(self, timeout_s: float = 30.0) -> Gap | None:
        """Send the rest, for at most `timeout_s` seconds; what could not be sent, if anything."""
        self._inbox.close()
        self._thread.join(timeout_s)
        self._inbox.stop()
        behind, reason = self._writer.behind()
        if not behind and not reason and not self._thread.is_alive():
            return None
        return Gap(self.study.name, self.uri, behind, reason or f"it took longer than {timeout_s:g} s")


class NoTracker:
    """Tracks nothing: `--tracking none`."""

    trouble = ""

    def start(self, trial: Any) -> None:
        pass

    def log(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        pass

    def finish(self, record: Record) -> None:
        pass

    def log_study_artifacts(
        self, files: Mapping[str, Path], *, note: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        pass

    def log_model(self, trial_id: str, module: Any, *, step: int = 0) -> None:
        pass

    def settle(self, timeout_s: float) -> None:
        pass

    def run_url(self, trial_id: str | None = None) -> str | None:
        return None

    def run_ids(self) -> dict[str, str]:
        return {}

    def close(self, timeout_s: float = 30.0) -> Gap | None:
        return None
