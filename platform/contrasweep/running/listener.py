"""What happens to trials while a study runs, passed on to whom it concerns."""

from typing import Any

from contrasweep.planning.budget import Budget
from contrasweep.running.placement import Placements
from contrasweep.running.progress import Progress
from contrasweep.storage.record import Record, Status
from contrasweep.tracking import Tracker
from contrasweep.trial import Trial


class RunListener:
    """Progress on the terminal, tracking, placements and budgets hear of each event in this order. Nothing here may
    raise or wait."""

    def __init__(self, progress: Progress, tracker: Tracker, placements: Placements, budget: Budget) -> None:
        self.progress, self.tracker, self.placements, self.budget = progress, tracker, placements, budget

    def on_start(self, trial: Trial) -> None:
        """A worker begins or resumes `trial`."""
        self.budget.started(trial.id, self.placements.rate(trial))
        self.tracker.start(trial)
        self.progress.started(trial)

    def on_report(self, trial_id: str, reports: list[dict[str, Any]]) -> None:
        """New reports of a trial, each with `step`, `time` (unix) and its metrics."""
        for row in reports:
            metrics = {name: value for name, value in row.items() if name not in ("step", "time")}
            self.tracker.report(trial_id, row["step"], metrics, row["time"])
        self.progress.reported(trial_id, reports)

    def on_end(self, record: Record) -> None:
        """A trial has its record."""
        self.budget.ended(record)
        self.placements.ended(record)
        self.tracker.finish(record)
        self.progress.ended(record)
        if record.status == Status.FAILED:
            last = (record.error or "").strip().splitlines()[-1:] or ["unknown error"]
            self.progress.say(f"failed: {record.arm} fold={record.fold} seed={record.seed}: {last[0]}")

    def on_message(self, text: str) -> None:
        """A line for whoever watches."""
        self.progress.say(text)
