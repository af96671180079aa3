"""`Tracker`: where a driver reports its trials, besides the storage."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from contrasweep.rows import metrics_of
from contrasweep.storage.record import Record
from contrasweep.trial import Trial


def system_metrics(row: Mapping[str, float]) -> dict[str, float]:
    """A row of what a trial used as metrics; MLflow shows those below `system/` in a tab of their own."""
    return {f"system/{name}": value for name, value in metrics_of(row).items()}


@dataclass(frozen=True)
class SyncGap:
    """What a tracker does not show although the records have it, and the command that completes it."""

    study: str
    tracker: str
    trials: tuple[str, ...]
    reason: str
    remedy: str = "the records have everything: run `contrasweep sync` for this study"

    def __str__(self) -> str:
        missing = f"{len(self.trials)} trial{'s' * (len(self.trials) != 1)}" if self.trials else "the summary"
        return f"{self.tracker} lacks {missing} of study {self.study} ({self.reason}); {self.remedy}"


class Tracker(Protocol):
    """Where a driver reports its trials. Only `close` waits, and none of the four raises."""

    def start(self, trial: Trial) -> None:
        """A trial (or its next attempt) begins."""

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """One report of a trial that was started; `time` in unix seconds."""

    def finish(self, record: Record) -> None:
        """A trial has its record in the storage."""

    def close(self, timeout_s: float = 30.0) -> SyncGap | None:
        """Send the rest, for at most `timeout_s` seconds; what could not be sent, if anything."""


@runtime_checkable
class StudyPages(Protocol):
    """What a tracker has besides if it keeps a page of the study and of each trial, on which a finished study is
    published."""

    def flush(self, timeout_s: float) -> None:
        """Wait until what was reported so far is sent, for at most `timeout_s` seconds."""

    def run_url(self, trial_id: str | None = None) -> str | None:
        """The page of a trial, or of the study; None while it is not known."""

    def run_ids(self) -> dict[str, str]:
        """Trial id -> the tracker's own id of it, as far as known."""

    def log_study_artifacts(
        self, files: Mapping[str, Path], *, note: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Put files (name -> path, there until `close`), the result table in Markdown and summary metrics on the
        study's page."""

    def log_model(self, trial_id: str, module: Any, *, step: int = 0) -> None:
        """Put a trained torch module on the trial's page."""


class NoTracker:
    """Tracks nothing: `--tracking none`."""

    def start(self, trial: Trial) -> None:
        """Ignored."""

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """Ignored."""

    def finish(self, record: Record) -> None:
        """Ignored."""

    def close(self, timeout_s: float = 30.0) -> SyncGap | None:
        """None: nothing was to be sent."""
