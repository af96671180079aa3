"""The accounts of a run: which trials run, what each has used, and whether anything more may start."""

import time
from dataclasses import dataclass

from contrasweep.planning.budget import Budget, Rate
from contrasweep.rows import Row, step_of
from contrasweep.running.engine.overdue import Overdue
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.trial import Trial

MAX_HOSTS_LOST = 20


@dataclass
class ActiveTrial:
    """A trial that was handed out and has no record yet, with the notes of its source.

    `seconds` of training and `step` are those that its worker reported last. `hosts_lost` counts the hosts that it lost
    since it last got further. `stopped`: its source stopped it early. `lost_waiting`: the loss of its worker was
    reported again while the trial waited to go on. `record`: its record, as its worker sent it.
    """

    trial: Trial
    notes: TrialNotes
    seconds: float | None = None
    step: int = 0
    hosts_lost: int = 0
    stopped: bool = False
    lost_waiting: bool = False
    record: Record | None = None


class Accounts:
    """The running trials and their use: training time, lost hosts, the study's budget and time limits."""

    def __init__(self, budget: Budget, overdue: Overdue, lease: Lease) -> None:
        self.budget, self.overdue, self.lease = budget, overdue, lease
        self.active: dict[str, ActiveTrial] = {}  # by trial id
        self.ended = 0  # trials
        self._fault = ""
        self._seconds: dict[str, float] = {}  # of trials that were stopped early; a search may let them go on

    @property
    def fault(self) -> str:
        """Why nothing more may run; empty while there is no reason."""
        return self._fault or self.lease.lost

    def stop(self, reason: str) -> None:
        """Let no further trial start; of several reasons the first one is kept."""
        self._fault = self.fault or reason

    def closing(self) -> bool:
        """Whether nothing more is started: a budget is used up, or there is a fault."""
        return bool(self.fault or self.budget.used_up())

    def begin(self, trial: Trial, notes: TrialNotes) -> ActiveTrial:
        """Enter a trial that is handed out, perhaps once more."""
        active = self.active.setdefault(trial.id, ActiveTrial(trial, notes, self._seconds.get(trial.id)))
        active.stopped = False
        return active

    def started(self, active: ActiveTrial, rate: Rate) -> None:
        """Start the clocks of a trial: a worker begins it, or goes on with it."""
        self.overdue.started(active.trial.id, active.trial.arm, active.seconds or 0.0, time.monotonic())
        self.budget.started(active.trial.id, rate)

    def reported(self, active: ActiveTrial, reports: list[Row], seconds: float) -> bool:
        """Count what a worker reports, after so many `seconds` of training in all.

        Return whether the trial got further than it ever was.
        """
        active.seconds = seconds
        self.overdue.reported(active.trial.id, len(reports), seconds, time.monotonic())
        self.budget.trained(active.trial.id, seconds)
        if not reports or step_of(reports[-1]) <= active.step:
            return False
        active.step, active.hosts_lost = step_of(reports[-1]), 0
        return True

    def lost_host(self, active: ActiveTrial) -> bool:
        """Count a host that a trial has lost; whether the trial may lose another one.

        It may not after `MAX_HOSTS_LOST` without getting further, for then the trial may be what ends them.
        """
        active.hosts_lost += 1
        return active.hosts_lost < MAX_HOSTS_LOST

    def end(self, record: Record) -> bool:
        """Close the account of a trial that has its record; whether there was one."""
        self.overdue.ended(record.trial_id)
        if (active := self.active.pop(record.trial_id, None)) is None:
            return False
        self.ended += 1
        self.budget.ended(record)
        if record.status.stopped_early and active.seconds is not None:
            self._seconds[record.trial_id] = active.seconds
        return True
