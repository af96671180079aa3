"""Trials that do not report: which are silent for longer than they should be, and which have run out of their time.

What is usual is learned from the reports themselves. Pure bookkeeping; whoever asks brings the time.
"""

from collections import defaultdict
from dataclasses import dataclass

from contrasweep.planning.durations import duration

SILENT_FACTOR = 10.0
"""A trial is silent that has not reported for so many times its usual interval,"""
MIN_SILENCE_S = 60.0
"""but at least for so long;"""
UNKNOWN_SILENCE_S = 300.0
"""and for so long where no trial has reported yet, since imports and data come before a first report."""


@dataclass
class _Clock:
    arm: str
    heard: float  # when it began or last reported
    trained: float  # seconds of training before `heard`
    reports: int = 0
    first: float = 0.0  # when it first reported in this attempt
    said: bool = False

    def interval(self) -> float | None:
        return (self.heard - self.first) / (self.reports - 1) if self.reports > 1 else None


@dataclass(frozen=True)
class Silence:
    """A trial that has not reported for `seconds`; `usual` is its interval, None: not known."""

    trial_id: str
    seconds: float
    usual: float | None

    def __str__(self) -> str:
        usual = "" if self.usual is None else f", usually every {duration(self.usual)}"
        return f"no report for {duration(self.seconds)}{usual}"


class Overdue:
    """Keeps the time of each running trial. `trial_s` and `report_s` are limits; None: there is none."""

    def __init__(self, trial_s: float | None = None, report_s: float | None = None) -> None:
        self.trial_s, self.report_s = trial_s, report_s
        self._clocks: dict[str, _Clock] = {}
        self._intervals: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])  # arm -> their sum, their number
        self._firsts: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])  # arm -> the same of first reports

    def started(self, trial_id: str, arm: str, trained: float, now: float) -> None:
        """Start the clock of a trial that begins, or goes on after `trained` seconds."""
        self._clocks[trial_id] = _Clock(arm, now, trained)

    def reported(self, trial_id: str, count: int, trained: float, now: float) -> None:
        """Set the clock of a trial that has reported `count` times more, after `trained` seconds in all."""
        if (clock := self._clocks.get(trial_id)) is None or not count:
            return
        known = self._intervals if clock.reports else self._firsts
        known[clock.arm][0] += now - clock.heard
        known[clock.arm][1] += count if clock.reports else 1
        if not clock.reports:
            clock.first = now
        clock.reports += count
        clock.heard, clock.trained, clock.said = now, trained, False

    def ended(self, trial_id: str) -> None:
        """Drop the clock of a trial that has its record, or no worker any more."""
        self._clocks.pop(trial_id, None)

    def timed_out(self, now: float) -> dict[str, str]:
        """Return trial id -> which limit it has passed, in words."""
        over = {}
        for trial_id, clock in self._clocks.items():
            silent = now - clock.heard
            if self.trial_s is not None and clock.trained + silent > self.trial_s:
                over[trial_id] = (
                    f"timed out after {duration(clock.trained + silent)} (trial_hours is {self.trial_s / 3600:g})"
                )
            elif self.report_s is not None and silent > self.report_s:
                over[trial_id] = (
                    f"timed out after {duration(silent)} without a report (report_minutes is {self.report_s / 60:g})"
                )
        return over

    def silent(self, now: float) -> list[Silence]:
        """Return trials that report later than usual; each one once, until it reports again."""
        silences = []
        for trial_id, clock in self._clocks.items():
            usual, silence = self._usual(clock), now - clock.heard
            patience = UNKNOWN_SILENCE_S if usual is None else max(MIN_SILENCE_S, SILENT_FACTOR * usual)
            if not clock.said and silence > patience:
                clock.said = True
                silences.append(Silence(trial_id, silence, usual))
        return silences

    def _usual(self, clock: _Clock) -> float | None:
        own = clock.interval()
        if own is not None:
            return own
        total, count = (self._intervals if clock.reports else self._firsts)[clock.arm]
        return total / count if count else None
