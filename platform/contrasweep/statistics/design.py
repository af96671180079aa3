"""The model from which every number of a table is derived: designs, variance components, and what one comparison says.

Two arms are compared by paired differences `d[f, s]` of fold f (of k folds in r repeats of the partition) and seed s:

    d[f, s] = delta + fold[f] + seed[s] + residual[f, s]

- Folds share training rows: the variance of their mean is `fold^2 (1 / (k r) + test rows / training rows)` (Nadeau and
  Bengio 2003; Bouckaert and Frank 2004 for repeats). Seeds and the residual average out: `seed^2 / m`,
  `residual^2 / (k r m)`. With one seed all of the spread counts as the fold's, which is their test.
- With one seed that all folds may share (`SeedPart`), `seed^2` is added as an earlier study showed it. Where none did,
  it is unknown, and so is the standard error: infinite.
- One split, seeds only: replicates are independent, and what they say holds for this split.
- One split, and a score of every test item: seeds and items are crossed, and what they say holds for new items.

`Components` are the variances of a paired difference, `Design` is what was or will be run, a `Contrast` is what one
comparison's differences say under it.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from contrasweep.statistics.checks import Floats
from contrasweep.statistics.resampling import constant, sign_flip_interval, sign_flip_p, smallest_p

SUBTRACTED = 0.7
"""A component is a difference of two mean squares, and with few folds Satterthwaite's degrees of freedom are too many
for it where it happens to come out near 0. So for the standard error only this share of the residual mean square is
subtracted. By simulation (40,000 draws each of 2 to 20 folds x 2 to 10 seeds, fold noise of 0 to 4 times the residual's
variance) false positives are at most .050 where seeds do not cross folds. Where they do, with as much variance as the
residual's, they are at most .055 from five seeds or up to five folds on, .08 at three seeds and .12 at two seeds on ten
folds and more, where one degree of freedom is all that speaks of it (Nadeau and Bengio's test: .35)."""


@dataclass(frozen=True)
class Components:
    """The variances of one paired difference.

    `fold` is between folds, `seed` between seeds that cross folds or items, `item` between test items, and `residual`
    of the rest.
    """

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
    """Variance components of differences over folds and seeds.

    `unbiased` components are unbiased but for estimates below 0, which are 0; `cautious` ones are those of the standard
    error. `seed_degrees` and `residual_degrees` are the degrees of freedom of these mean squares.
    """

    unbiased: Components
    cautious: Components
    seed_degrees: int
    residual_degrees: int


def between_within(d: Floats, folds: Any, seeds: Any) -> FoldEstimate | None:
    """Estimate the components of differences over folds and seeds, for any pattern of missing replicates.

    By Henderson's method 3; for complete data these are the mean squares of the two-way analysis of variance, which are
    then computed directly. `folds` and `seeds` [n] are codes of the differences `d` [n]. None where no fold has
    two seeds, which leaves nothing to tell the components apart by.
    """
    folds, seeds = (np.unique(codes, return_inverse=True)[1] for codes in (folds, seeds))
    counts = np.zeros((folds.max() + 1, seeds.max() + 1))
    np.add.at(counts, (folds, seeds), 1)
    n = len(d)
    k, m = counts.shape
    if min(k, m) > 1 and (counts == 1).all():
        grid = np.empty((k, m))
        grid[folds, seeds] = d
        return _complete(grid)
    # With gaps: each difference less the mean of its fold, and less that of its seed.
    in_fold = counts.sum(axis=1)
    in_seed = counts.sum(axis=0)
    around_folds = d - (np.bincount(folds, d) / in_fold)[folds]
    around_seeds = d - (np.bincount(seeds, d) / in_seed)[seeds]
    # What folds explain beside seeds: their columns and the differences, both less the means of their seeds.
    columns = np.eye(k)[folds] - (counts / in_seed)[:, seeds].T
    solution, _, rank, _ = np.linalg.lstsq(columns, around_seeds, rcond=None)
    rest = float(((around_seeds - columns @ solution) ** 2).sum())
    degrees = n - m - int(rank)
    if degrees < 1:
        return None
    residual = rest / degrees
    seed_degrees = m + int(rank) - k  # the rank of both together, less that of the folds
    # What the folds' columns add to those of the seeds, and what the seeds' add to those of the folds.
    fold, cautious_fold = _component(
        float((around_seeds**2).sum()) - rest,
        int(rank),
        n - float((counts**2 / in_seed).sum()),
        residual,
    )
    seed, cautious_seed = _component(
        float((around_folds**2).sum()) - rest,
        seed_degrees,
        n - float((counts**2 / in_fold[:, None]).sum()),
        residual,
    )
    return FoldEstimate(
        Components(fold, seed, residual),
        Components(cautious_fold, cautious_seed, residual),
        seed_degrees,
        degrees,
    )


def _complete(d: Floats) -> FoldEstimate:
    """Return the components of `d` [folds, seeds] without gaps, from the mean squares of folds, seeds and the rest."""
    k, m = d.shape
    by_fold = d.mean(axis=1)
    by_seed = d.mean(axis=0)
    degrees = (k - 1) * (m - 1)
    residual = float(((d - by_fold[:, None] - by_seed[None] + d.mean()) ** 2).sum()) / max(
        1, degrees
    )
    # The mean squares of folds and of seeds.
    fold = m * float(by_fold.var(ddof=1))
    seed = k * float(by_seed.var(ddof=1))
    # A component is its mean square less the residual one; the cautious estimate subtracts only a part of that.
    unbiased, cautious = (
        Components(
            max(0.0, (fold - share * residual) / m),
            max(0.0, (seed - share * residual) / k),
            residual,
        )
        for share in (1.0, SUBTRACTED)
    )
    return FoldEstimate(unbiased, cautious, m - 1, degrees)


def _component(gain: float, degrees: int, expected: float, residual: float) -> tuple[float, float]:
    """Return a variance component, and its cautious estimate; both 0 where nothing tells of it.

    `gain` is the sum of squares that the component's columns explain beside those of the others, with so many `degrees`
    of freedom. `expected` is how much a component of 1 adds to it, `residual` the mean square of the rest.
    """
    if degrees < 1:
        return 0.0, 0.0
    noise = degrees * residual
    return max(0.0, (gain - noise) / expected), max(0.0, (gain - SUBTRACTED * noise) / expected)


@dataclass(frozen=True)
class CrossedEstimate:
    """Components of differences of seeds crossed with items, the variance of their mean and its degrees of freedom."""

    components: Components
    variance: float
    degrees: float


def crossed(d: Floats) -> CrossedEstimate:
    """Estimate the components of differences `d` [seeds, items], of two or more of both.

    By the two-way analysis of variance. The variance of the mean is `(MS_item + MS_seed - MS_residual) / (m n)`, never
    below what either alone gives; its degrees of freedom are Satterthwaite's.
    """
    m, n = d.shape
    mean = d.mean()
    by_seed = d.mean(axis=1)
    by_item = d.mean(axis=0)
    # Mean squares of seeds, of items and of the rest.
    seed = n * float(by_seed.var(ddof=1))
    item = m * float(by_item.var(ddof=1))
    rest = float(((d - by_seed[:, None] - by_item[None] + mean) ** 2).sum()) / ((m - 1) * (n - 1))
    variance = max(seed + item - rest, seed, item) / (m * n)
    spread = ((seed / (m * n)) ** 2 / (m - 1)) + ((item / (m * n)) ** 2 / (n - 1))
    components = Components(0.0, max(0.0, (seed - rest) / n), rest, max(0.0, (item - rest) / m))
    return CrossedEstimate(components, variance, variance**2 / spread if spread > 0 else m - 1.0)


Scope = Literal[
    "on this split",
    "on new items like these",
    "for new training sets of this size",
    "for further tasks like these",
]
THIS_SPLIT: Scope = "on this split"
NEW_ITEMS: Scope = "on new items like these"
NEW_TRAINING_SETS: Scope = "for new training sets of this size"
MANY = 100
SCOPES: dict[str, Scope] = {
    "item": NEW_ITEMS,
    "group": NEW_ITEMS,
    "task": "for further tasks like these",
}
"""By what an independent replicate is, what its verdicts hold for; of seeds and runs, for this split."""

Test = Literal[
    "sign-flip test",
    "t-test",
    "corrected t-test",
    "permutation test",
    "Welch's t-test",
    "McNemar's exact test",
]
SIGN_FLIP: Test = "sign-flip test"
PERMUTATION: Test = "permutation test"
WELCH: Test = "Welch's t-test"
MCNEMAR: Test = "McNemar's exact test"


@dataclass(frozen=True)
class SeedPart:
    """What is known of the variance between seeds where all folds have one seed, whose draws they may share.

    `variance` is that of the mean difference over folds, from one seed to another, with its `degrees` of freedom: it is
    infinite where it is unknown, and 0 where each fold draws anew. `study` is the earlier study that showed it.
    """

    variance: float = math.inf
    degrees: float = 0.0
    study: str = ""


@dataclass(frozen=True)
class Design:
    """How often a cell is replicated: `seeds` on each of `folds` in `repeats` partitions, or on one split (no `folds`).

    `items` counts the test items of one split that have a score each (or their groups, where these are named).
    `seed_part` is used where folds have one seed (None: it is left out, and a note says so). `unit` is what an
    independent replicate is without folds: a seed, a run without a partner, an item, a group of items or a task, which
    `seeds` then counts.
    """

    folds: int | None = None
    repeats: int = 1
    seeds: int = 1
    items: int | None = None
    seed_part: SeedPart | None = None
    unit: Literal["seed", "run", "item", "group", "task"] = "seed"

    @property
    def units(self) -> int:
        """Independent or nearly independent replicates: folds of all repeats, or seeds."""
        return self.folds * self.repeats if self.folds else self.seeds

    @property
    def overlap(self) -> float:
        """Nadeau and Bengio's term for folds that share training rows: test rows by training rows; 0 without folds."""
        return 1 / (self.folds - 1) if self.folds else 0.0

    @property
    def scope(self) -> Scope:
        """What verdicts of this design hold for, as words such as `on this split`."""
        if self.folds:
            return NEW_TRAINING_SETS
        return NEW_ITEMS if self.items else SCOPES.get(self.unit, THIS_SPLIT)

    def variance(self, components: Components) -> float:
        """Variance of the mean paired difference of this design, for noise of these components."""
        # Each source of noise by how often it is drawn anew; the module's docstring has the formulas.
        if self.folds:
            units = self.units
            return (
                components.fold * (1 / units + self.overlap)
                + components.seed / self.seeds
                + components.residual / (units * self.seeds)
            )
        if self.items:
            return (
                components.item / self.items
                + components.seed / self.seeds
                + components.residual / (self.items * self.seeds)
            )
        return (components.fold + components.seed + components.residual) / self.seeds

    def degrees(self, components: Components) -> float:
        """Degrees of freedom of the estimate of that variance, by Satterthwaite; over folds at most folds - 1."""
        if self.folds:
            # Each term of the variance with its degrees of freedom. With one seed all of the spread is the folds', and
            # what an earlier study says of seeds limits them.
            units = self.units
            m = self.seeds
            parts = [
                (components.fold * (1 / units + self.overlap), units - 1),
                (components.seed / m, m - 1),
                (components.residual / (units * m), (units - 1) * (m - 1)),
            ]
            if m == 1:
                if components.seed and self.seed_part:
                    return min(units - 1.0, self.seed_part.degrees)
                return units - 1.0
            return min(units - 1.0, satterthwaite(parts))
        if self.items:
            return satterthwaite(
                [
                    (components.item / self.items, self.items - 1),
                    (components.seed / self.seeds, self.seeds - 1),
                ]
            )
        return self.seeds - 1.0

    def test(self, level: float) -> Test:
        """The test that judges a comparison at `level`, which is alpha over the size of the family.

        Independent replicates are judged by the exact sign-flip test if it can reach that level, else by a t-test,
        which takes differences as normal. Of many, whose mean is about normal, the t-test is enough.
        """
        if self.folds:
            return "corrected t-test"
        few = not self.items and self.seeds <= MANY
        return SIGN_FLIP if few and smallest_p(self.seeds) <= level else "t-test"


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of independent variances, given as (variance, degrees).

    They are the squared sum over the sum of variance^2 / degrees (Satterthwaite 1946).
    """
    total = sum(part for part, _ in parts)
    spread = sum(part**2 / degrees for part, degrees in parts if part > 0 and degrees > 0)
    return total**2 / spread if spread > 0 else max([degrees for _, degrees in parts], default=0.0)


@dataclass(frozen=True)
class Contrast:
    """What the paired differences of one comparison say under their design.

    `difference` is in units of the metric (a - b), `standard_error` and `degrees` are those of its t statistic,
    `components` the variances that they come from, `values` the differences of the independent replicates (means of the
    seeds of a fold, or the seeds themselves), which the sign-flip test takes.
    """

    difference: float
    standard_error: float
    degrees: float
    components: Components
    design: Design
    values: tuple[float, ...] = field(repr=False)

    @property
    def n(self) -> int:
        """The number of independent replicates: folds (of all repeats), or seeds."""
        return len(self.values)

    @property
    def scope(self) -> Scope:
        """What a verdict of this contrast holds for, as words such as `on this split`."""
        return self.design.scope

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of `values`, in units of the metric; 0 for one replicate."""
        return float(np.std(self.values, ddof=1)) if self.n > 1 else 0.0

    @property
    def seed_unknown(self) -> bool:
        """Whether all folds have one seed, and nothing tells what another would change."""
        return math.isinf(self.standard_error)

    @property
    def of_this_seed(self) -> "Contrast":
        """The same contrast if only the present seeds were of interest: the variance between seeds is left out."""
        error = math.sqrt(1 / self.n + self.design.overlap) * self.deviation
        return replace(self, standard_error=error, degrees=self.n - 1.0)

    def test(self, level: float = 0.05) -> Test:
        """The test used at `level`; the exact one where all differences are equal, which no t-test can judge."""
        return SIGN_FLIP if self.n > 1 and self.standard_error == 0 else self.design.test(level)

    def p_value(self, level: float = 0.05) -> float:
        """Return the two-sided p value of no difference, by the test used at `level`; 1 for a single replicate."""
        return min(1.0, 2 * min(self.p_below(0.0, level), self.p_above(0.0, level)))

    def p_above(self, bound: float, level: float = 0.05) -> float:
        """One-sided p of "the true difference is at most `bound`": small where it is larger."""
        return self._one_sided(self.difference - bound, level, np.asarray(self.values) - bound)

    def p_below(self, bound: float, level: float = 0.05) -> float:
        """One-sided p of "the true difference is at least `bound`": small where it is smaller."""
        return self._one_sided(bound - self.difference, level, bound - np.asarray(self.values))

    def equivalence_p(self, margin: float, level: float = 0.05) -> float:
        """P-value of "the arms differ by `margin` or more": the larger of two one-sided tests (Schuirmann 1987)."""
        return max(self.p_above(-margin, level), self.p_below(margin, level))

    def interval(self, alpha: float = 0.05, level: float | None = None) -> tuple[float, float]:
        """1 - alpha interval of the difference, infinite for one replicate.

        It inverts the test used at `level` (default: alpha), so that p and interval never disagree. An alpha that is so
        small that the sign-flip test rejects nothing at it has a t interval, since the test's would have no end.
        """
        if self.n < 2:
            return -math.inf, math.inf
        if self.standard_error == 0:
            return self.difference, self.difference
        # The sign-flip test has a finite interval only where it can reject at alpha.
        if (
            self.test(alpha if level is None else level) == SIGN_FLIP
            and smallest_p(self.n) <= alpha
        ):
            return sign_flip_interval(self.values, alpha)
        half = -float(special.stdtrit(self.degrees, alpha / 2)) * self.standard_error
        return self.difference - half, self.difference + half

    def _one_sided(self, distance: float, level: float, shifted: Any) -> float:
        """Return the one-sided p of a difference that lies `distance` beyond a bound.

        `shifted` are the values less the bound.
        """
        if self.n < 2:
            return 1.0
        if self.test(level) == SIGN_FLIP:
            # On the other side of the bound the one-sided p is above a half.
            two_sided = sign_flip_p(shifted)
            return two_sided / 2 if distance > 0 else 1 - two_sided / 2
        return float(special.stdtr(self.degrees, -distance / self.standard_error))


def contrast(
    differences: ArrayLike,
    *,
    folds: Sequence[Any] | None = None,
    seeds: Sequence[Any] | None = None,
    design: Design | None = None,
    weights: ArrayLike | None = None,
) -> Contrast:
    """Return what `differences` [n] of paired replicates say.

    Replicate i is of the fold `folds[i]` (named with its repeat) and seed `seeds[i]`. `design` says how many folds a
    partition has and whether they share training rows; without it, and without `folds`, replicates are independent
    seeds on one split. `weights` [n] make the estimate a weighted mean (folds of unequal size). Replicates may be
    missing: means are over folds, seeds of a fold averaged, and components are estimated from what there is
    (Henderson's method 3).
    """
    d = np.asarray(differences, dtype=np.float64)
    # Stretched by their weights, so that the plain mean of the differences is the weighted one.
    if weights is not None:
        w = np.asarray(weights, dtype=np.float64)
        mean = float(np.average(d, weights=w))
        d = mean + (d - mean) * w / w.mean()
    # Independent replicates on one split.
    if folds is None:
        planned = design or Design()
        n = len(d)
        variance = 0.0 if constant(d) else float(np.var(d, ddof=1))
        design = Design(None, 1, n, planned.items, unit=planned.unit)
        components = Components(residual=variance)
        return Contrast(
            float(d.mean()),
            math.sqrt(variance / n),
            n - 1.0,
            components,
            design,
            tuple(map(float, d)),
        )
    # Folds: the design that was run, as far as replicates are there, in place of the planned one.
    codes = codes_of(folds)
    means = np.bincount(codes, d) / np.bincount(codes)
    planned = design or Design(folds=len(means))
    seed_codes = codes_of([0] * len(d) if seeds is None else seeds)
    per_fold = len(d) / len(means)
    design = Design(
        planned.folds,
        max(1, round(len(means) / (planned.folds or len(means)))),
        max(1, round(per_fold)),
        None,
        planned.seed_part,
    )
    return _over_folds(d, codes, seed_codes, means, design)


def codes_of(values: Iterable[Hashable]) -> Any:
    """Return a code from 0 for each distinct value, in order of first appearance."""
    code_of: dict[Hashable, int] = {}
    return np.array([code_of.setdefault(value, len(code_of)) for value in values], dtype=np.intp)


def _over_folds(d: Floats, folds: Any, seeds: Any, means: Floats, design: Design) -> Contrast:
    """Return the contrast over folds, with a standard error of the components of fold, seed and rest.

    `folds` and `seeds` [n] are codes of the differences `d` [n], `means` those of each fold over its seeds.
    """
    units = len(means)
    mean = float(means.mean())
    scale = 1 / units + design.overlap  # Nadeau and Bengio's, of the folds' variance
    values = tuple(map(float, means))
    spread = 0.0 if units < 2 or constant(means) else float(means.var(ddof=1))
    estimate = between_within(d, folds, seeds)
    # One seed on all folds, of which an earlier study, or nothing, tells what another would change.
    if estimate is None and design.seed_part is not None:
        return _one_seed(mean, spread, scale, design.seed_part, design, values)
    # Nothing tells seeds from the rest: all of the spread counts as the folds'.
    if estimate is None or spread == 0:
        return Contrast(
            mean, math.sqrt(scale * spread), units - 1.0, Components(fold=spread), design, values
        )
    # Weight of each replicate in the mean over folds; squared sums say how often each source of noise is drawn.
    weights = 1 / (units * np.bincount(folds))[folds]
    w_seed = float((np.bincount(seeds, weights) ** 2).sum())
    w_rest = float((weights**2).sum())
    cautious = estimate.cautious
    variances = [
        (scale * cautious.fold, units - 1.0),
        (w_seed * cautious.seed, float(estimate.seed_degrees)),
        (w_rest * cautious.residual, float(estimate.residual_degrees)),
    ]
    error = math.sqrt(sum(part for part, _ in variances))
    return Contrast(
        mean, error, min(units - 1.0, satterthwaite(variances)), estimate.unbiased, design, values
    )


def _one_seed(
    mean: float,
    spread: float,
    scale: float,
    seed: SeedPart,
    design: Design,
    values: tuple[float, ...],
) -> Contrast:
    """Return the contrast of folds with one seed, whose part of the variance of the `mean` is `seed`.

    `spread` is the variance between the folds' `values`, `scale` what of it is in the variance of their mean.
    """
    error = math.sqrt(scale * spread + seed.variance)
    degrees = len(values) - 1.0
    if math.isinf(error):
        return Contrast(mean, error, degrees, Components(fold=spread), design, values)
    # Satterthwaite's are too many for few seeds
    degrees = min(degrees, seed.degrees) if seed.variance else degrees
    return Contrast(
        mean, error, degrees, Components(fold=spread, seed=seed.variance), design, values
    )


def contrast_over_items(differences: ArrayLike, weights: ArrayLike | None = None) -> Contrast:
    """Return what `differences` [seeds, items] of the scores of test items say of new items, by networks of new seeds.

    A column may stand for a group of items; `weights` [items] are then the sizes of the groups. Seeds and items are
    crossed: `seed^2 / m + item^2 / n + residual^2 / (m n)`, by the analysis of variance.
    """
    d = np.asarray(differences, dtype=np.float64)
    seeds, items = d.shape
    w = np.ones(items) if weights is None else np.asarray(weights, dtype=np.float64)
    by_seed = np.average(d, axis=1, weights=w)
    mean = float(by_seed.mean())
    design = Design(None, 1, seeds, items)
    if seeds < 2 or items < 2:
        return Contrast(mean, 0.0, 0.0, Components(), design, (mean,))
    # Stretched by their sizes, so that the plain mean over groups is the mean over items.
    estimate = crossed(mean + (d - mean) * w / w.mean())
    return Contrast(
        mean,
        math.sqrt(estimate.variance),
        estimate.degrees,
        estimate.components,
        design,
        tuple(map(float, by_seed)),
    )
