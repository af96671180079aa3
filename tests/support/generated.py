"""Studies of random designs, with gaps, looks and extensions, made without training."""

import numpy as np
from looks import drive_looks

from contrasweep import AblationGrid, Arm, Replicates
from contrasweep.results.results import Results


class Generated:
    """A study of a random design, with random gaps, and what its trials come to."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.kind = ("fixed", "extended", "looks")[seed % 3]
        self.folds = [None, 3, 5][rng.integers(3)]
        self.mode = ["max", "min"][rng.integers(2)]
        self.sd = float(rng.choice([0.002, 0.02, 0.1]))
        self.effects = dict(zip("abcd", self.sd * rng.choice([0, 0, 1, 4], 4), strict=True))
        self.fold_sd, self.seed_sd = self.sd * rng.choice([0, 1, 3], 2)
        self.digits = int(rng.choice([2, 12]))  # of accuracies of few items many are equal
        self.lost = float(rng.choice([0, 0, 0.1, 0.3])) if seed % 4 else 0.0
        self.collapses = float(rng.choice([0, 0, 0.15]))
        self.stop = int(rng.integers(4, 30)) if rng.uniform() < 0.2 else 10**9
        self.replicates = None
        most = int(rng.integers(1, 5) if self.folds else rng.integers(5, 12))
        self.metric = ["score", "accuracy"][
            rng.integers(2)
        ]  # of an accuracy everybody knows the range
        if self.kind == "looks":
            first = 2 if self.folds else 4
            spending = ["obrien-fleming", "power"][rng.integers(2)]
            self.replicates = Replicates(first=first, step=first, most=3 * first, spending=spending)
        self.sizes = [most, most + int(rng.integers(1, 4)), 2 * most + 4][: rng.integers(2, 4)]
        self.sizes = self.sizes if self.kind == "extended" else self.sizes[:1]
        arms = int(rng.integers(2, 5))
        # Looks at few replicates can decide hardly anything of many arms.
        few = self.kind == "looks" and self.folds == 3
        self.fields = {
            "arms": {
                arm: Arm("toy:train", config={"epochs": 1}) for arm in "abcd"[: 2 if few else arms]
            },
            "axes": {"batch_size": [16, 32]} if rng.uniform() < 0.4 else {},
            "data": "digits-lt",
            "folds": self.folds,
            "metric": self.metric,
            "mode": self.mode,
            "alpha": float(rng.choice([0.05, 0.1])),
            "question": ["overall", "cells"][rng.integers(2) * (not few)],
            "reference": "a" if rng.uniform() < 0.3 else None,
            "smallest_difference": float(3 * self.sd) if rng.uniform() < 0.4 else None,
        }

    def study(self, size):
        seeds = {"replicates": self.replicates} if self.replicates else {"seeds": list(range(size))}
        return AblationGrid("generated", **self.fields, **seeds)

    def draw(self, *names):
        return np.random.default_rng(
            [sum(map(ord, str(name))) + 7919 * i for i, name in enumerate(names)]
        )

    def value(self, trial):
        rng = self.draw(trial.id)
        shared = self.draw("fold", trial.fold, trial.arm).normal(0, self.fold_sd)
        shared += self.draw("seed", trial.seed, trial.arm).normal(0, self.seed_sd)
        if trial.arm == "a" and self.draw("collapse", trial.seed).uniform() < self.collapses:
            return 0.1 if self.mode == "max" else 0.9
        return round(0.5 + self.effects[trial.arm] + shared + rng.normal(0, self.sd), self.digits)

    def run(self, storage):
        """The results as they were after each size: a look at every one of them."""
        for i, size in enumerate(self.sizes):
            last = i + 1 == len(self.sizes)
            failed = lambda trial: self.draw("lost", trial.id).uniform() < self.lost  # noqa: E731
            drive_looks(
                self.study(size), storage, self.value, metric=self.metric, extend=i > 0, failed=failed,
                stop_after=self.stop if last else 10**9,
            )  # fmt: skip
            yield Results.load("generated", str(storage))
