"""Rules that decide at each report, once and for all: ASHA and median stopping."""

import math
import statistics
from abc import abstractmethod
from collections import defaultdict

from contrasweep.tuning.pruners.pruner import (
    CONTINUE,
    STOP,
    Decision,
    History,
    Pruner,
    at_least,
    first_from,
)


class StoppingRule(Pruner):
    """Base of rules that stop a trial for good, by a comparison with trials of the same fold.

    A rule of its own has `should_continue`. `mode` is `max` or `min`: whether a larger or a smaller value is better.
    """

    def __init__(self, mode: str) -> None:
        self.sign = 1.0 if mode == "max" else -1.0
        self.folds: dict[str, int] = {}  # trial -> fold
        # trial -> step -> value, of which larger is better
        self.histories: dict[str, History] = defaultdict(dict)

    def add(self, trial: str, config: int, fold: int) -> None:
        """Note the fold of `trial`, because it is compared with trials of its fold only."""
        self.folds[trial] = fold

    def on_report(self, trial: str, step: int, value: float) -> Decision:
        """Return `CONTINUE` or `STOP`, by the rule's comparison with the reports of its fold.

        Ended and stopped trials of the fold are compared with too. A value that is not finite is the worst.
        """
        self.histories[trial][step] = self.sign * value if math.isfinite(value) else -math.inf
        peers = {
            t: h
            for t, h in self.histories.items()
            if t != trial and self.folds.get(t) == self.folds.get(trial)
        }
        return CONTINUE if self.should_continue(self.histories[trial], step, peers) else STOP

    @abstractmethod
    def should_continue(self, values: History, step: int, peers: dict[str, History]) -> bool:
        """Whether a trial goes on past `step`.

        `values` is step -> value of the trial, with the one that it has just reported at `step`; `peers` is trial ->
        step -> value of the others of its fold that have reported. Larger is better, whatever the study's mode.
        """


class NoPruner(Pruner):
    """A rule that stops nothing."""

    def on_report(self, trial: str, step: int, value: float) -> Decision:
        """Return `CONTINUE`."""
        return CONTINUE


class Asha(StoppingRule):
    """Asynchronous successive halving (Li et al. 2020), in its variant without pauses.

    At steps min_step * reduction^k a trial goes on if it is in the best 1/reduction of those of its fold that were
    there so far, so the order of arrival counts. The first `reduction` - 1 trials at a step always go on. `budget`, the
    number of configurations, is not used.
    """

    def __init__(
        self, mode: str, budget: int | None, *, reduction: int = 3, min_step: int = 1
    ) -> None:
        super().__init__(mode)
        at_least("reduction", reduction, 2)
        at_least("min_step", min_step, 1)
        self.reduction = reduction
        self.min_step = min_step

    def should_continue(self, values: History, step: int, peers: dict[str, History]) -> bool:
        """Return False where `step` is the trial's first at or past a rung and it is not in the best 1/reduction there.

        Of n trials at a rung the best n // reduction go on. With n below `reduction` none stops.
        """
        rung = self.min_step
        while rung <= step:
            at_or_past = [s for s in values if s >= rung]
            # Only the first report at or past a rung decides at it.
            if min(at_or_past) == step:
                there = (first_from(history, rung) for history in peers.values())
                at_rung = sorted([values[step], *(v for v in there if v is not None)], reverse=True)
                if (
                    len(at_rung) >= self.reduction
                    and values[step] < at_rung[len(at_rung) // self.reduction - 1]
                ):
                    return False
            rung *= self.reduction
        return True


class Median(StoppingRule):
    """Median stopping (Golovin et al. 2017).

    A trial whose best so far is below the median of the others' running means at that step stops; not before the step
    `grace_steps`, nor with fewer than `min_trials` others. `budget`, the number of configurations, is not used.
    """

    def __init__(
        self, mode: str, budget: int | None, *, grace_steps: int = 1, min_trials: int = 3
    ) -> None:
        super().__init__(mode)
        at_least("min_trials", min_trials, 1)
        self.grace_steps = grace_steps
        self.min_trials = min_trials

    def should_continue(self, values: History, step: int, peers: dict[str, History]) -> bool:
        """Whether the trial's best value so far reaches the median of the others' running means.

        A running mean is over a trial's values up to `step`. True as well before `grace_steps`, and where fewer than
        `min_trials` others have reports both up to `step` and from it on.
        """
        means = [
            statistics.fmean(v for s, v in h.items() if s <= step)
            for h in peers.values()
            if max(h) >= step and min(h) <= step
        ]
        return (
            step < self.grace_steps
            or len(means) < self.min_trials
            or max(values.values()) >= statistics.median(means)
        )
