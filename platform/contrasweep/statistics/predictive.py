"""What the replicates so far predict of a larger design: what it would detect, and whether it decides a comparison.

Each draw is of the noise, by the chi-squared distribution of each mean square; then of the true difference, around the
estimate; then of the replicates to come, which are judged with the present ones. The share of draws in which the
comparison is decided is its assurance (O'Hagan, Stevens and Campbell 2005).

The true difference has a prior around 0 that is worth one replicate (unit information, Kass and Wasserman 1995).
Without it an estimate that happens to be large would be believed, and too much be promised of undecided comparisons.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from scipy import special

from contrasweep.statistics.design import (
    FEW_SEEDS,
    SIGN_FLIP,
    SUBTRACTED,
    Components,
    Contrast,
    Design,
)
from contrasweep.statistics.power_of_designs import POWER, detectable_effect, root, t_power
from contrasweep.statistics.resampling import EXACT_UP_TO, attained_level

DRAWS = 2000
"""The number of draws: an assurance has a standard error of at most 0.011."""


@dataclass(frozen=True)
class PredictiveDraws:
    """Random draws of the results that a larger design may have for one comparison.

    Each field is an array [draws], or one number where all draws have the same. `components` are the variances of one
    paired difference. `difference` is the estimate of the larger design, `error` its standard error, and `degrees` its
    degrees of freedom.
    """

    components: Components
    difference: Any
    error: Any
    degrees: Any


def draw_predictive(now: Contrast, design: Design, fresh: bool) -> PredictiveDraws:
    """Return random draws of the results that the larger `design` may have, given the present results `now`.

    With `fresh` all replicates of the design are new; else the present replicates are among them. The seed is fixed, so
    that the draws are the same on every machine.
    """
    if now.design.folds:
        draw = _over_folds
    elif now.design.items:
        draw = _over_items
    else:
        draw = _over_seeds
    return draw(now, design, np.random.default_rng(0), fresh)


class Moments(NamedTuple):
    """The distribution of the true difference, and the variances of the estimates of the present and a larger design.

    All are arrays [draws]. The true difference is normal with this `mean` and the variance `shrinkage` x `present`: the
    posterior of a prior around 0 that is worth one replicate. `shrinkage` (0 to 1) is the weight of the data in it.
    `present` is the variance of the present estimate, and `later` that of the estimate of the larger design.
    """

    mean: Any
    shrinkage: Any
    present: Any
    later: Any


def moments(now: Contrast, design: Design, components: Components, fresh: bool) -> Moments:
    """Return what predicts the estimate of the larger `design` from the present results `now`.

    `components` are the variances of the noise. With `fresh` all replicates of the design are new; else the present
    ones are among them. So it is in all functions below.
    """
    present: Any = now.design.variance(components)
    later: Any = design.variance(components)
    if not fresh:  # an estimate with the present replicates in it is no noisier than theirs
        later = np.minimum(later, present)
    shrinkage = components.total / (components.total + present)
    return Moments(shrinkage * now.difference, shrinkage, present, later)


def _estimate(now: Contrast, design: Design, components: Components, rng: Any, fresh: bool) -> Any:
    """Return random draws [draws] of the estimate of the difference that the larger `design` may have.

    `now` has the present results, and `components` are draws of the variances of the noise. With `fresh` all replicates
    of the design are new.
    """
    mean, shrinkage, present, later = moments(now, design, components, fresh)
    true_difference = mean + np.sqrt(shrinkage * present) * rng.normal(size=DRAWS)
    if fresh:
        return true_difference + np.sqrt(later) * rng.normal(size=DRAWS)
    # The present estimate is a part of the later one, with this weight, and moves it away from the true difference.
    weight = later / present
    noise = np.sqrt(later * (1 - weight)) * rng.normal(size=DRAWS)
    return true_difference + weight * (now.difference - true_difference) + noise


def _chi2(rng: Any, degrees: float) -> Any:
    """Return draws [draws] of a chi-squared variable; zeros without degrees of freedom."""
    return rng.chisquare(degrees, DRAWS) if degrees > 0 else np.zeros(DRAWS)


def _over_seeds(now: Contrast, design: Design, rng: Any, fresh: bool) -> PredictiveDraws:
    """Return draws of a larger study over seeds on one split.

    The arguments are those of `draw_predictive`, with a generator of random numbers `rng`. First the true mean and
    variance are drawn, then the mean and sum of squares of the new seeds, which are joined with those of the present
    seeds.
    """
    n = now.n
    new = design.seeds if fresh else max(1, design.seeds - now.n)
    present = 0 if fresh else n
    estimated = now.components.residual  # the variance of one replicate's difference
    # The variance is known by n - 1 degrees of freedom. The mean is known by n replicates and by the prior, which
    # counts as one more replicate of no difference: n + 1.
    variance: Any = estimated * (n - 1) / _chi2(rng, n - 1)
    mean = n / (n + 1) * now.difference + np.sqrt(variance / (n + 1)) * rng.normal(size=DRAWS)
    following = mean + np.sqrt(variance / new) * rng.normal(size=DRAWS)
    difference = (present * now.difference + new * following) / (present + new)
    # The sum of squares of all seeds is that of the new ones, that of the present ones, and a term for the distance of
    # both means.
    squares = (
        variance * _chi2(rng, new - 1)
        + present * new / (present + new) * (now.difference - following) ** 2
    )
    if not fresh:
        squares = squares + (n - 1) * estimated
    degrees = float(present + new - 1)
    error = np.sqrt(squares / max(1.0, degrees) / (present + new))
    return PredictiveDraws(Components(residual=variance), difference, error, degrees)


def _over_folds(now: Contrast, design: Design, rng: Any, fresh: bool) -> PredictiveDraws:
    """Return draws of a larger study over folds; the arguments are those of `_over_seeds`.

    The mean squares of folds, seeds and the rest are drawn, then the means of the folds, old and new. The standard
    error of the larger study follows from these as `design.contrast` makes it.
    """
    components = _drawn_components(now, rng)
    difference = _estimate(now, design, components, rng, fresh)
    between = _between_folds(now, design, components, rng, fresh)
    folds = design.replicates
    seeds = max(design.seeds, now.design.seeds)
    scale = 1 / folds + design.overlap
    if seeds == 1:
        error = np.sqrt(scale * between + now.components.seed)
        return PredictiveDraws(components, difference, error, folds - 1.0)
    # The mean squares that the larger study would see: of the residual the present one joined with a drawn one, of
    # seeds a drawn one. Then the standard error by the terms of the variance with their degrees of freedom.
    present = 0 if fresh else (now.n - 1) * (now.design.seeds - 1)
    degrees = max((folds - 1) * (seeds - 1), present + 1)
    added = components.residual * _chi2(rng, degrees - present)
    residual = (present * now.components.residual + added) / degrees
    of_seeds = components.residual + folds * components.seed
    of_seeds = of_seeds * _chi2(rng, seeds - 1) / (seeds - 1)
    parts = [
        (scale * np.maximum(0.0, between - SUBTRACTED * residual / seeds), folds - 1),
        (np.maximum(0.0, of_seeds - SUBTRACTED * residual) / folds / seeds, seeds - 1),
        (residual / (folds * seeds), degrees),
    ]
    variance = sum(part for part, _ in parts)
    satterthwaite = variance**2 / sum(part**2 / d for part, d in parts)
    return PredictiveDraws(
        components, difference, np.sqrt(variance), np.minimum(folds - 1.0, satterthwaite)
    )


def _drawn_components(now: Contrast, rng: Any) -> Components:
    """Return draws [draws] of the components of folds and seeds, each as well known as its degrees of freedom say."""
    k = now.n
    m = now.design.seeds
    total: Any = float(np.var(now.values, ddof=1)) * (k - 1) / _chi2(rng, k - 1)
    seed: Any = np.zeros(DRAWS)
    if m > 1:
        degrees = (k - 1) * (m - 1)
        residual = now.components.residual * degrees / _chi2(rng, degrees)
        of_seeds = (now.components.seed * k + now.components.residual) * (m - 1) / _chi2(rng, m - 1)
        # Seeds whose component is estimated as 0 are taken to change nothing.
        if now.components.seed > 0:
            seed = np.maximum(0.0, of_seeds - residual) / k
    else:
        # With one seed per fold nobody knows how much of the noise is of training: every share is as likely.
        residual = total * rng.uniform(size=DRAWS)
        part = now.design.seed_part
        if part is not None and part.variance > 0:
            seed = part.variance * part.degrees / _chi2(rng, part.degrees)
    return Components(np.maximum(0.0, total - residual / m), seed, residual)


def _between_folds(
    now: Contrast, design: Design, components: Components, rng: Any, fresh: bool
) -> Any:
    """Return draws [draws] of the variance between the means of folds in the larger study.

    `components` are draws of the variances of the noise; the other arguments are those of `_over_folds`.
    """
    k = now.n
    m = now.design.seeds
    seeds = max(design.seeds, m)
    fold: Any = components.fold
    residual: Any = components.residual
    deviations = np.asarray(now.values) - np.mean(now.values)
    # The true effects of the present folds: their means, shrunk to the share of the means' variance that is of folds
    # and not noise. The tiny number avoids 0 / 0.
    share = fold / (fold + residual / m + 1e-300)
    doubt = np.sqrt(fold * (1 - share))[:, None]
    effects = share[:, None] * deviations + doubt * rng.normal(size=(DRAWS, k))
    # The means of the present folds with the seeds that are added, then those of the folds that are added.
    more = seeds if fresh else seeds - m
    noise = np.sqrt(residual / max(1, more))[:, None] * rng.normal(size=(DRAWS, k))
    new_means = effects + noise if more > 0 else effects
    fold_means = new_means if fresh else (m * deviations + more * new_means) / seeds
    new_folds = max(0, design.replicates - k)
    added = np.sqrt(fold + residual / seeds)[:, None] * rng.normal(size=(DRAWS, new_folds))
    return np.hstack([fold_means, added]).var(axis=1, ddof=1)


def _over_items(now: Contrast, design: Design, rng: Any, fresh: bool) -> PredictiveDraws:
    """Return draws of a larger study of seeds crossed with items; the arguments are those of `_over_seeds`.

    The mean square of seeds is drawn, and the variance of the mean follows as in `design.contrast_over_items`.
    """
    # The mean square of seeds is the residual variance and, for each item, the variance between seeds.
    parts = now.components
    items = now.design.items or 1
    m = now.design.seeds
    seeds = design.seeds
    now_seeds = parts.residual + items * parts.seed
    of_seeds: Any = now_seeds * (m - 1) / _chi2(rng, m - 1)
    components = Components(
        seed=np.maximum(0.0, of_seeds - parts.residual) / items,
        residual=parts.residual,
        item=parts.item,
    )
    difference = _estimate(now, design, components, rng, fresh)
    # The mean squares that the larger study will have: of seeds, the present ones among them, and of items.
    present = 0 if fresh else m - 1
    degrees = max(1, seeds - 1)
    added = _chi2(rng, max(1, seeds - 1 - present))
    by_seed = (present * now_seeds + of_seeds * added) / degrees
    by_item = parts.residual + seeds * parts.item
    # The variance of the mean, and Satterthwaite's sum of squares over degrees of freedom.
    n = seeds * items
    variance = np.maximum(np.maximum(by_seed + by_item - parts.residual, by_seed), by_item) / n
    spread = (by_seed / n) ** 2 / degrees + (by_item / n) ** 2 / (items - 1)
    freedom = variance**2 / spread
    if seeds <= FEW_SEEDS:
        freedom = np.where(by_seed > parts.residual, np.minimum(freedom, degrees), freedom)
    return PredictiveDraws(components, difference, np.sqrt(variance), freedom)


RANGE = (0.1, 0.9)
"""The quantiles that are the ends of an assurance's range, which holds 80 % of the drawn chances."""


@dataclass(frozen=True)
class Prediction:
    """The chance that `design` decides a comparison.

    `assurance` is the chance over all that is random or unknown: the noise, the true difference, and the replicates to
    come. The chance also depends on the true noise: `low` to `high` is its range over the middle 80 % of
    what that may be.
    """

    design: Design
    assurance: float
    low: float
    high: float


def predict(
    now: Contrast, design: Design, level: float, margin: float | None = None, *, fresh: bool = False
) -> Prediction | None:
    """Return the chance that `design` decides at `level` a comparison that stands as `now`.

    The design has the present replicates and more of them, or with `fresh` new ones alone. `margin` is the smallest
    difference of interest. None where `now` says nothing of the noise.
    """
    if now.n < 2 or now.standard_error == 0 or now.seed_unknown:
        return None
    # The share of draws that decide, and the chance of a decision for the noise of each draw.
    futures = draw_predictive(now, design, fresh)
    decided = _decided(futures.difference, futures.error, futures.degrees, design, level, margin)
    low, high = np.quantile(_chances(now, design, futures, level, margin, fresh), RANGE)
    assurance = float(decided.mean())
    return Prediction(design, assurance, min(float(low), assurance), max(float(high), assurance))


def _decided(
    difference: Any, error: Any, degrees: Any, design: Design, level: float, margin: float | None
) -> Any:
    """Return a mask [draws] of the studies that decide, by their differences, standard errors and degrees of freedom.

    A study decides where its t statistic is beyond the critical value that the test of `design` has at `level`, or its
    interval within `margin`.
    """
    error = np.maximum(error, 1e-300)  # the tiny number stands for an error of 0
    attained, factor = _attained(design, level)
    decided = factor * np.abs(difference) / error >= -special.stdtrit(degrees, attained / 2)
    if margin is not None:
        decided = decided | (
            (margin - np.abs(difference)) / error >= -special.stdtrit(degrees, level / 2)
        )
    return decided


def _attained(design: Design, level: float) -> tuple[float, float]:
    """Return the level that the design's test attains, and a factor up to 1 by which its t statistic is multiplied.

    The sign-flip test has few possible p-values: it attains less than `level`, and the factor takes half a replicate
    off, as in `power_of_designs.power`. For other tests these are `level` and 1.
    """
    n = design.seeds
    if design.test(level) != SIGN_FLIP or n > EXACT_UP_TO:
        return level, 1.0
    return attained_level(n, level), math.sqrt((n - 0.5) / n)


def _chances(
    now: Contrast,
    design: Design,
    futures: PredictiveDraws,
    level: float,
    margin: float | None,
    fresh: bool,
) -> Any:
    """Return the chance of a decision [draws] for the noise of each draw, whose components are those of `futures`.

    The other arguments are those of `predict`. The estimate to come is normal, with the mean `centre` and the standard
    deviation `spread`. It decides a direction beyond ±`bound`, and with a margin equivalence within ±`room`.
    """
    # The distribution of the estimate to come; the present estimate is a part of it, by its weight. The rest of it
    # varies by the doubt about the true difference, and by the noise of the replicates to come.
    mean, shrinkage, present, later = moments(now, design, futures.components, fresh)
    weight: Any = 0.0 if fresh else later / present
    centre = mean + weight * (now.difference - mean)
    variance = (1 - weight) ** 2 * shrinkage * present + later * (1 - weight)
    spread = np.sqrt(np.maximum(variance, 1e-300))
    # The chance of a direction.
    error = np.sqrt(later)
    degrees = np.median(futures.degrees)
    attained, factor = _attained(design, level)
    bound = -special.stdtrit(degrees, attained / 2) * error / factor
    chance: Any = special.ndtr((centre - bound) / spread) + special.ndtr((-centre - bound) / spread)
    if margin is None:
        return chance
    # And of equivalence: the interval, as wide as the critical value, lies within the margin.
    room = np.minimum(np.maximum(0.0, margin + special.stdtrit(degrees, level / 2) * error), bound)
    return chance + special.ndtr((room - centre) / spread) - special.ndtr((-room - centre) / spread)


Unit = Literal["seeds", "repeats", "folds"]
MOST_TIMES = 32
"""No design with more than this many times the present replicates is proposed."""


def resized(design: Design, unit: Unit, count: int) -> Design:
    """Return the design with `count` seeds, repeats of its folds, or folds, as `unit` says."""
    if unit == "seeds":
        return replace(design, seeds=count)
    return replace(design, repeats=count) if unit == "repeats" else replace(design, folds=count)


def count_of(design: Design, unit: Unit) -> int:
    """Return the number of seeds, repeats or folds of a design, as `unit` says."""
    return int(getattr(design, unit) or 0)


def detectable_difference(now: Contrast, design: Design, level: float) -> float:
    """Return the smallest true difference, in units of the metric, that `design` decides at `level` in 80 % of studies.

    The noise is taken as `now` estimates it. The difference is infinite where nothing is known of the noise.
    """
    if now.n < 2 or now.standard_error == 0 or now.seed_unknown:
        return math.inf
    if not design.folds and not design.items:
        return detectable_effect(design.seeds, alpha=level) * math.sqrt(now.components.residual)
    components = now.components
    degrees = now.degrees
    error = now.standard_error
    # The error and degrees of the present design are known; those of another one follow from the components. What is
    # known of seeds is no part of a design's size.
    is_present = replace(design, seed_part=now.design.seed_part) == now.design
    if not is_present:
        # With one seed per fold half of the noise is taken to be of training, as that share is not known.
        if now.design.folds and now.design.seeds == 1:
            components = replace(components, fold=components.fold / 2, residual=components.fold / 2)
        error = math.sqrt(design.variance(components))
        degrees = max(1.0, design.degrees(components))
    if error == 0:
        return math.inf
    # In units of the error: where the power of the t-test reaches `POWER`.
    return error * root(lambda effect: t_power(effect, degrees, level) - POWER, 1e5)


def smallest_sufficient_design(
    now: Contrast, unit: Unit, level: float, margin: float | None = None, *, fresh: bool = False
) -> Prediction | None:
    """Return the prediction for the smallest design that decides the comparison `now` with a chance of `POWER` or more.

    The design has more seeds or repeats (`unit`); `level`, `margin` and `fresh` are those of `predict`. None where none
    of up to `MOST_TIMES` times the present replicates has this chance.
    """

    def sufficient(count: int) -> Prediction | None:
        tried = predict(now, resized(now.design, unit, count), level, margin, fresh=fresh)
        return tried if tried is not None and tried.assurance >= POWER else None

    return _smallest(sufficient, count_of(now.design, unit), fresh)


def smallest_count_as_estimated(
    now: Contrast, unit: Unit, level: float, *, fresh: bool = False
) -> int | None:
    """Return the smallest number of seeds or repeats (`unit`) that would detect the difference of `now` at `level`.

    The estimated noise is taken as the true one, however few degrees of freedom the estimate has. With `fresh` all
    replicates are new, as in `predict`. None where even `MOST_TIMES` times the present replicates are not enough.
    """

    def sufficient(count: int) -> int | None:
        least = detectable_difference(now, resized(now.design, unit, count), level)
        return count if least <= abs(now.difference) else None

    return _smallest(sufficient, count_of(now.design, unit), fresh)


T = TypeVar("T")
"""What is found of a number of replicates."""


def _smallest(sufficient: Callable[[int], T | None], present: int, fresh: bool) -> T | None:
    """Return `sufficient(n)` for about the smallest number n of replicates that gives a result; None if none does.

    n is at most `MOST_TIMES` times `present`. It is larger than `present`, but with `fresh` it may be any number above
    1, because all replicates of a new study are new.
    """
    low = 1 if fresh else present
    high = present * MOST_TIMES
    best = sufficient(high)
    # `low` is not enough, or was never tried; `high` is enough. Halved on a logarithmic scale, to within a sixteenth: a
    # chance by simulation is no more exact than that.
    while best is not None and high - low > max(1, low // 16):
        middle = max(low + 1, min(high - 1, round(math.sqrt(low * high))))
        tried = sufficient(middle)
        if tried is None:
            low = middle
        else:
            best = tried
            high = middle
    return best
