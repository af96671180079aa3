"""Several trackers at once, as one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasweep.storage.record import Record
from contrasweep.tracking.tracker import StudyPages, SyncGap, Tracker
from contrasweep.trial import Trial


class Several:
    """Tells each of `trackers`, in their order."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = tuple(trackers)

    def start(self, trial: Trial) -> None:
        """A trial begins."""
        for tracker in self.trackers:
            tracker.start(trial)

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """One report of a trial."""
        for tracker in self.trackers:
            tracker.report(trial_id, step, metrics, time)

    def finish(self, record: Record) -> None:
        """A trial has its record."""
        for tracker in self.trackers:
            tracker.finish(record)

    def close(self, timeout_s: float = 30.0) -> SyncGap | None:
        """Close all; the first of what they lack."""
        gaps = [tracker.close(timeout_s) for tracker in self.trackers]
        return next((gap for gap in gaps if gap is not None), None)


class SeveralWithPages(Several):
    """Several trackers, the first of which keeps pages of the study and its trials."""

    def __init__(self, pages: StudyPages, trackers: Sequence[Tracker]) -> None:
        super().__init__(trackers)
        self.pages = pages

    def flush(self, timeout_s: float) -> None:
        """Wait until what was reported so far is on the pages."""
        self.pages.flush(timeout_s)

    def run_url(self, trial_id: str | None = None) -> str | None:
        """The page of a trial, or of the study."""
        return self.pages.run_url(trial_id)

    def run_ids(self) -> dict[str, str]:
        """Trial id -> the first tracker's own id of it."""
        return self.pages.run_ids()

    def log_study_artifacts(
        self, files: Mapping[str, Path], *, note: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Put files, the result table and summary metrics on the study's page."""
        self.pages.log_study_artifacts(files, note=note, metrics=metrics)

    def log_model(self, trial_id: str, module: Any, *, step: int = 0) -> None:
        """Put a trained module on the trial's page."""
        self.pages.log_model(trial_id, module, step=step)
