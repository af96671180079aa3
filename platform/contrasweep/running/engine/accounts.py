"""The accounts of a run: which trials run, what each has used, which are overdue, and whether more trials may start.

A trial is overdue when it has not reported for longer than usual, or has passed a time limit. What is usual is learned
from the reports. The clocks read no time themselves: callers pass it as `now`.
"""

import time
from collections import defaultdict
from dataclasses import dataclass

from contrasweep.errors import duration
from contrasweep.planning.budget import Budget
from contrasweep.rows import Row, step_of
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.trial import Trial

SILENT_FACTOR = 10.0
"""A trial is silent after so many of its usual intervals without a report."""
MIN_SILENCE_S = 60.0
"""A trial is silent after so many seconds at the earliest."""
UNKNOWN_SILENCE_S = 300.0
"""Seconds until a trial is silent where no interval is known: imports and data come before a first report."""
LATE_S = 20.0
"""A trial is late so many seconds after its usual interval."""
CALL_S = 15.0
"""A late trial is called again after so many seconds."""


@dataclass
class _Mean:
    """A mean of seconds, as the sum of the values and their number."""

    total: float = 0.0
    count: int = 0


@dataclass
class _Clock:
    """What is known of one attempt of a running trial."""

    arm: str
    heard: float  # when it began or last reported
    trained: float  # seconds of training before `heard`
    reports: int = 0
    first: float = 0.0  # when it first reported in this attempt
    silence_told: bool = False  # whether `Overdue.silent` has returned this silence
    call_at: float = 0.0  # when `Overdue.late` may return it next


class Overdue:
    """Clocks of running trials, with limits on a trial (`trial_s`) and between reports (`report_s`); None: no limit.

    Times are those of the monotonic clock, in seconds.
    """

    def __init__(self, trial_s: float | None = None, report_s: float | None = None) -> None:
        self.trial_s = trial_s
        self.report_s = report_s
        self._clocks: dict[str, _Clock] = {}
        # arm -> mean seconds from report to report, and from the start to the first report
        self._intervals: defaultdict[str, _Mean] = defaultdict(_Mean)
        self._firsts: defaultdict[str, _Mean] = defaultdict(_Mean)

    def started(self, trial_id: str, arm: str, trained: float, now: float) -> None:
        """Start the clock of a trial at the time `now`.

        `trained` is for how many seconds the trial was trained before, 0 for a new trial.
        """
        self._clocks[trial_id] = _Clock(arm, now, trained)

    def reported(self, trial_id: str, count: int, trained: float, now: float) -> None:
        """Set the clock of a trial that has made `count` more reports, after `trained` seconds of training in all.

        Does nothing where `count` is 0, and for a trial that has no clock.
        """
        clock = self._clocks.get(trial_id)
        if clock is None or not count:
            return
        # Several reports may come at once. They share the time since the last report, except for the first reports of a
        # trial: the time from its start to these is one value.
        means = self._intervals if clock.reports else self._firsts
        mean = means[clock.arm]
        mean.total += now - clock.heard
        mean.count += count if clock.reports else 1
        if not clock.reports:
            clock.first = now
        clock.reports += count
        clock.heard = now
        clock.trained = trained
        clock.silence_told = False

    def ended(self, trial_id: str) -> None:
        """Remove the clock of a trial that has its record, or has no worker any more."""
        self._clocks.pop(trial_id, None)

    def stood_still(self, seconds: float, now: float) -> None:
        """Do not count the last `seconds` before `now` as silence of trials: the driver could read no reports then."""
        for clock in self._clocks.values():
            clock.heard = min(clock.heard + seconds, now)

    def timed_out(self, now: float) -> dict[str, str]:
        """Return trial id -> a sentence on the limit that it has passed, of each trial that has passed one."""
        reasons = {}
        for trial_id, clock in self._clocks.items():
            # The time since the last report counts as training.
            silence = now - clock.heard
            trained = clock.trained + silence
            if self.trial_s is not None and trained > self.trial_s:
                reasons[trial_id] = (
                    f"timed out after {duration(trained)} (trial_hours is {self.trial_s / 3600:g})"
                )
            elif self.report_s is not None and silence > self.report_s:
                reasons[trial_id] = (
                    f"timed out after {duration(silence)} without a report (report_minutes is {self.report_s / 60:g})"
                )
        return reasons

    def silent(self, now: float) -> dict[str, str]:
        """Return trial id -> a phrase on its silence, such as `no report for 3 min`, of trials that are newly silent.

        A trial is returned once, and again only after another report.
        """
        silences = {}
        for trial_id, clock in self._clocks.items():
            usual = self._usual(clock)
            silence = now - clock.heard
            patience = (
                UNKNOWN_SILENCE_S if usual is None else max(MIN_SILENCE_S, SILENT_FACTOR * usual)
            )
            if not clock.silence_told and silence > patience:
                clock.silence_told = True
                usually = "" if usual is None else f", usually every {duration(usual)}"
                silences[trial_id] = f"no report for {duration(silence)}{usually}"
        return silences

    def late(self, now: float) -> list[str]:
        """Return the ids of the late trials whose workers are to be called now.

        A trial is late if it has not reported for `LATE_S` longer than its usual interval. It is returned again after
        `CALL_S`. A call shows whether the worker is still there (see `watchdog`).
        """
        late = []
        for trial_id, clock in self._clocks.items():
            if now - clock.heard > LATE_S + (self._usual(clock) or 0.0) and now >= clock.call_at:
                clock.call_at = now + CALL_S
                late.append(trial_id)
        return late

    def _usual(self, clock: _Clock) -> float | None:
        """Return the seconds that usually pass before the trial of `clock` reports next; None where nothing is known.

        After two reports of the trial, they are the mean of its own intervals from report to report. After one report,
        they are the mean of the intervals of all trials of its arm. Before any, they are the arm's mean time from start
        to first report.
        """
        if clock.reports > 1:
            return (clock.heard - clock.first) / (clock.reports - 1)
        means = self._intervals if clock.reports else self._firsts
        mean = means[clock.arm]
        return mean.total / mean.count if mean.count else None


MAX_HOSTS_LOST = 20
"""Hosts that a trial may lose in a row without a new step in between."""


@dataclass
class ActiveTrial:
    """A trial that was handed out and has not ended."""

    trial: Trial
    notes: TrialNotes  # of its source
    seconds: float | None  # of training, as its worker reported last; None: no report yet
    step: int = 0  # as its worker reported last
    hosts_lost: int = 0  # since its last new step
    stopped: bool = False  # whether its source stopped it early
    # whether its worker's loss was reported again while it waited to resume
    lost_waiting: bool = False
    record: Record | None = None  # as its worker sent it


class Accounts:
    """What is counted for running trials: training time, lost hosts, and use of budget and time limits."""

    def __init__(self, budget: Budget, overdue: Overdue, lease: Lease) -> None:
        self.budget = budget
        self.overdue = overdue
        self.lease = lease
        self.active: dict[str, ActiveTrial] = {}  # by trial id
        self.ended = 0  # trials
        self._fault = ""  # the first reason given to `stop`
        # trial id -> seconds of training, of trials that were stopped early; a search may resume them
        self._seconds: dict[str, float] = {}

    @property
    def fault(self) -> str:
        """The reason why no further trial may run: that of `stop`, or that the lease is lost; "" without one."""
        return self._fault or self.lease.lost

    def stop(self, reason: str) -> None:
        """Let no further trial start, for this `reason`. A reason that was given earlier is kept in its place."""
        self._fault = self.fault or reason

    def closing(self) -> bool:
        """Return whether no further trial may start: a budget is used up, or there is a `fault`."""
        return bool(self.fault or self.budget.used_up())

    def begin(self, trial: Trial, notes: TrialNotes) -> ActiveTrial:
        """Add a trial that is handed out to the active ones, and return what is known of it.

        A trial that is active already, because it was handed out before and has no record, stays as it is.
        """
        active = self.active.setdefault(
            trial.id, ActiveTrial(trial, notes, self._seconds.get(trial.id))
        )
        active.stopped = False
        return active

    def started(self, active: ActiveTrial, gpus: float) -> None:
        """Start the clocks of a trial that a worker begins or resumes: one for its silence, and one for the budget.

        `gpus` is the number of GPUs that the trial has, such as 2, or .25 for a share of one. The time that the trial
        has trained so far counts towards its time limit.
        """
        self.overdue.started(
            active.trial.id, active.trial.arm, active.seconds or 0.0, time.monotonic()
        )
        self.budget.started(active.trial.id, gpus)

    def waits(self, trial_id: str) -> None:
        """Stop the clocks of a trial that has lost its worker. `started` starts them again with another worker."""
        self.overdue.ended(trial_id)
        self.budget.waits(trial_id)

    def reported(self, active: ActiveTrial, reports: list[Row], seconds: float) -> bool:
        """Count the reports that a worker has sent; return whether the trial has reached a new step.

        `seconds` is how long the trial was trained in all. A trial that has lost its host repeats the steps since its
        checkpoint, which are not new.
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
        """Count the loss of a trial's host; return whether the trial may run on another one.

        It may not after `MAX_HOSTS_LOST` losses without progress, because the trial itself may kill its hosts.
        """
        active.hosts_lost += 1
        return active.hosts_lost < MAX_HOSTS_LOST

    def end(self, record: Record) -> bool:
        """Remove a trial that has its record from the active ones, and count it as ended.

        Return whether it was active; False means that its end was counted before.
        """
        self.overdue.ended(record.trial_id)
        active = self.active.pop(record.trial_id, None)
        if active is None:
            return False
        self.ended += 1
        self.budget.ended(record)
        # If a search resumes a trial that was stopped, its training time continues from here.
        if record.status.stopped_early and active.seconds is not None:
            self._seconds[record.trial_id] = active.seconds
        return True
