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

from contrasweep.statistics.checks import Floats, floats
from contrasweep.statistics.resampling import (
    TIE,
    constant,
    sign_flip_interval,
    sign_flip_p,
    smallest_p,
)

SUBTRACTED = 0.7
"""For the standard error only this share of the residual mean square is subtracted from that of folds or seeds.

A variance component is the difference of two mean squares. With few folds Satterthwaite's degrees of freedom are too
many for a component that happens to come out near 0. By simulation (40,000 draws each of 2 to 20 folds x 2 to 10 seeds,
fold noise of 0 to 4 times the residual's variance) false positives are at most .050 where seeds do not cross folds.
Where seeds cross folds, with as much variance as the residual's, false positives are at most .055 with five seeds or
more, or with up to five folds. With ten folds or more they are .08 at three seeds and .12 at two seeds, where the
variance of seeds has one degree of freedom (Nadeau and Bengio's test: .35)."""

FEW_SEEDS = 3
"""Up to so many seeds that are crossed with items, Satterthwaite's degrees of freedom are far too many. By simulation
(two to eight seeds x 20 to 2,000 items) false positives were .11 and .08 with two and three seeds that differ by more
than the residual. With at most m - 1 degrees of freedom for m seeds they are .09 and .05. Four seeds or more have .07
at most without that."""


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
    """The variance components of paired differences over folds and seeds, estimated in two ways.

    `unbiased` has the usual estimates, which are unbiased but for one thing: one below 0 is set to 0. `cautious` has
    estimates that are larger, for use in the standard error. `seed_degrees` and `residual_degrees` are the degrees of
    freedom of the mean squares of seeds and of the residual.
    """

    unbiased: Components
    cautious: Components
    seed_degrees: int
    residual_degrees: int


def between_within(d: Floats, folds: Any, seeds: Any) -> FoldEstimate | None:
    """Return the variance components of differences over folds and seeds; any replicates may be missing.

    They are estimated by Henderson's method 3, which for complete data is the two-way analysis of variance. `folds` and
    `seeds` [n] are codes of the differences `d` [n]. None where no degree of freedom is left for the residual, for
    example where each fold has one seed.
    """
    # The codes counted from 0 without gaps, and how many differences each fold has of each seed, [k folds, m seeds].
    _, folds = np.unique(folds, return_inverse=True)
    _, seeds = np.unique(seeds, return_inverse=True)
    counts = np.zeros((folds.max() + 1, seeds.max() + 1))
    np.add.at(counts, (folds, seeds), 1)
    n = len(d)
    k, m = counts.shape
    # Each difference less the mean of its fold, and each less the mean of its seed.
    in_fold = counts.sum(axis=1)
    in_seed = counts.sum(axis=0)
    around_folds = d - (np.bincount(folds, d) / in_fold)[folds]
    around_seeds = d - (np.bincount(seeds, d) / in_seed)[seeds]
    # The residual: what folds and seeds together leave of the differences. The effects of folds beside those of seeds
    # are fitted by least squares. A column of the incidence of folds [n, k] is 1 in the differences of its fold; like
    # the differences, it is taken less its mean in each seed.
    incidence_less_seed_means = np.eye(k)[folds] - (counts / in_seed)[:, seeds].T
    effects, _, rank, _ = np.linalg.lstsq(incidence_less_seed_means, around_seeds, rcond=None)
    residuals = around_seeds - incidence_less_seed_means @ effects
    sum_of_squares = float((residuals**2).sum())
    residual_degrees = n - m - int(rank)
    if residual_degrees < 1:
        return None
    residual = sum_of_squares / residual_degrees
    seed_degrees = m + int(rank) - k  # the rank of both together, less the rank of the folds
    # The component of folds by what they explain beside seeds, and that of seeds by what they explain beside folds.
    fold, cautious_fold = _component(
        gain=float((around_seeds**2).sum()) - sum_of_squares,
        degrees=int(rank),
        per_unit=n - float((counts**2 / in_seed).sum()),
        residual=residual,
    )
    seed, cautious_seed = _component(
        gain=float((around_folds**2).sum()) - sum_of_squares,
        degrees=seed_degrees,
        per_unit=n - float((counts**2 / in_fold[:, None]).sum()),
        residual=residual,
    )
    return FoldEstimate(
        Components(fold, seed, residual),
        Components(cautious_fold, cautious_seed, residual),
        seed_degrees,
        residual_degrees,
    )


def _component(gain: float, degrees: int, per_unit: float, residual: float) -> tuple[float, float]:
    """Return the variance component of folds (or of seeds), first the unbiased estimate, then the cautious one.

    `gain` is the sum of squares that folds explain beyond what seeds explain (or the reverse), with `degrees` degrees
    of freedom. `per_unit` is how much a variance component of 1 would add to `gain`, and `residual` the mean square of
    the residual. The residual's part in `gain` is subtracted in full, and for the cautious estimate only the share
    `SUBTRACTED` of it.
    """
    noise = degrees * residual
    return max(0.0, (gain - noise) / per_unit), max(0.0, (gain - SUBTRACTED * noise) / per_unit)


def weighted_mean(weights: Floats) -> tuple[Floats, Floats, float]:
    """Return shares [n], factors [n] and degrees of freedom for the mean of n >= 2 values with these `weights` [n].

    Shares are the weights over their sum. The squared distances of the values from their weighted mean, times the
    factors, sum to an estimate of the variance of this mean. The estimate has the returned degrees of freedom. The
    values must be independent.

    The estimate is that of Bell and McCaffrey (2002), which also holds where few large groups make most of the mean.
    With equal weights the factors are 1 / (n (n - 1)), and the degrees n - 1.
    """
    shares = weights / weights.sum()
    factors = shares**2 / (1 - shares)
    # Satterthwaite's degrees for values whose variance is inverse to their weight.
    spread = (factors**2 * (1 - 2 * shares) / shares**2).sum() + factors.sum() ** 2
    return shares, factors, float(1 / spread)


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
"""The t-test judges more replicates than this on one split, as their mean is about normal."""
SCOPES: dict[str, Scope] = {
    "item": NEW_ITEMS,
    "group": NEW_ITEMS,
    "task": "for further tasks like these",
}
"""Unit of replicates that are no trainings -> what a verdict over them holds for."""

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
    """What is known of the variance between seeds in a study where all folds have one seed, whose draws they may share.

    `variance` is the variance between seeds of the mean difference over folds, estimated by an earlier study with
    `degrees` degrees of freedom. It is infinite where no study has told it, and 0 where each fold draws random numbers
    of its own. `study` is the name of that earlier study, or "".
    """

    variance: float = math.inf
    degrees: float = 0.0
    study: str = ""


@dataclass(frozen=True)
class Design:
    """How often each cell of a table is replicated, over folds and seeds or over seeds on one split.

    Attributes:
        folds: The number of folds of a partition of the data; None for one split.
        repeats: How many times the data are partitioned.
        seeds: The number of seeds on each fold, or of replicates on one split, which `unit` names.
        items: How many test items (or named groups of them) of one split have a score each; None where scores of items
            are not used.
        seed_part: What is known of the variance between seeds, where each fold has one seed. None: it is left out, and
            a note says so.
        unit: What `seeds` counts on one split: seeds, runs without a partner, items, groups of items, or tasks.
        searched: How many of the folds a sweep has used for its search, so that they have no replicates.
    """

    folds: int | None = None
    repeats: int = 1
    seeds: int = 1
    items: int | None = None
    seed_part: SeedPart | None = None
    unit: Literal["seed", "run", "item", "group", "task"] = "seed"
    searched: int = 0

    @property
    def replicates(self) -> int:
        """The number of replicates that are independent, or nearly so: folds of all repeats, or seeds."""
        return self.folds * self.repeats - self.searched if self.folds else self.seeds

    @property
    def counts_trainings(self) -> bool:
        """Whether `seeds` counts trainings, which may collapse or be copies of each other, and not items or tasks."""
        return self.unit not in SCOPES

    @property
    def overlap(self) -> float:
        """Nadeau and Bengio's term for folds that share training rows: test rows / training rows; 0 without folds."""
        return 1 / (self.folds - 1) if self.folds else 0.0

    @property
    def scope(self) -> Scope:
        """What verdicts of this design hold for, as words such as `on this split`."""
        if self.folds:
            return NEW_TRAINING_SETS
        return NEW_ITEMS if self.items else SCOPES.get(self.unit, THIS_SPLIT)

    def variance(self, components: Components) -> float:
        """Return the variance of the mean paired difference of this design.

        `components` are the variances of one paired difference, by their source.
        """
        # Each source of noise is divided by how often it is drawn anew; the module's docstring has the formulas.
        if self.folds:
            folds = self.replicates
            return (
                components.fold * (1 / folds + self.overlap)
                + components.seed / self.seeds
                + components.residual / (folds * self.seeds)
            )
        if self.items:
            return (
                components.item / self.items
                + components.seed / self.seeds
                + components.residual / (self.items * self.seeds)
            )
        return (components.fold + components.seed + components.residual) / self.seeds

    def degrees(self, components: Components) -> float:
        """Return the degrees of freedom of the estimate of this design's `variance`, by Satterthwaite's formula.

        `components` are the variances of one paired difference. Over folds the degrees are at most the number of folds,
        of all repeats, less 1.
        """
        if self.folds:
            folds = self.replicates
            most = folds - 1.0
            m = self.seeds
            # With one seed all of the spread counts as that of folds. The variance between seeds, if there is a part of
            # it, was estimated by an earlier study, with the degrees of freedom of that study.
            if m == 1 and components.seed and self.seed_part:
                return min(most, self.seed_part.degrees)
            if m == 1:
                return most
            # Each term of the variance with its degrees of freedom.
            parts = [
                (components.fold * (1 / folds + self.overlap), folds - 1),
                (components.seed / m, m - 1),
                (components.residual / (folds * m), (folds - 1) * (m - 1)),
            ]
            return min(most, satterthwaite(parts))
        if self.items:
            # The residual has no term: in `contrast_over_items` it is a part of the terms of seeds and of items.
            return satterthwaite(
                [
                    (components.item / self.items, self.items - 1),
                    (components.seed / self.seeds, self.seeds - 1),
                ]
            )
        return self.seeds - 1.0

    def test(self, level: float) -> Test:
        """Return the test that judges a comparison at `level`, which is alpha over the size of the family.

        Folds are judged by Nadeau and Bengio's corrected t-test. Up to `MANY` independent replicates are judged by the
        exact sign-flip test if it can reach `level`. All else is judged by a t-test, which takes differences as normal.
        """
        if self.folds:
            return "corrected t-test"
        few = not self.items and self.seeds <= MANY
        return SIGN_FLIP if few and smallest_p(self.seeds) <= level else "t-test"

    def exact_test_missed(self, alpha: float, level: float) -> str:
        """Return a sentence that says why the exact sign-flip test is not used, although seeds, items or tasks are few.

        The reason is that its smallest possible p is above `level`, which is `alpha` over the number of comparisons. ""
        where the test can reach `level`, and for folds or scores of items, which this test never judges.
        """
        least = smallest_p(self.seeds)
        if self.folds or self.items or least <= level:
            return ""
        # The level is alpha over the number of comparisons that share it.
        divisor = round(alpha / level)
        share = f"alpha / {divisor} = {level:.2g}" if divisor > 1 else f"alpha = {level:.2g}"
        return (
            f"with {self.seeds} {self.unit}s the exact sign-flip test reaches no p below {least:.2g}, above {share}: "
            "the t-test decides, which takes differences as normal"
        )


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of independent variances, given as (variance, degrees).

    They are the squared sum over the sum of variance^2 / degrees (Satterthwaite 1946). Where all variances are 0, they
    are the most degrees of any.
    """
    total = sum(part for part, _ in parts)
    spread = sum(part**2 / degrees for part, degrees in parts if part > 0 and degrees > 0)
    return total**2 / spread if spread > 0 else max([degrees for _, degrees in parts], default=0.0)


@dataclass(frozen=True)
class Contrast:
    """What the paired differences of one comparison say under their design.

    `difference` is the estimate of a - b, in units of the metric. `standard_error` and `degrees` (of freedom) are those
    of its t statistic. `components` are the variances that the standard error is computed from.

    `values` has the difference of each independent replicate, which the sign-flip test takes: for each fold the mean
    over its seeds, or on one split the difference of each seed. `weights` are the weights of these values in the mean,
    1 on average; the number 1.0 where all are equal.
    """

    difference: float
    standard_error: float
    degrees: float
    components: Components
    design: Design
    values: tuple[float, ...] = field(repr=False)
    weights: tuple[float, ...] | float = field(default=1.0, repr=False)

    @property
    def n(self) -> int:
        """The number of independent replicates: folds (of all repeats), or seeds."""
        return len(self.values)

    @property
    def smallest_p(self) -> float:
        """The smallest two-sided p that the sign-flip test of these replicates can have: 2 / 2^n."""
        return smallest_p(self.n)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of `values`, in units of the metric; 0 for one replicate."""
        return float(np.std(self.values, ddof=1)) if self.n > 1 else 0.0

    @property
    def seed_unknown(self) -> bool:
        """Whether all folds have one seed, and nothing tells what another seed would change."""
        return math.isinf(self.standard_error)

    @property
    def of_this_seed(self) -> "Contrast":
        """The same contrast with a finite standard error, for a study in which all folds have one seed.

        The variance between seeds is left out, so that the contrast holds for this seed only.
        """
        # Nadeau and Bengio's standard error, in which all of the spread counts as that of folds.
        error = math.sqrt(1 / self.n + self.design.overlap) * self.deviation
        return replace(self, standard_error=error, degrees=self.n - 1.0)

    def test(self, level: float = 0.05) -> Test:
        """Return the name of the test that is used at `level`: that of the design.

        Where all differences are equal it is the sign-flip test, as a t statistic would have a standard error of 0.
        """
        return SIGN_FLIP if self.n > 1 and self.standard_error == 0 else self.design.test(level)

    def p_value(self, level: float = 0.05) -> float:
        """Return the two-sided p value of no difference, by the test used at `level`; 1 for a single replicate."""
        return min(1.0, 2 * min(self.p_below(0.0, level), self.p_above(0.0, level)))

    def p_above(self, bound: float, level: float = 0.05) -> float:
        """Return the one-sided p of "the true difference is at most `bound`", by the test used at `level`."""
        return self._one_sided(1, bound, level)

    def p_below(self, bound: float, level: float = 0.05) -> float:
        """Return the one-sided p of "the true difference is at least `bound`", by the test used at `level`."""
        return self._one_sided(-1, bound, level)

    def interval(self, alpha: float = 0.05, level: float | None = None) -> tuple[float, float]:
        """Return the 1 - alpha interval of the difference; infinite for one replicate.

        It inverts the test used at `level` (default: alpha), so that p and interval never disagree. Where alpha is so
        small that the sign-flip test can reject nothing, it is a t interval, since the test's interval has no ends.
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
            return sign_flip_interval(self.values, alpha, self.weights)
        return self._t_interval(alpha)

    def _t_interval(self, alpha: float) -> tuple[float, float]:
        """Return the 1 - alpha interval of the difference that inverts the t-test, of two replicates or more."""
        half = -float(special.stdtrit(self.degrees, alpha / 2)) * self.standard_error
        return self.difference - half, self.difference + half

    def _one_sided(self, sign: int, bound: float, level: float) -> float:
        """Return the one-sided p of "the true difference is at most `bound`" (`sign` 1) or "at least" (`sign` -1).

        It is that of the test used at `level`.
        """
        if self.n < 2:
            return 1.0
        # Below 0 where the difference lies on the other side of the bound.
        distance = sign * (self.difference - bound)
        if self.test(level) == SIGN_FLIP:
            # Half of the two-sided p, or on the other side of the bound the rest.
            two_sided = sign_flip_p((np.asarray(self.values) - bound) * self.weights)
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

    Replicate i is of the fold `folds[i]` (named with its repeat) and the seed `seeds[i]`. Without `folds` replicates
    are independent seeds on one split. `design` is the planned one, with the number of folds of a partition; without it
    all folds are of one partition. Without folds, `weights` [n] make the estimate a weighted mean, as for groups of
    unequal size.

    Replicates may be missing: the seeds that a fold has are averaged, the estimate is the mean over folds, and
    components are estimated from all replicates that are there (Henderson's method 3).
    """
    d = floats(differences)
    # Independent replicates on one split.
    if folds is None:
        planned = design or Design()
        n = len(d)
        mean = float(d.mean())
        # Equal differences have no variance; rounding would give them a tiny one.
        equal = constant(d)
        variance = 0.0 if equal else float(np.var(d, ddof=1)) / n
        degrees = n - 1.0
        relative_weights: tuple[float, ...] | float = 1.0
        if weights is not None and n > 1:
            shares, factors, degrees = weighted_mean(floats(weights))
            mean = float(shares @ d)
            variance = 0.0 if equal else float(factors @ (d - mean) ** 2)
            relative_weights = tuple(map(float, n * shares))
        design = Design(None, 1, n, planned.items, unit=planned.unit)
        components = Components(residual=n * variance)
        values = tuple(map(float, d))
        error = math.sqrt(variance)
        return Contrast(mean, error, degrees, components, design, values, relative_weights)
    # Folds: the design has as many repeats and seeds as were run, rounded. Folds that a search used have no
    # differences, but are part of their repeat, so they are added before folds are divided by the folds of a repeat.
    codes = codes_of(folds)
    means = np.bincount(codes, d) / np.bincount(codes)
    planned = design or Design(folds=len(means))
    seed_codes = codes_of([0] * len(d) if seeds is None else seeds)
    repeats = (len(means) + planned.searched) / (planned.folds or len(means))
    seeds_of_fold = len(d) / len(means)
    design = Design(
        planned.folds,
        max(1, round(repeats)),
        max(1, round(seeds_of_fold)),
        None,
        planned.seed_part,
        searched=planned.searched,
    )
    return _over_folds(d, codes, seed_codes, means, design)


def codes_of(values: Iterable[Hashable]) -> Any:
    """Return the code of each value [n]: distinct values are numbered from 0, in order of first appearance."""
    code_of: dict[Hashable, int] = {}
    return np.array([code_of.setdefault(value, len(code_of)) for value in values], dtype=np.intp)


def _over_folds(d: Floats, folds: Any, seeds: Any, means: Floats, design: Design) -> Contrast:
    """Return the contrast over folds, with a standard error by the components of folds, seeds and the rest.

    `folds` and `seeds` [n] are codes of the differences `d` [n]; `means` [folds] are the means over the seeds of each
    fold.
    """
    units = len(means)
    mean = float(means.mean())
    fold_factor = 1 / units + design.overlap  # of the folds' variance, by Nadeau and Bengio
    values = tuple(map(float, means))
    spread = 0.0 if units < 2 or constant(means) else float(means.var(ddof=1))
    estimate = between_within(d, folds, seeds)
    # In two cases there are no components. Where nothing tells seeds from the rest, all of the spread counts as the
    # folds', and an earlier study, or nobody, says what another seed on all folds would change. Where no fold changes
    # anything but by rounding (of this variance), the spread is 0.
    rounding = (TIE * float(np.abs(d).max())) ** 2
    if estimate is None or (spread == 0 and estimate.cautious.residual <= rounding):
        part = SeedPart(0.0)
        if estimate is None and design.seed_part is not None:
            part = design.seed_part
        error = math.sqrt(fold_factor * spread + part.variance)
        degrees = units - 1.0
        seed = 0.0
        if 0 < part.variance < math.inf:
            seed = part.variance
            # The fewer degrees of freedom count, as Satterthwaite's formula gives too many for few seeds.
            degrees = min(degrees, part.degrees)
        return Contrast(mean, error, degrees, Components(fold=spread, seed=seed), design, values)
    # The weight of each replicate in the mean over folds. By the squared sums of weights the variance of seeds and of
    # the rest enter that of the mean.
    weights = 1 / (units * np.bincount(folds))[folds]
    seed_factor = float((np.bincount(seeds, weights) ** 2).sum())
    residual_factor = float((weights**2).sum())
    cautious = estimate.cautious
    variances = [
        (fold_factor * cautious.fold, units - 1.0),
        (seed_factor * cautious.seed, float(estimate.seed_degrees)),
        (residual_factor * cautious.residual, float(estimate.residual_degrees)),
    ]
    error = math.sqrt(sum(part for part, _ in variances))
    return Contrast(
        mean, error, min(units - 1.0, satterthwaite(variances)), estimate.unbiased, design, values
    )


def contrast_over_items(differences: ArrayLike, weights: ArrayLike | None = None) -> Contrast:
    """Return what `differences` [seeds, items] of test items' scores say of new items, scored with new seeds.

    A column may stand for a group of items; `weights` [items] are then the sizes of the groups. Seeds and items are
    crossed: the variance of the mean is `seed^2 / m + item^2 / n + residual^2 / (m n)`, by the two-way analysis of
    variance. It is never below what seeds alone or items alone would make it. Its degrees of freedom are
    Satterthwaite's; m - 1 where all differences are equal. With up to `FEW_SEEDS` seeds that differ by more than
    the residual, they are m - 1 at most.
    """
    d = floats(differences)
    m, n = d.shape
    w = np.ones(n) if weights is None else floats(weights)
    by_seed = np.average(d, axis=1, weights=w)
    mean = float(by_seed.mean())
    design = Design(None, 1, m, n)
    # One seed or one item tells nothing of the noise; as a single replicate the contrast has no interval.
    if m < 2 or n < 2:
        return Contrast(mean, 0.0, 0.0, Components(), design, (mean,))
    # The parts of the variance of the mean: of seeds and of items, with the residual in both, and of the residual.
    _, factors, item_degrees = weighted_mean(w)
    by_item = d.mean(axis=0)
    seed = float(by_seed.var(ddof=1)) / m
    item = float(factors @ (by_item - mean) ** 2)
    residuals = d - by_seed[:, None] - by_item[None] + mean
    rest = float(factors @ (residuals**2).sum(axis=0)) / (m * (m - 1))
    variance = max(seed + item - rest, seed, item)
    # A variance that only rounding makes counts as 0.
    if variance <= (TIE * float(np.abs(d).max())) ** 2:
        variance = 0.0
    # Satterthwaite's formula: the squared variance over this sum.
    spread = seed**2 / (m - 1) + item**2 / item_degrees
    degrees = variance**2 / spread if spread > 0 else m - 1.0
    if m <= FEW_SEEDS and seed > rest:
        degrees = min(degrees, m - 1.0)
    # The components of one difference: each part without the residual, times how often the mean draws it anew.
    components = Components(
        seed=m * max(0.0, seed - rest), residual=m * n * rest, item=n * max(0.0, item - rest)
    )
    values = tuple(map(float, by_seed))
    return Contrast(mean, math.sqrt(variance), degrees, components, design, values)
