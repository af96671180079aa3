"""PredictiveDraws of a comparison that is run on to more replicates, drawn from what is known of it.

The noise is drawn from the distribution that its estimate leaves it (chi-squared, of each mean square), the true
difference around the estimate, and then the replicates to come, which are judged with those that there are. Of the true
difference it is taken to be known beforehand what one replicate would say of no difference (a unit-information prior,
Kass and Wasserman 1995): without it an estimate that happens to be large would be believed, and too much be promised of
what is undecided.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contrasweep.statistics.components import SUBTRACTED, Components
from contrasweep.statistics.design import Contrast, Design

DRAWS = 2000
"""PredictiveDraws that are drawn: an assurance has a standard error of at most 0.011."""


@dataclass(frozen=True)
class PredictiveDraws:
    """Of each [draws]: the variances of a difference, and the estimate of the larger design with its standard error and
    degrees of freedom."""

    components: Components
    difference: Any
    error: Any
    degrees: Any


def draw_predictive(now: Contrast, design: Design, fresh: bool) -> PredictiveDraws:
    """The futures of a comparison that stands as `now` by the larger `design`, or by `fresh` replicates alone; from a
    fixed seed, so the same on every machine."""
    draw = _over_folds if now.design.folds else _over_items if now.design.items else _over_seeds
    return draw(now, design, np.random.default_rng(0), fresh)


def moments(now: Contrast, design: Design, components: Components) -> tuple[Any, Any, Any, Any]:
    """The true difference's mean and how far it is drawn to 0, and the variances of the estimates now and then."""
    before: Any = now.design.variance(components)
    after: Any = np.minimum(design.variance(components), before)
    shrink = components.total / (components.total + before)
    return shrink * now.difference, shrink, before, after


def _estimate(now: Contrast, design: Design, components: Components, rng: Any, fresh: bool) -> Any:
    """Draws of the larger design's estimate."""
    mean, shrink, before, after = moments(now, design, components)
    delta = mean + np.sqrt(shrink * before) * rng.normal(size=DRAWS)
    if fresh:
        return delta + np.sqrt(after) * rng.normal(size=DRAWS)
    kept = after / before  # the present estimate's part in the one to come
    return delta + kept * (now.difference - delta) + np.sqrt(after * (1 - kept)) * rng.normal(size=DRAWS)


def _chi2(rng: Any, degrees: float, size: Any = DRAWS) -> Any:
    return rng.chisquare(degrees, size) if degrees > 0 else np.zeros(size)


def _over_seeds(now: Contrast, design: Design, rng: Any, fresh: bool) -> PredictiveDraws:
    """Of seeds on one split: the mean and the sum of squares of the seeds to come, put to those there are."""
    n, new = now.n, design.seeds if fresh else max(1, design.seeds - now.n)
    known, kept = now.components.residual, 0 if fresh else n
    variance: Any = known * (n - 1) / _chi2(rng, n - 1)
    mean = n / (n + 1) * now.difference + np.sqrt(variance / (n + 1)) * rng.normal(size=DRAWS)
    following = mean + np.sqrt(variance / new) * rng.normal(size=DRAWS)
    difference = (kept * now.difference + new * following) / (kept + new)
    squares = variance * _chi2(rng, new - 1) + kept * new / (kept + new) * (now.difference - following) ** 2
    squares = squares + (0 if fresh else (n - 1) * known)
    degrees = float(kept + new - 1)
    error = np.sqrt(squares / max(1.0, degrees) / (kept + new))
    return PredictiveDraws(Components(residual=variance), difference, error, degrees)


def _over_folds(now: Contrast, design: Design, rng: Any, fresh: bool) -> PredictiveDraws:
    """Of folds: the mean squares of folds, seeds and the rest, and the standard error as `design.contrast` has it."""
    k, m, units, seeds = now.n, now.design.seeds, design.units, max(design.seeds, now.design.seeds)
    means, spread = np.asarray(now.values), float(np.var(now.values, ddof=1))
    total: Any = spread * (k - 1) / _chi2(rng, k - 1)
    rest_degrees, residual = (k - 1) * (m - 1), total
    seed: Any = np.zeros(DRAWS)
    if m > 1:
        residual = now.components.residual * rest_degrees / _chi2(rng, rest_degrees)
        of_seeds = (now.components.seed * k + now.components.residual) * (m - 1) / _chi2(rng, m - 1)
        seed = np.maximum(0.0, of_seeds - residual) / k if now.components.seed > 0 else seed
    else:  # one seed a fold: how much of the noise is of training is not known
        residual = total * rng.uniform(size=DRAWS)
    fold = np.maximum(0.0, total - residual / m)
    components = Components(fold, seed, residual)
    difference = _estimate(now, design, components, rng, fresh)
    own = fold / (fold + residual / m + 1e-300)
    effects = own[:, None] * (means - means.mean()) + np.sqrt(fold * (1 - own))[:, None] * rng.normal(size=(DRAWS, k))
    more = seeds if fresh else seeds - m
    noise = np.sqrt(residual / max(1, more))[:, None] * rng.normal(size=(DRAWS, k))
    new_means = effects + noise * (more > 0)
    old = new_means if fresh else (m * (means - means.mean()) + more * new_means) / seeds
    added = np.sqrt(fold + residual / seeds)[:, None] * rng.normal(size=(DRAWS, max(0, units - k)))
    between = np.hstack([old, added]).var(axis=1, ddof=1)
    scale = 1 / units + design.overlap
    if seeds == 1:
        return PredictiveDraws(components, difference, np.sqrt(scale * between), units - 1.0)
    known = 0 if fresh else rest_degrees
    degrees = max((units - 1) * (seeds - 1), known + 1)
    rest = (known * now.components.residual + residual * _chi2(rng, degrees - known)) / degrees
    crossing = (residual + units * seed) * _chi2(rng, seeds - 1) / (seeds - 1)
    parts = [
        (scale * np.maximum(0.0, between - SUBTRACTED * rest / seeds), units - 1),
        (np.maximum(0.0, crossing - SUBTRACTED * rest) / units / seeds, seeds - 1),
        (rest / (units * seeds), degrees),
    ]
    error = sum(part for part, _ in parts)
    satterthwaite = error**2 / sum(part**2 / d for part, d in parts)
    return PredictiveDraws(components, difference, np.sqrt(error), np.minimum(units - 1.0, satterthwaite))


def _over_items(now: Contrast, design: Design, rng: Any, fresh: bool) -> PredictiveDraws:
    """Of seeds crossed with items: the mean square of seeds, and the variance as `components.crossed` has it."""
    parts, items, m, seeds = now.components, now.design.items or 1, now.design.seeds, design.seeds
    now_seeds = parts.residual + items * parts.seed
    of_seeds: Any = now_seeds * (m - 1) / _chi2(rng, m - 1)
    components = Components(
        seed=np.maximum(0.0, of_seeds - parts.residual) / items, residual=parts.residual, item=parts.item
    )
    difference = _estimate(now, design, components, rng, fresh)
    known = 0 if fresh else m - 1
    by_seed = (known * now_seeds + of_seeds * _chi2(rng, max(1, seeds - 1 - known))) / max(1, seeds - 1)
    by_item = parts.residual + seeds * parts.item
    variance = np.maximum(np.maximum(by_seed + by_item - parts.residual, by_seed), by_item) / (seeds * items)
    spread = (by_seed / (seeds * items)) ** 2 / max(1, seeds - 1) + (by_item / (seeds * items)) ** 2 / (items - 1)
    return PredictiveDraws(components, difference, np.sqrt(variance), variance**2 / spread)
