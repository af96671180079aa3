"""A searcher and a pruner."""

import itertools

from contrasweep.tuning.pruners import StoppingRule


class Halves:
    """A searcher: the middle of the range, then ever finer halves of it."""

    def __init__(self, problem, *, levels: int = 3):
        [(self.name, parameter)] = problem.space.items()
        points = itertools.chain.from_iterable(range(1, 2**k, 2) for k in range(1, levels + 1))
        depth = itertools.chain.from_iterable([2**k] * 2 ** (k - 1) for k in range(1, levels + 1))
        self.left = [{self.name: parameter.at(p / d)} for p, d in zip(points, depth, strict=True)]
        self.results = []

    def ask(self):  # the next configuration, or None: there is no other
        return self.left.pop(0) if self.left else None

    def tell(self, config, value, pruned_at=None):  # value: None where it failed
        self.results.append((value, config))

    def replay(self, config):  # it was asked for before an interruption
        self.left = [c for c in self.left if c != config]


class Floor(StoppingRule):
    """A pruner: ends a trial that is below a floor from a step on."""

    def __init__(self, mode, budget, *, least: float = 0.2, step: int = 1):
        super().__init__(mode)
        self.least = least
        self.step = step

    def should_continue(
        self, own, step, peers
    ):  # own: step -> value; larger is better in either mode
        return step < self.step or own[step] >= self.least
