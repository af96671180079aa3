"""Whether more replicates would decide a comparison: what the replicates so far predict of a larger design.

The share of futures (`predictive`) in which the comparison is decided is its assurance (O'Hagan, Stevens and Campbell
2005).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from contrasweep.statistics.design import SIGN_FLIP, Contrast, Design
from contrasweep.statistics.predictive import PredictiveDraws, draw_predictive, moments
from contrasweep.statistics.resampling import EXACT_UP_TO, attained_level

RANGE = (0.1, 0.9)
"""The quantiles of an assurance's range: it holds the chance of a decision for 80 % of what the noise may be."""


@dataclass(frozen=True)
class Prediction:
    """The chance that `design` decides a comparison, and its `low` to `high` over what the noise may be."""

    design: Design
    assurance: float
    low: float
    high: float


def predict(
    now: Contrast, design: Design, level: float, margin: float | None = None, *, fresh: bool = False
) -> Prediction | None:
    """What `design` is predicted to decide at `level` of a comparison that stands as `now`: the same replicates and
    more of them, or with `fresh` new ones alone. None where `now` says nothing of the noise."""
    if now.n < 2 or now.standard_error == 0 or (now.design.items and now.design.seeds < 2):
        return None
    futures = draw_predictive(now, design, fresh)
    decided = _decided(futures.difference, futures.error, futures.degrees, design, level, margin)
    low, high = np.quantile(_chances(now, design, futures, level, margin, fresh), RANGE)
    assurance = float(decided.mean())
    return Prediction(design, assurance, min(float(low), assurance), max(float(high), assurance))


def _decided(difference: Any, error: Any, degrees: Any, design: Design, level: float, margin: float | None) -> Any:
    """Whether each is better, worse or equivalent."""
    error = np.maximum(error, 1e-300)
    attained, strictness = _attained(design, level)
    decided = strictness * np.abs(difference) / error >= -special.stdtrit(degrees, attained / 2)
    if margin is not None:
        decided = decided | ((margin - np.abs(difference)) / error >= -special.stdtrit(degrees, level / 2))
    return decided


def _attained(design: Design, level: float) -> tuple[float, float]:
    """The level that the test attains, and what its statistic loses by being coarse (as `power_of_designs.power` has
    it)."""
    n = design.seeds
    if design.test(level) != SIGN_FLIP or n > EXACT_UP_TO:
        return level, 1.0
    return attained_level(n, level), math.sqrt((n - 0.5) / n)


def _chances(
    now: Contrast, design: Design, futures: PredictiveDraws, level: float, margin: float | None, fresh: bool
) -> Any:
    """The chance of a decision for each of the drawn noises, by the normal distribution of the estimate to come."""
    mean, shrink, before, after = moments(now, design, futures.components)
    kept: Any = 0.0 if fresh else after / before
    centre = mean + kept * (now.difference - mean)
    spread = np.sqrt(np.maximum((1 - kept) ** 2 * shrink * before + after * (1 - kept), 1e-300))
    error, degrees = np.sqrt(after), np.median(futures.degrees)
    attained, strictness = _attained(design, level)
    bound = -special.stdtrit(degrees, attained / 2) * error / strictness
    chance: Any = special.ndtr((centre - bound) / spread) + special.ndtr((-centre - bound) / spread)
    if margin is None:
        return chance
    room = np.minimum(np.maximum(0.0, margin + special.stdtrit(degrees, level / 2) * error), bound)
    return chance + special.ndtr((room - centre) / spread) - special.ndtr((-room - centre) / spread)
