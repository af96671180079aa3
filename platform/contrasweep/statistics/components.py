"""Variance components of paired differences: how much of their spread is the fold's, the seed's, the item's."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contrasweep.statistics.checks import Floats

SUBTRACTED = 0.7
"""A component is a difference of two mean squares, and with few folds Satterthwaite's degrees of freedom are too many
for it where it happens to come out near 0. So for the standard error only this share of the residual mean square is
subtracted. By simulation (40,000 draws each of 2 to 20 folds x 2 to 10 seeds, fold noise of 0 to 4 times the residual's
variance) false positives are at most .050 where seeds do not cross folds. Where they do, with as much variance as the
residual's, they are at most .055 from five seeds or up to five folds on, .08 at three seeds and .12 at two seeds on ten
folds and more, where one degree of freedom is all that speaks of it (Nadeau and Bengio's test: .35)."""


@dataclass(frozen=True)
class Components:
    """Variances of one paired difference: between folds, between seeds that cross folds or items, between test items,
    and of the rest."""

    fold: float = 0.0
    seed: float = 0.0
    residual: float = 0.0
    item: float = 0.0

    @property
    def total(self) -> float:
        """Variance of one replicate's difference."""
        return self.fold + self.seed + self.residual + self.item


@dataclass(frozen=True)
class FoldEstimate:
    """Components of differences over folds and seeds: `unbiased` but for estimates below 0, which are 0; `cautious` as
    the standard error takes them; and the degrees of freedom of the mean squares of seeds and residual."""

    unbiased: Components
    cautious: Components
    seed_degrees: int
    residual_degrees: int


def between_within(d: Floats, folds: Any, seeds: Any) -> FoldEstimate | None:
    """Components of `d` [n] by Henderson's method 3, for any pattern of missing replicates; None where no fold has two
    seeds, which leaves nothing to tell them apart by. `folds` and `seeds` [n] are codes from 0.

    For complete data these are the mean squares of the two-way analysis of variance, which are then computed directly.
    """
    k, m = int(folds.max()) + 1, int(seeds.max()) + 1
    if k > 1 and m > 1 and len(d) == k * m == len(set(zip(folds.tolist(), seeds.tolist(), strict=True))):
        grid = np.empty((k, m))
        grid[folds, seeds] = d
        return _complete(grid)
    one, f, s = np.ones((len(d), 1)), np.eye(folds.max() + 1)[folds], np.eye(seeds.max() + 1)[seeds]
    (rest, left_rest), (no_fold, without_fold), (no_seed, without_seed) = (
        _residual(d, np.hstack(parts)) for parts in ([one, f, s], [one, s], [one, f])
    )
    degrees = len(d) - left_rest
    if degrees < 1:
        return None
    residual = rest / degrees
    fold = _component(no_fold - rest, left_rest - without_fold, f, np.hstack([one, s]), residual)
    seed = _component(no_seed - rest, left_rest - without_seed, s, np.hstack([one, f]), residual)
    return FoldEstimate(
        Components(fold[0], seed[0], residual),
        Components(fold[1], seed[1], residual),
        left_rest - without_seed,
        degrees,
    )


def _complete(d: Floats) -> FoldEstimate:
    """Components of `d` [folds, seeds] without gaps."""
    k, m = d.shape
    by_fold, by_seed, degrees = d.mean(axis=1), d.mean(axis=0), (d.shape[0] - 1) * (d.shape[1] - 1)
    residual = float(((d - by_fold[:, None] - by_seed[None] + d.mean()) ** 2).sum()) / max(1, degrees)
    fold, seed = m * float(by_fold.var(ddof=1)), k * float(by_seed.var(ddof=1))
    unbiased, cautious = (
        Components(max(0.0, (fold - share * residual) / m), max(0.0, (seed - share * residual) / k), residual)
        for share in (1.0, SUBTRACTED)
    )
    return FoldEstimate(unbiased, cautious, m - 1, degrees)


def _residual(d: Floats, design: Any) -> tuple[float, int]:
    """The residual sum of squares of `d` on the columns of `design`, and their rank."""
    solution, _, rank, _ = np.linalg.lstsq(design, d, rcond=None)
    return float(((d - design @ solution) ** 2).sum()), int(rank)


def _component(gain: float, rank: int, effect: Any, others: Any, residual: float) -> tuple[float, float]:
    """A component, and its cautious estimate, from the sum of squares `gain` that its columns add to the others'."""
    if rank < 1:
        return 0.0, 0.0
    projected = effect - others @ np.linalg.lstsq(others, effect, rcond=None)[0]
    expected = float((projected**2).sum())
    noise = rank * residual
    return max(0.0, (gain - noise) / expected), max(0.0, (gain - SUBTRACTED * noise) / expected)


@dataclass(frozen=True)
class CrossedEstimate:
    """Components of differences of seeds crossed with items, the variance of their mean and its degrees of freedom."""

    components: Components
    variance: float
    degrees: float


def crossed(d: Floats) -> CrossedEstimate:
    """Components of `d` [seeds, items] by the two-way analysis of variance, for two or more of both.

    The variance of the mean is `(MS_item + MS_seed - MS_residual) / (m n)`, never below what either alone gives; its
    degrees of freedom are Satterthwaite's.
    """
    m, n = d.shape
    mean, by_seed, by_item = d.mean(), d.mean(axis=1), d.mean(axis=0)
    seed, item = n * float(by_seed.var(ddof=1)), m * float(by_item.var(ddof=1))
    rest = float(((d - by_seed[:, None] - by_item[None] + mean) ** 2).sum()) / ((m - 1) * (n - 1))
    variance = max(seed + item - rest, seed, item) / (m * n)
    spread = ((seed / (m * n)) ** 2 / (m - 1)) + ((item / (m * n)) ** 2 / (n - 1))
    components = Components(0.0, max(0.0, (seed - rest) / n), rest, max(0.0, (item - rest) / m))
    return CrossedEstimate(components, variance, variance**2 / spread if spread > 0 else m - 1.0)
