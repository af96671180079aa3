"""Successive halving over whole configurations, whose trials pause until the others of their bracket have reported."""

import math
import statistics
from collections import defaultdict

from contrasweep.storage.record import LARGEST
from contrasweep.tuning.pruners.pruner import History, Pruner, at_least, first_from


class FoldHalving(Pruner):
    """Synchronous successive halving (Jamieson & Talwalkar 2016) over configurations.

    A configuration is judged by the mean over its folds, so that a single lucky fold does not decide.

    Configurations form brackets of `bracket` (default: reduction squared), in their order. The rungs are the steps
    min_step * reduction^k. All trials of a bracket pause at a rung; a paused trial takes no slot of a host. Once each
    has reported there, or ended, the best 1/reduction of the configurations go on from their checkpoints. So the
    decision does not depend on the order of reports. Brackets do not wait for each other.

    Args:
        mode: `max` or `min`: whether a larger or a smaller value is better.
        budget: The number of configurations; None: not known, so the last bracket is decided at the search's end.
        reduction: One of so many configurations goes on at each rung, at least one of a bracket.
        min_step: The step of the first rung.
        bracket: Configurations in a bracket.
    """

    def __init__(
        self,
        mode: str,
        budget: int | None,
        *,
        reduction: int = 3,
        min_step: int = 1,
        bracket: int | None = None,
    ) -> None:
        at_least("reduction", reduction, 2)
        at_least("min_step", min_step, 1)
        if bracket is not None:
            at_least("bracket", bracket, 2)
        self.sign = 1.0 if mode == "max" else -1.0
        self.reduction = reduction
        self.min_step = min_step
        self.bracket_size = bracket or reduction * reduction
        self.total = math.inf if budget is None else budget  # configurations
        self.config_of: dict[str, int] = {}  # trial -> configuration
        self.trials: dict[int, list[str]] = defaultdict(list)  # configuration -> its trials
        # trial -> step -> value, of which larger is better
        self.histories: dict[str, History] = defaultdict(dict)
        self.ended: dict[str, bool] = {}  # trial -> whether it failed
        # bracket -> configurations that passed its rungs so far; a bracket that passed none is not in it
        self.alive: dict[int, list[int]] = {}
        self.level: dict[int, int] = defaultdict(int)  # bracket -> rungs that it has passed
        # trials that halt at a rung: those that wait there, and those that were stopped there for good
        self.halted: set[str] = set()

    def add(self, trial: str, config: int, fold: int) -> None:
        """Note to which configuration `trial` belongs. A trial that runs again does not count as ended any more."""
        self.ended.pop(trial, None)
        if trial not in self.config_of:
            self.config_of[trial] = config
            self.trials[config].append(trial)

    def on_report(self, trial: str, step: int, value: float) -> bool:
        """Return whether `trial` goes on after this report: True below the next rung of its bracket.

        At the rung it is False as long as other trials of the bracket have not reported there; the trial pauses. The
        last one to report decides the rung, and goes on at once if its configuration does. A value that is not finite,
        or beyond `LARGEST`, counts as the worst.
        """
        self.histories[trial][step] = self.sign * value if abs(value) <= LARGEST else -math.inf
        self._advance(self._bracket(trial))
        goes_on = self._goes_on(trial)
        if goes_on:
            self.halted.discard(trial)
        else:
            self.halted.add(trial)
        return goes_on

    def on_end(self, trial: str, *, stopped: bool = False, failed: bool = False) -> None:
        """Note that `trial` pauses at a rung (`stopped`), or that it has ended.

        The end of a trial decides the rungs of its bracket that waited for this trial alone. At rungs that it did not
        reach, its last value counts. A `failed` trial counts as the worst at all rungs.
        """
        if stopped:
            self.halted.add(trial)
            return
        self.ended[trial] = failed
        self.halted.discard(trial)
        self._advance(self._bracket(trial))

    def on_search_end(self, configs: int) -> None:
        """Note that there are `configs` configurations in all, and decide the last bracket, which may not be full."""
        self.total = configs
        for bracket in {self._bracket(trial) for trial in self.config_of}:
            self._advance(bracket)

    def resumable(self) -> list[str]:
        """Return the ids of the paused trials that may go on, because their configuration has passed the rung.

        They are ordered by configuration and fold. Each one is returned once, and does not count as paused after that.
        """

        def order(trial: str) -> tuple[int, int]:
            """Return the sort key of a trial: its configuration, and its index among the trials of this."""
            config = self.config_of[trial]
            return config, self.trials[config].index(trial)

        promoted = sorted(filter(self._goes_on, self.halted), key=order)
        self.halted -= set(promoted)
        return promoted

    def is_paused(self, trial: str) -> bool:
        """Return whether `trial` waits at a rung, and its configuration is still among those that may go on."""
        return trial in self.halted and self.config_of[trial] in self._alive(self._bracket(trial))

    def _bracket(self, trial: str) -> int:
        """Return the number of a trial's bracket, which is `bracket_size` consecutive configurations."""
        return self.config_of[trial] // self.bracket_size

    def _alive(self, bracket: int) -> list[int]:
        """Return the numbers of the bracket's configurations that have passed all of its rungs decided so far.

        Before the first rung is decided these are all of its configurations, also those that the searcher has not
        suggested yet.
        """
        if bracket not in self.alive:
            end = int(min(self.total, (bracket + 1) * self.bracket_size))
            return list(range(bracket * self.bracket_size, end))
        return self.alive[bracket]

    def _goes_on(self, trial: str) -> bool:
        """Return whether a trial trains on now.

        It does where its configuration has passed all rungs so far, and the trial has not reached the next rung. Where
        a single configuration of the bracket is left, its trials train on to their end: there is none to compare it
        with.
        """
        bracket = self._bracket(trial)
        alive = self._alive(bracket)
        reached = max(self.histories[trial], default=0) >= self._rung(bracket)
        return self.config_of[trial] in alive and (len(alive) == 1 or not reached)

    def _rung(self, bracket: int) -> int:
        """Return the step at which the trials of a bracket pause next."""
        rung: int = self.min_step * self.reduction ** self.level[bracket]
        return rung

    def _advance(self, bracket: int) -> None:
        """Decide the next rungs of a bracket, as long as each configuration that is left has a value there."""
        while True:
            alive = self._alive(bracket)
            # A single configuration has no rungs, and where all trials have ended there is none to stop.
            trials = [trial for config in alive for trial in self.trials[config]]
            if len(alive) <= 1 or all(trial in self.ended for trial in trials):
                return
            values: dict[int, float] = {}
            for config in alive:
                value = self._value(config, self._rung(bracket))
                if value is None:
                    return
                values[config] = value
            # The best come first; of equals the one that was asked for first.
            ranked = sorted(alive, key=lambda config: (-values[config], config))
            self.alive[bracket] = sorted(ranked[: max(1, len(alive) // self.reduction)])
            self.level[bracket] += 1

    def _value(self, config: int, rung: float) -> float | None:
        """Return a configuration's mean value at `rung` over its folds; None while a fold has no value there."""
        at_rung = [self._at(trial, rung) for trial in self.trials[config]]
        values = [value for value in at_rung if value is not None]
        return statistics.fmean(values) if values and len(values) == len(at_rung) else None

    def _at(self, trial: str, rung: float) -> float | None:
        """Return a trial's value at `rung`: that of its first report at this step or later; None: there is none yet.

        A trial that ended before the rung has its last value there. One that failed, or ended without a value, has
        -inf: its bracket must not wait for it.
        """
        history = self.histories[trial]
        # `ended` says of each trial that has ended whether it failed.
        if trial in self.ended and (self.ended[trial] or not history):
            return -math.inf
        value = first_from(history, rung)
        if value is None and trial in self.ended and history:
            return history[max(history)]
        return value
