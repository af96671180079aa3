"""What happens to trials while a study runs, passed on to whom it concerns."""

from contrasweep.live.progress import Progress
from contrasweep.planning.budget import Budget
from contrasweep.rows import Row
from contrasweep.running.engine.compacting import Compactor
from contrasweep.running.engine.placement import Placements
from contrasweep.running.failures import failure_line
from contrasweep.storage.record import Record
from contrasweep.trial import Trial


class RunListener:
    """Progress on the terminal, placements, budgets and what is compacted hear of each event in this order. Nothing
    here may raise or wait."""

    def __init__(self, progress: Progress, placements: Placements, budget: Budget, compactor: Compactor) -> None:
        self.progress, self.placements, self.budget = progress, placements, budget
        self.compactor = compactor

    def on_start(self, trial: Trial) -> None:
        """A worker begins or resumes `trial`."""
        self.budget.started(trial.id, self.placements.rate(trial))
        self.progress.started(trial)

    def on_report(self, trial_id: str, reports: list[Row]) -> None:
        """New reports of a trial, each with `step`, `time` (unix) and its metrics."""
        self.progress.reported(trial_id, reports)

    def on_lost(self, trial_id: str) -> None:
        """A trial's worker is lost; it will be started again."""
        self.progress.lost(trial_id)

    def on_silence(self, trial_id: str, silence: str) -> None:
        """A running trial does not report as it used to."""
        self.progress.hangs(trial_id, silence)

    def on_end(self, record: Record) -> None:
        """A trial has its record."""
        self.budget.ended(record)
        self.placements.ended(record)
        self.progress.ended(record)
        if record.status.failed:
            self.progress.say(failure_line(record, self.progress.state.storage))
        self.compactor.trial_ended()

    def on_message(self, text: str) -> None:
        """A line for whoever watches."""
        self.progress.say(text)
