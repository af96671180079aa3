"""The state of a run at one moment, as the process that runs it knows it, and in a line of text.

Plain data, so that it can be kept in the storage and shown on any machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pydantic

from contrasweep.planning.durations import duration
from contrasweep.storage.json_file import SCHEMA
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import COUNTING, Count, Measure, Seed, Time

MAX_EVENTS, MAX_LINE = 20, 1000


def one_line(text: str) -> str:
    """Return `text` as one line of limited length without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_LINE]


Line = Annotated[str, pydantic.AfterValidator(one_line)]


@dataclass
class RunningTrial:
    """A trial that a worker trains. Times are unix seconds; `step` 0: it has not reported yet."""

    __pydantic_config__ = SCHEMA

    trial_id: Name
    arm: Label
    axes: dict[Label, Line]
    fold: Count | None
    seed: Seed
    started: Time
    step: Count = 0
    steps: Count | None = None  # of how many; None: not known
    value: float | None = None  # the study's metric, as it was last reported
    reported: Time | None = None
    note: Line = ""  # what is odd about it: that it does not report
    first_step: Count = 0  # the step of its first report in this run
    first_reported: Time | None = None

    @property
    def settings(self) -> str:
        """Return the trial's values of the axes as text, such as `batch_size=16 lr=0.1`."""
        return " ".join(f"{axis}={value}" for axis, value in self.axes.items())


@dataclass
class ArmState:
    """How many trials of an arm have ended, and the scores of those that have one."""

    __pydantic_config__ = SCHEMA

    ended: Count = 0
    total: Count | None = None
    scored: Count = 0
    mean: float = 0.0
    best: float | None = None
    best_where: Line = ""

    def score(self, value: float, where: str, mode: str) -> None:
        """Count a finished trial's value of the metric."""
        self.scored += 1
        self.mean += (value - self.mean) / self.scored
        if self.best is None or (value > self.best) == (mode == "max"):
            self.best, self.best_where = value, where


@dataclass
class RunState:
    """The state of a run that began at `began`, when `before` trials were done already.

    `slots` trials run at once. `ended` says why the run is over; empty as long as it runs. `updated` is the moment that
    this describes, in unix seconds on the host that runs it.
    """

    __pydantic_config__ = SCHEMA

    study: Name
    metric: Label
    mode: Literal["max", "min"]
    storage: Line
    total: Count | None
    before: Count
    slots: Measure
    began: Time
    host: Label = ""
    pid: Count = 0
    updated: Time = 0.0
    eta_s: Measure | None = None
    statuses: dict[Label, Count] = field(default_factory=dict)  # of the trials that ended since it began
    running: dict[Name, RunningTrial] = field(default_factory=dict)  # by trial id
    arms: dict[Label, ArmState] = field(default_factory=dict)
    events: list[tuple[Time, Line]] = field(default_factory=list)  # the newest last
    ended: Line = ""
    labels: dict[Label, Label] = field(default_factory=dict)  # what people read in place of declared names

    def name(self, word: str) -> str:
        """An arm, an axis, its value or the metric as people read it."""
        return self.labels.get(word, word)

    def settings(self, axes: Mapping[str, str]) -> str:
        """Return values of axes as people read them, `batch_size=16 lr=0.1`."""
        return " ".join(f"{self.name(axis)}={self.name(value)}" for axis, value in axes.items())

    @property
    def done(self) -> int:
        """Trials that need not run any more."""
        return self.before + sum(self.statuses.values())

    @property
    def bad(self) -> list[str]:
        """Return the counts of trials that ended with another status than done: `2 failed`."""
        return [f"{n} {status}" for status, n in sorted(self.statuses.items()) if n and status not in COUNTING]

    @property
    def best(self) -> tuple[str, ArmState] | None:
        """The arm with the best trial so far."""
        scored = [(name, arm) for name, arm in self.arms.items() if arm.best is not None]
        pick = max if self.mode == "max" else min
        return pick(scored, key=lambda entry: entry[1].best or 0.0) if scored else None

    def event(self, now: float, text: str) -> None:
        """Keep a line for whoever watches."""
        self.events = [*self.events, (now, one_line(text))][-MAX_EVENTS:]


def start_line(state: RunState) -> str:
    """What a run will do: `30 trials, 12 done before, 2 slots, about 3 min`."""
    trials = "trials until the budget is used up" if state.total is None else _count(state.total, "trial")
    before = f", {state.before} done before" if state.before else ""
    parts = f"{state.study}: {trials}{before}, {_count(int(state.slots), 'slot')}"
    if state.eta_s is None:
        return f"{parts}; how long it takes is known once some trials have ended"
    return f"{parts}, about {duration(state.eta_s)}"


def counts_line(state: RunState) -> str:
    """`14/30 trials, 2 running, 1 failed, 3 min so far, about 4 min to go`."""
    done = f"{state.done} trials" if state.total is None else f"{state.done}/{state.total} trials"
    parts = [done, f"{len(state.running)} running", *state.bad, f"{elapsed(state.updated - state.began)} so far"]
    if state.ended:
        parts[1] = "interrupted" if state.ended == "interrupted" else "ended"
    elif state.eta_s and state.total is not None and state.done < state.total:  # 0: all that is left is overdue
        parts.append(f"about {duration(state.eta_s)} to go")
    return ", ".join(parts)


def progress_line(state: RunState) -> str:
    """The counts, the newest value of the metric of a trial that runs, and the best so far."""
    parts, metric = [counts_line(state)], state.name(state.metric)
    reported = [trial for trial in state.running.values() if trial.value is not None]
    if reported:
        newest = max(reported, key=lambda trial: trial.reported or 0.0)
        parts.append(f"{metric} {newest.value:.4g} of {state.name(newest.arm)} at step {newest.step}")
    if state.best is not None:
        name, arm = state.best
        parts.append(f"best {metric} {arm.best:.4g}: {state.name(name)} {arm.best_where}".rstrip())
    return "; ".join(parts)


def elapsed(seconds: float) -> str:
    """Return a time as 0:07, 12:40 or 3:05:12."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
