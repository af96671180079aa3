"""The accounts of a run: which trials run, what each has used, which are overdue, and whether anything more may start.

A trial is overdue that is silent for longer than is usual, which is learned from the reports themselves, or that has
run out of its time. Pure bookkeeping; whoever asks brings the time.
"""

import time
from collections import defaultdict
from dataclasses import dataclass

from contrasweep.planning.budget import Budget
from contrasweep.planning.durations import duration
from contrasweep.rows import Row, step_of
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.trial import Trial

SILENT_FACTOR = 10.0
"""A trial is silent that has not reported for so many times its usual interval,"""
MIN_SILENCE_S = 60.0
"""but at least for so long;"""
UNKNOWN_SILENCE_S = 300.0
"""and for so long where no trial has reported yet, since imports and data come before a first report."""
LATE_S = 20.0
"""A trial is late that has not reported for so long beyond its usual interval."""
LOOK_S = 15.0
"""A late trial is looked at again after so long, or after a twentieth of its silence."""


@dataclass
class _Clock:
    """What is known of one attempt of a running trial. Times are those of the monotonic clock, in seconds."""

    arm: str
    heard: float  # when it began or last reported
    trained: float  # seconds of training before `heard`
    reports: int = 0
    first: float = 0.0  # when it first reported in this attempt
    told: bool = False  # whether its silence was said
    look_at: float = 0.0  # when it is looked at next

    def interval(self) -> float | None:
        """Return the mean seconds between its reports; None before the second one."""
        return (self.heard - self.first) / (self.reports - 1) if self.reports > 1 else None


class Overdue:
    """Clocks of running trials, with limits on a trial (`trial_s`) and between reports (`report_s`); None: no limit."""

    def __init__(self, trial_s: float | None = None, report_s: float | None = None) -> None:
        self.trial_s = trial_s
        self.report_s = report_s
        self._clocks: dict[str, _Clock] = {}
        # arm -> the sum of the seconds from report to report, and their number
        self._intervals: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        # arm -> the same of the seconds from the start to the first report
        self._firsts: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])

    def started(self, trial_id: str, arm: str, trained: float, now: float) -> None:
        """Start the clock of a trial that begins, or goes on after `trained` seconds."""
        self._clocks[trial_id] = _Clock(arm, now, trained)

    def reported(self, trial_id: str, count: int, trained: float, now: float) -> None:
        """Set the clock of a trial that has reported `count` times more, after `trained` seconds in all.

        Does nothing where `count` is 0, and for a trial that has no clock.
        """
        clock = self._clocks.get(trial_id)
        if clock is None or not count:
            return
        # The first reports of a trial come after its start, which counts once. Later ones share the time since the
        # last.
        usual_times = self._intervals if clock.reports else self._firsts
        usual_times[clock.arm][0] += now - clock.heard
        usual_times[clock.arm][1] += count if clock.reports else 1
        if not clock.reports:
            clock.first = now
        clock.reports += count
        clock.heard = now
        clock.trained = trained
        clock.told = False

    def ended(self, trial_id: str) -> None:
        """Drop the clock of a trial that has its record, or no worker any more."""
        self._clocks.pop(trial_id, None)

    def timed_out(self, now: float) -> dict[str, str]:
        """Return trial id -> which limit it has passed, in words, of each trial that has passed one."""
        over = {}
        for trial_id, clock in self._clocks.items():
            silent = now - clock.heard  # counts as training
            if self.trial_s is not None and clock.trained + silent > self.trial_s:
                over[trial_id] = (
                    f"timed out after {duration(clock.trained + silent)} (trial_hours is {self.trial_s / 3600:g})"
                )
            elif self.report_s is not None and silent > self.report_s:
                over[trial_id] = (
                    f"timed out after {duration(silent)} without a report (report_minutes is {self.report_s / 60:g})"
                )
        return over

    def silent(self, now: float) -> dict[str, str]:
        """Return trial id -> how long it is silent, in words, of trials that report later than usual.

        Each is returned once, until it reports again.
        """
        silences = {}
        for trial_id, clock in self._clocks.items():
            usual = self._usual(clock)
            silence = now - clock.heard
            patience = (
                UNKNOWN_SILENCE_S if usual is None else max(MIN_SILENCE_S, SILENT_FACTOR * usual)
            )
            if not clock.told and silence > patience:
                clock.told = True
                usually = "" if usual is None else f", usually every {duration(usual)}"
                silences[trial_id] = f"no report for {duration(silence)}{usually}"
        return silences

    def late(self, now: float) -> dict[str, float]:
        """Return trial id -> when it last reported, of trials that are late and to be looked at now.

        Each is looked at again after `LOOK_S`, or after a twentieth of its silence where that is longer.
        """
        late = {}
        for trial_id, clock in self._clocks.items():
            if now - clock.heard > LATE_S + (self._usual(clock) or 0.0) and now >= clock.look_at:
                clock.look_at = now + max(LOOK_S, (now - clock.heard) / 20)
                late[trial_id] = clock.heard
        return late

    def _usual(self, clock: _Clock) -> float | None:
        """Return the usual seconds up to a trial's next report; None where nothing tells.

        By its own reports from the second on, else by the mean of its arm's: of first reports before its first.
        """
        interval = clock.interval()
        if interval is not None:
            return interval
        total, count = (self._intervals if clock.reports else self._firsts)[clock.arm]
        return total / count if count else None


MAX_HOSTS_LOST = 20
"""Hosts that a trial may lose in a row without getting further."""


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
        self.budget = budget
        self.overdue = overdue
        self.lease = lease
        self.active: dict[str, ActiveTrial] = {}  # by trial id
        self.ended = 0  # trials
        self._fault = ""
        # trial id -> seconds of training, of trials that were stopped early; a search may let them go on
        self._seconds: dict[str, float] = {}

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
        """Open the account of a trial that is handed out, and return it.

        A trial that was handed out before and has no record keeps its account.
        """
        active = self.active.setdefault(
            trial.id, ActiveTrial(trial, notes, self._seconds.get(trial.id))
        )
        active.stopped = False
        return active

    def started(self, active: ActiveTrial, gpus: float) -> None:
        """Start the clocks of a trial on so many `gpus`: a worker begins it, or goes on with it."""
        self.overdue.started(
            active.trial.id, active.trial.arm, active.seconds or 0.0, time.monotonic()
        )
        self.budget.started(active.trial.id, gpus)

    def reported(self, active: ActiveTrial, reports: list[Row], seconds: float) -> bool:
        """Count what a worker reports, after so many `seconds` of training in all.

        Return whether the trial got further than it ever was.
        """
        active.seconds = seconds
        self.overdue.reported(active.trial.id, len(reports), seconds, time.monotonic())
        self.budget.trained(active.trial.id, seconds)
        if not reports or step_of(reports[-1]) <= active.step:
            return False
        active.step = step_of(reports[-1])
        active.hosts_lost = 0
        return True

    def lost_host(self, active: ActiveTrial) -> bool:
        """Count the loss of a trial's host; whether the trial may be tried on another.

        It may not after `MAX_HOSTS_LOST` losses without progress: the trial itself may be what kills them.
        """
        active.hosts_lost += 1
        return active.hosts_lost < MAX_HOSTS_LOST

    def end(self, record: Record) -> bool:
        """Close the account of a trial that has its record; return whether it had an account."""
        self.overdue.ended(record.trial_id)
        if (active := self.active.pop(record.trial_id, None)) is None:
            return False
        self.ended += 1
        self.budget.ended(record)
        # A search may let a stopped trial go on, whose training time then counts from here.
        if record.status.stopped_early and active.seconds is not None:
            self._seconds[record.trial_id] = active.seconds
        return True
