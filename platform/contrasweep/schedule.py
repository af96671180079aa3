"""When to stop a trial early. Pure rules: they are told what trials report, and answer whether to go on.

    scheduler = build("asha", mode="max", budget=40)
    scheduler.add(trial, config=0, fold=0)
    scheduler.decide(trial, step=1, value=0.3)     # True: keep going
"""

import math
import statistics
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from contrasweep.errors import SpecError, choose_from


class Scheduler(Protocol):
    """One arm's rule: arms never stop each other. `config` numbers the arm's configurations; each has one trial a
    fold. All calls come from one thread."""

    def add(self, trial: str, config: int, fold: int) -> None:
        """`trial` is about to start."""

    def decide(self, trial: str, step: int, value: float) -> bool:
        """Whether `trial`, which has reported `value` at `step`, keeps going."""

    def end(self, trial: str, failed: bool = False) -> None:
        """`trial` will report no more, of its own accord."""

    def close(self, configs: int) -> None:
        """There will be only so many configurations."""

    def promoted(self) -> list[str]:
        """Trials stopped earlier that shall go on after all, each told once."""

    def waiting(self, trial: str) -> bool:
        """Whether it is open if `trial`, which was stopped, goes on."""


class Direct(ABC):
    """What rules have in common that stop a trial for good, comparing it with the same fold's."""

    def __init__(self, mode: str) -> None:
        self.sign = 1.0 if mode == "max" else -1.0
        self.folds: dict[str, int] = {}
        self.histories: dict[str, dict[int, float]] = defaultdict(dict)

    def add(self, trial: str, config: int, fold: int) -> None:
        self.folds[trial] = fold

    def end(self, trial: str, failed: bool = False) -> None:  # noqa: B027  # most rules need not know
        """An end changes nothing."""

    def close(self, configs: int) -> None:  # noqa: B027
        """Nor does the number of configurations."""

    def promoted(self) -> list[str]:
        return []

    def waiting(self, trial: str) -> bool:
        return False

    def decide(self, trial: str, step: int, value: float) -> bool:
        self.histories[trial][step] = self.sign * value if math.isfinite(value) else -math.inf
        peers = {t: h for t, h in self.histories.items() if t != trial and self.folds.get(t) == self.folds.get(trial)}
        return self.good(self.histories[trial], step, peers)

    @abstractmethod
    def good(self, own: dict[int, float], step: int, peers: dict[str, dict[int, float]]) -> bool:
        """Whether a trial with these values (larger is better) goes on past `step`."""


class Asha(Direct):
    """Asynchronous successive halving (Li et al. 2020), its variant without pauses: at steps min_step * reduction^k
    a trial goes on if it is in the best 1/reduction of those that were there so far. Decides by order of arrival."""

    def __init__(self, mode: str, budget: int, *, reduction: int = 3, min_step: int = 1) -> None:
        super().__init__(mode)
        _at_least("reduction", reduction, 2)
        _at_least("min_step", min_step, 1)
        self.reduction, self.min_step = reduction, min_step

    def good(self, own: dict[int, float], step: int, peers: dict[str, dict[int, float]]) -> bool:
        rung = self.min_step
        while rung <= step:
            before = [s for s in own if s >= rung]
            if min(before) == step:
                there = sorted((v for h in peers.values() if (v := first_from(h, rung)) is not None), reverse=True)
                there = sorted([*there, own[step]], reverse=True)
                if len(there) >= self.reduction and own[step] < there[len(there) // self.reduction - 1]:
                    return False
            rung *= self.reduction
        return True


class Median(Direct):
    """Median stopping (Golovin et al. 2017): a trial whose best so far is below the median of the others' running
    means at that step stops; not before `grace_steps`, nor with fewer than `min_trials` others."""

    def __init__(self, mode: str, budget: int, *, grace_steps: int = 1, min_trials: int = 3) -> None:
        super().__init__(mode)
        _at_least("min_trials", min_trials, 1)
        self.grace_steps, self.min_trials = grace_steps, min_trials

    def good(self, own: dict[int, float], step: int, peers: dict[str, dict[int, float]]) -> bool:
        means = [statistics.fmean(v for s, v in h.items() if s <= step) for h in peers.values() if max(h) >= step and min(h) <= step]
        return step < self.grace_steps or len(means) < self.min_trials or max(own.values()) >= statistics.median(means)


class FoldHalving:
    """Synchronous successive halving (Jamieson & Talwalkar 2016) over configurations, each judged by the mean over
    its folds, so that none lives or dies by one lucky fold.

    Configurations are taken in brackets of `bracket`, in their order. At steps min_step * reduction^k all trials of
    a bracket stop; once each of them has reported there, or ended, the best 1/reduction of the configurations go on
    from their checkpoints. What is decided does not depend on the order of reports.
    """

    def __init__(self, mode: str, budget: int, *, reduction: int = 3, min_step: int = 1, bracket: int | None = None,
                 folds: int = 1) -> None:  # fmt: skip
        _at_least("reduction", reduction, 2)
        _at_least("min_step", min_step, 1)
        _at_least("bracket", bracket or reduction, 2)
        self.sign = 1.0 if mode == "max" else -1.0
        self.reduction, self.min_step, self.folds, self.configs = reduction, min_step, folds, budget
        self.bracket = bracket or reduction * reduction
        self.config_of: dict[str, int] = {}
        self.trials: dict[int, list[str]] = defaultdict(list)
        self.histories: dict[str, dict[int, float]] = defaultdict(dict)
        self.ended: dict[str, bool] = {}  # trial -> whether it failed
        self.alive: dict[int, list[int]] = {}
        self.level: dict[int, int] = defaultdict(int)
        self.stopped: set[str] = set()

    def add(self, trial: str, config: int, fold: int) -> None:
        if trial not in self.config_of:
            self.config_of[trial] = config
            self.trials[config].append(trial)

    def decide(self, trial: str, step: int, value: float) -> bool:
        self.histories[trial][step] = self.sign * value if math.isfinite(value) else -math.inf
        self._advance(self._bracket(trial))
        going = self._goes_on(trial)
        (self.stopped.discard if going else self.stopped.add)(trial)
        return going

    def end(self, trial: str, failed: bool = False) -> None:
        self.ended[trial] = failed
        self.stopped.discard(trial)
        self._advance(self._bracket(trial))

    def close(self, configs: int) -> None:
        self.configs = configs
        for bracket in {self._bracket(t) for t in self.config_of}:
            self._advance(bracket)

    def promoted(self) -> list[str]:
        found = sorted((t for t in self.stopped if self._goes_on(t)), key=lambda t: (self.config_of[t], self.trials[self.config_of[t]].index(t)))
        self.stopped -= set(found)
        return found

    def waiting(self, trial: str) -> bool:
        return trial in self.stopped and self.config_of[trial] in self._alive(self._bracket(trial))

    def _bracket(self, trial: str) -> int:
        return self.config_of[trial] // self.bracket

    def _roster(self, bracket: int) -> range:
        return range(bracket * self.bracket, min(self.configs, (bracket + 1) * self.bracket))

    def _alive(self, bracket: int) -> list[int]:
        return self.alive.get(bracket, list(self._roster(bracket)))

    def _goes_on(self, trial: str) -> bool:
        """Alive, and below the next rung, unless there is nobody left to compare it with."""
        bracket = self._bracket(trial)
        alive = self._alive(bracket)
        reached = max(self.histories[trial], default=0) >= self._rung(bracket)
        return self.config_of[trial] in alive and (len(alive) == 1 or not reached)

    def _rung(self, bracket: int) -> int:
        return int(self.min_step * self.reduction ** self.level[bracket])

    def _advance(self, bracket: int) -> None:
        """Decide every rung that all its peers have reached."""
        while len(alive := self._alive(bracket)) > 1:
            values = {config: self._value(config, self._rung(bracket)) for config in alive}
            if any(v is None for v in values.values()) or all(t in self.ended for c in alive for t in self.trials[c]):
                return
            ranked = sorted(alive, key=lambda c: (-(values[c] or 0.0), c))
            self.alive[bracket] = sorted(ranked[: max(1, len(alive) // self.reduction)])
            self.level[bracket] += 1

    def _value(self, config: int, rung: int) -> float | None:
        """Mean over the folds at `rung`; None while one of them is not there."""
        found = [self._at(trial, rung) for trial in self.trials[config]]
        known = [v for v in found if v is not None]
        return statistics.fmean(known) if len(known) == self.folds else None

    def _at(self, trial: str, rung: int) -> float | None:
        if self.ended.get(trial):
            return -math.inf
        value = first_from(self.histories[trial], rung)
        last = self.histories[trial].get(max(self.histories[trial], default=0))
        return last if value is None and trial in self.ended else value


def first_from(history: dict[int, float], rung: int) -> float | None:
    """The value at the first step not below `rung`."""
    steps = [step for step in history if step >= rung]
    return history[min(steps)] if steps else None


SCHEDULERS: dict[str, Callable[..., Scheduler]] = {"asha": Asha, "median": Median, "halving": FoldHalving}
"""Early stopping rules by name."""


def build(scheduler: str, *, mode: str, budget: int, folds: int = 1, **options: Any) -> Scheduler:
    """The rule of this name for an arm with `budget` configurations on `folds` folds."""
    if scheduler not in SCHEDULERS:
        raise SpecError("there is no such scheduler", place="scheduler", value=scheduler,
                        hint=choose_from("schedulers", list(SCHEDULERS), scheduler))  # fmt: skip
    if scheduler == "halving":
        options = {**options, "folds": folds}
    try:
        return SCHEDULERS[scheduler](mode, budget, **options)
    except TypeError as error:
        raise SpecError("the scheduler does not take these options", place="scheduler_options", value=options, hint=str(error)) from None


def _at_least(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise SpecError(f"{name} must be a whole number of at least {least}", place=f"scheduler_options.{name}", value=value)
