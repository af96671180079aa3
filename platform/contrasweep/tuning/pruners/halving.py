"""Rules that let trials wait for their peers: successive halving and HyperBand, each over whole configurations."""

import math
import statistics
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import defaultdict

from contrasweep.errors import SpecError
from contrasweep.tuning.pruners.pruner import CONTINUE, PAUSE, STOP, Decision, at_least, first_from


class Brackets(ABC):
    """Synchronous successive halving (Jamieson & Talwalkar 2016) over configurations.

    Each configuration counts by the mean over its folds, so that none lives or dies by one lucky fold.

    Configurations are taken in brackets, in their order. At each rung all trials of a bracket stop; once each of them
    has reported there, or ended, the best 1/reduction of the configurations go on from their checkpoints. So what is
    decided does not depend on the order of reports. Brackets wait for nothing of each other, and a trial that waits
    holds no place.
    """

    def __init__(self, mode: str, configs: int | None, *, reduction: int, folds: int) -> None:
        at_least("reduction", reduction, 2)
        self.sign = 1.0 if mode == "max" else -1.0
        self.reduction, self.folds, self.configs = reduction, folds, math.inf if configs is None else configs
        self.config_of: dict[str, int] = {}
        self.trials: dict[int, list[str]] = defaultdict(list)
        self.histories: dict[str, dict[int, float]] = defaultdict(dict)
        self.ended: dict[str, bool] = {}  # trial -> whether it failed
        self.alive: dict[int, list[int]] = {}
        self.level: dict[int, int] = defaultdict(int)
        self.stopped: set[str] = set()

    @abstractmethod
    def first(self, bracket: int) -> int:
        """Return the number of the first configuration of a bracket; for `bracket` + 1, the end of the bracket."""

    @abstractmethod
    def bracket(self, config: int) -> int:
        """The bracket of a configuration."""

    @abstractmethod
    def rung(self, bracket: int, level: int) -> float:
        """The step at which a bracket is reduced for the (level + 1)-th time; infinite: never."""

    def add(self, trial: str, config: int, fold: int) -> None:
        """Note the configuration of `trial`; a trial that goes on keeps its own, and has not ended."""
        self.ended.pop(trial, None)
        if trial not in self.config_of:
            self.config_of[trial] = config
            self.trials[config].append(trial)

    def on_report(self, trial: str, step: int, value: float) -> Decision:
        """Return `CONTINUE` below the next rung; at it `PAUSE` while the configuration may go on, else `STOP`."""
        self.histories[trial][step] = self.sign * value if math.isfinite(value) else -math.inf
        self._advance(self._bracket(trial))
        going = self._goes_on(trial)
        (self.stopped.discard if going else self.stopped.add)(trial)
        if going:
            return CONTINUE
        return PAUSE if self.is_paused(trial) else STOP

    def on_pause(self, trial: str) -> None:
        """Note that it stopped; it may be resumed."""
        self.stopped.add(trial)

    def on_end(self, trial: str, failed: bool = False) -> None:
        """Give a finished trial its last value at the rungs that it did not reach; a failed trial is the worst."""
        self.ended[trial] = failed
        self.stopped.discard(trial)
        self._advance(self._bracket(trial))

    def on_search_end(self, configs: int) -> None:
        """Decide the rungs of brackets that will not fill up any more."""
        self.configs = configs
        for bracket in {self._bracket(t) for t in self.config_of}:
            self._advance(bracket)

    def resumable(self) -> list[str]:
        """Stopped trials whose configuration passed its rung, by configuration and fold."""
        promoted = sorted(
            (t for t in self.stopped if self._goes_on(t)),
            key=lambda t: (self.config_of[t], self.trials[self.config_of[t]].index(t)),
        )
        self.stopped -= set(promoted)
        return promoted

    def is_paused(self, trial: str) -> bool:
        """Whether it stopped at a rung and its configuration is still alive."""
        return trial in self.stopped and self.config_of[trial] in self._alive(self._bracket(trial))

    def _bracket(self, trial: str) -> int:
        return self.bracket(self.config_of[trial])

    def _alive(self, bracket: int) -> list[int]:
        if bracket not in self.alive:
            return list(range(self.first(bracket), int(min(self.configs, self.first(bracket + 1)))))
        return self.alive[bracket]

    def _goes_on(self, trial: str) -> bool:
        """Alive, and below the next rung, unless there is nobody left to compare it with."""
        bracket = self._bracket(trial)
        alive = self._alive(bracket)
        reached = max(self.histories[trial], default=0) >= self._rung(bracket)
        return self.config_of[trial] in alive and (len(alive) == 1 or not reached)

    def _rung(self, bracket: int) -> float:
        return self.rung(bracket, self.level[bracket])

    def _advance(self, bracket: int) -> None:
        """Decide every rung that all configurations of its bracket have reached."""
        while len(alive := self._alive(bracket)) > 1 and math.isfinite(rung := self._rung(bracket)):
            values = {config: self._value(config, rung) for config in alive}
            if any(v is None for v in values.values()) or all(t in self.ended for c in alive for t in self.trials[c]):
                return
            ranked = sorted(alive, key=lambda c: (-(values[c] or 0.0), c))
            self.alive[bracket] = sorted(ranked[: max(1, len(alive) // self.reduction)])
            self.level[bracket] += 1

    def _value(self, config: int, rung: float) -> float | None:
        """Return the mean over the folds of the values at `rung`; None while a fold has not reported there."""
        known = [v for trial in self.trials[config] if (v := self._at(trial, rung)) is not None]
        return statistics.fmean(known) if len(known) == self.folds else None

    def _at(self, trial: str, rung: float) -> float | None:
        if self.ended.get(trial):
            return -math.inf
        value = first_from(self.histories[trial], rung)
        last = self.histories[trial].get(max(self.histories[trial], default=0))
        return last if value is None and trial in self.ended else value


class FoldHalving(Brackets):
    """Successive halving (Jamieson & Talwalkar 2016), each configuration judged over all its folds.

    In brackets of `bracket` configurations (default: reduction squared), reduced at steps min_step * reduction^k.
    """

    def __init__(
        self,
        mode: str,
        budget: int | None,
        *,
        reduction: int = 3,
        min_step: int = 1,
        bracket: int | None = None,
        folds: int = 1,
    ) -> None:
        super().__init__(mode, budget, reduction=reduction, folds=folds)
        at_least("min_step", min_step, 1)
        at_least("bracket", bracket or reduction, 2)
        self.min_step, self.size = min_step, bracket or reduction * reduction

    def first(self, bracket: int) -> int:
        """Return the first configuration, as each bracket has `size` of them."""
        return bracket * self.size

    def bracket(self, config: int) -> int:
        """Each `size` configurations in their order are a bracket."""
        return config // self.size

    def rung(self, bracket: int, level: int) -> float:
        """min_step * reduction^level, in every bracket."""
        return float(self.min_step * self.reduction**level)


class HyperBand(Brackets):
    """HyperBand (Li et al. 2018): halving in brackets from many short trials to few whole ones.

    Brackets come in turns, each of about the same resources. `max_step` is the R of the paper: the steps of a trial
    that nothing stops.

    With s_max = floor(log_reduction(max_step / min_step)), bracket s = s_max, ..., 0 takes ceil((s_max + 1) /
    (s + 1) * reduction^s) configurations and reduces them at steps max_step * reduction^-s, ..., max_step / reduction.
    """

    def __init__(
        self,
        mode: str,
        budget: int | None,
        *,
        max_step: int | None = None,
        reduction: int = 3,
        min_step: int = 1,
        folds: int = 1,
    ) -> None:
        super().__init__(mode, budget, reduction=reduction, folds=folds)
        at_least("min_step", min_step, 1)
        if max_step is None:
            raise SpecError(
                "HyperBand has to know the steps of a whole trial",
                place="pruner_options.max_step",
                hint="set it to the trainable's epochs",
            )
        at_least("max_step", max_step, min_step)
        self.max_step, self.most = max_step, 0
        while min_step * reduction ** (self.most + 1) <= max_step:
            self.most += 1
        sizes = [-(-(self.most + 1) * reduction**s // (s + 1)) for s in range(self.most, -1, -1)]
        self.ends: list[int] = [sum(sizes[: i + 1]) for i in range(len(sizes))]

    def first(self, bracket: int) -> int:
        """Return the first configuration of a bracket; brackets of sizes s_max, ..., 0 follow each other in turns."""
        turn, place = divmod(bracket, len(self.ends))
        return turn * self.ends[-1] + (self.ends[place - 1] if place else 0)

    def bracket(self, config: int) -> int:
        """Its turn, and within it the bracket by the sizes' partial sums."""
        turn, place = divmod(config, self.ends[-1])
        return turn * len(self.ends) + bisect_right(self.ends, place)

    def rung(self, bracket: int, level: int) -> float:
        """Return the step at which a `level` of a bracket ends: max_step / reduction^s, s one less at each level.

        Infinite once s is 0: the last level runs to the end.
        """
        left = self.most - bracket % len(self.ends) - level
        return max(1, self.max_step // self.reduction**left) if left > 0 else math.inf
