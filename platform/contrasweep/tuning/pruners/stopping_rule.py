"""Rules that stop a trial for good at a report: ASHA and median stopping."""

import math
import statistics
from abc import abstractmethod
from collections import defaultdict

from contrasweep.storage.record import LARGEST
from contrasweep.tuning.pruners.pruner import History, Pruner, at_least, first_from


class StoppingRule(Pruner):
    """Base class of rules that stop a trial for good, after a comparison with other trials of its fold.

    A subclass implements `should_continue`. `mode` is `max` or `min`: whether a larger or a smaller value is better.
    """

    def __init__(self, mode: str) -> None:
        self.sign = 1.0 if mode == "max" else -1.0
        self.folds: dict[str, int] = {}  # trial -> fold
        # trial -> step -> value, of which larger is better
        self.histories: dict[str, History] = defaultdict(dict)

    def add(self, trial: str, config: int, fold: int) -> None:
        """Note the fold of `trial`, because it is compared only with trials of its fold."""
        self.folds[trial] = fold

    def on_report(self, trial: str, step: int, value: float) -> bool:
        """Return whether `trial` goes on: what `should_continue` returns.

        The trial is compared with all other trials of its fold, also with those that have ended or were stopped. A
        value that is not finite, or beyond `LARGEST`, counts as the worst.
        """
        self.histories[trial][step] = self.sign * value if abs(value) <= LARGEST else -math.inf
        peers = {
            other: history
            for other, history in self.histories.items()
            if other != trial and self.folds.get(other) == self.folds.get(trial)
        }
        return bool(self.should_continue(self.histories[trial], step, peers))

    @abstractmethod
    def should_continue(self, values: History, step: int, peers: dict[str, History]) -> bool:
        """Return whether a trial goes on after its report at `step`.

        `values` are the trial's own values, step -> value, with the latest one. `peers` are those of the other trials
        of its fold, trial -> step -> value. In both larger is better, whatever the study's mode.
        """


class NoPruner(Pruner):
    """A rule that stops nothing."""

    def on_report(self, trial: str, step: int, value: float) -> bool:
        """Return True."""
        return True


class Asha(StoppingRule):
    """Asynchronous successive halving (Li et al. 2020), in its variant without pauses.

    The rungs are the steps min_step * reduction^k. At a rung a trial is compared with the trials of its fold that have
    reached it so far. It goes on if it is among the best 1/reduction of them. So the order of arrival counts, and the
    first `reduction` - 1 trials always go on. `budget`, the number of configurations, is not used.
    """

    def __init__(
        self, mode: str, budget: int | None, *, reduction: int = 3, min_step: int = 1
    ) -> None:
        # Every pruner is made with the budget; this one does not need it.
        super().__init__(mode)
        at_least("reduction", reduction, 2)
        at_least("min_step", min_step, 1)
        self.reduction = reduction
        self.min_step = min_step
        self.decisions: dict[tuple[str, int], bool] = {}  # trial and step -> whether it went on

    def on_report(self, trial: str, step: int, value: float) -> bool:
        """Return whether `trial` goes on. A second report of the same step gets the answer that the first one got.

        A trial that has lost its host trains some steps again. So each trial is judged once at a rung.
        """
        if (trial, step) not in self.decisions:
            self.decisions[trial, step] = super().on_report(trial, step, value)
        return self.decisions[trial, step]

    def should_continue(self, values: History, step: int, peers: dict[str, History]) -> bool:
        """Return False where the trial reaches a rung with this report, and is not among the best 1/reduction there.

        Of n trials at a rung the best n // reduction go on. With n below `reduction` none stops.
        """
        rung = self.min_step
        while rung <= step:
            at_or_past = [reported for reported in values if reported >= rung]
            # A trial is judged once at a rung: by its first report at or past it.
            if min(at_or_past) == step:
                peer_values = (first_from(history, rung) for history in peers.values())
                at_rung = [values[step], *(value for value in peer_values if value is not None)]
                at_rung.sort(reverse=True)
                kept = len(at_rung) // self.reduction
                # The worst of the trials that go on sets the bar.
                if kept and values[step] < at_rung[kept - 1]:
                    return False
            rung *= self.reduction
        return True


class Median(StoppingRule):
    """Median stopping (Golovin et al. 2017).

    A trial stops where its best value so far is below the median of the other trials' running means at that step. It
    does not stop before the step `grace_steps`, nor with fewer than `min_trials` other trials. `budget`, the number of
    configurations, is not used.
    """

    def __init__(
        self, mode: str, budget: int | None, *, grace_steps: int = 1, min_trials: int = 3
    ) -> None:
        super().__init__(mode)
        at_least("grace_steps", grace_steps, 0)
        at_least("min_trials", min_trials, 1)
        self.grace_steps = grace_steps
        self.min_trials = min_trials

    def should_continue(self, values: History, step: int, peers: dict[str, History]) -> bool:
        """Return whether the trial's best value so far reaches the median of the other trials' running means.

        A running mean is the mean of a trial's values up to `step`. Before `grace_steps`, and with fewer than
        `min_trials` such means, the answer is True.
        """
        # Only trials count that have reports both up to this step and from it on.
        means = [
            statistics.fmean(value for at, value in history.items() if at <= step)
            for history in peers.values()
            if max(history) >= step and min(history) <= step
        ]
        if step < self.grace_steps or len(means) < self.min_trials:
            return True
        return max(values.values()) >= statistics.median(means)
