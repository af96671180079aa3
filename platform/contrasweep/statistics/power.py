"""What a design can decide before it is run, and what it would take to decide."""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from contrasweep.statistics.checks import level, overlap
from contrasweep.statistics.resampling import EXACT_UP_TO, smallest_p

POWER = 0.8
MAX_REPLICATES = 100_000
"""No design with more replicates than this is ever proposed."""


def power(n: int, effect: float, *, alpha: float = 0.05, train_fraction: float | None = None) -> float:
    """Chance that `compare_paired` decides n replicates whose true difference is `effect` standard deviations.

    The standard deviation is that of the paired differences, taken as normal. Noncentral t; for the
    sign-flip test at the level its 2^n patterns attain, with half a replicate off for its coarseness (within
    0.04 below the exact power for n <= 14; exact where only a unanimous sign rejects).
    """
    alpha, effect = level(alpha), abs(effect)
    if n < 2:
        return 0.0
    if train_fraction is not None:
        return _t_power(effect / np.sqrt(1 / n + overlap(train_fraction)), n - 1, alpha)
    if smallest_p(n) > alpha:
        return 0.0
    if n > EXACT_UP_TO:
        return _t_power(effect * np.sqrt(n), n - 1, alpha)
    patterns = int(np.floor(alpha * 2 ** (n - 1) + 1e-9))
    if patterns == 1:
        return float(stats.norm.cdf(effect) ** n + stats.norm.sf(effect) ** n)
    return _t_power(effect * np.sqrt(n - 0.5), n - 1, patterns / 2 ** (n - 1))


def _t_power(noncentrality: float, df: int, alpha: float) -> float:
    critical = stats.t.isf(alpha / 2, df)
    above = stats.nct.sf(critical, df, noncentrality) if noncentrality <= 30 else np.nan
    if np.isnan(above):  # scipy's nct loses its tail at large values, where the normal limit is close
        return float(stats.norm.sf(critical - noncentrality))
    return float(above + np.nan_to_num(stats.nct.cdf(-critical, df, noncentrality)))


def replicates_for(
    effect: float, *, alpha: float = 0.05, train_fraction: float | None = None, power_wanted: float = POWER
) -> int | None:
    """Smallest n that decides a true difference of `effect` standard deviations with chance `power_wanted`.

    None where no number does: no difference at all, or folds of one dataset, whose shared rows keep a part
    of the noise that more folds do not average out.
    """

    def enough(n: int) -> bool:
        return power(n, effect, alpha=alpha, train_fraction=train_fraction) >= power_wanted

    if not np.isfinite(effect):
        return next(n for n in range(2, MAX_REPLICATES) if train_fraction is not None or smallest_p(n) <= alpha)
    if effect == 0 or not enough(MAX_REPLICATES):
        return None
    low, high = 1, 2
    while not enough(high):
        low, high = high, min(2 * high, MAX_REPLICATES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def detectable_effect(
    n: int, *, alpha: float = 0.05, train_fraction: float | None = None, power_wanted: float = POWER
) -> float:
    """Smallest difference, in standard deviations of the paired differences, that n replicates decide with
    chance `power_wanted`; infinity where they can decide nothing."""

    def short(effect: float) -> float:
        return power(n, effect, alpha=alpha, train_fraction=train_fraction) - power_wanted

    if n < 2 or short(1e4) < 0:
        return np.inf
    return float(optimize.brentq(short, 0, 1e4, xtol=1e-6))


@dataclass(frozen=True)
class Design:
    """What a design of `replicates` paired replicates can answer.

    `smallest_p` is that of the exact test, `detectable_effect` in standard deviations of the paired
    differences, `detectable_difference` in units of the metric (None without a known deviation),
    `replicates_needed` for a difference of one standard deviation, `warnings` sentences to print.
    """

    replicates: int
    smallest_p: float
    detectable_effect: float
    detectable_difference: float | None
    replicates_needed: int | None
    warnings: tuple[str, ...]


def design(
    n: int,
    *,
    comparisons: int = 1,
    alpha: float = 0.05,
    train_fraction: float | None = None,
    deviation: float | None = None,
) -> Design:
    """What n replicates can answer for a table of `comparisons` pairs (Holm's first step tests at alpha / pairs).

    `deviation` is the standard deviation of the paired differences, where earlier trials tell it.
    """
    strict = level(alpha) / max(1, comparisons)
    effect = detectable_effect(n, alpha=strict, train_fraction=train_fraction)
    needed = replicates_for(1.0, alpha=strict, train_fraction=train_fraction)
    warnings = []
    family = f" (Holm's first step over {comparisons} comparisons)" if comparisons > 1 else ""
    least, enough = smallest_p(n), next(m for m in range(1, 64) if 2.0 ** (1 - m) <= alpha)
    if least > alpha:
        warnings.append(
            f"{n} replicates: the exact sign-flip test can reach no p below {least:.4g}, so it cannot decide at "
            f"alpha = {alpha:g}; {enough} replicates could"
            + (
                "; a verdict on these folds rests on the corrected t-test and its normality alone"
                if train_fraction
                else ""
            )
        )
    elif least > strict and train_fraction is None:
        warnings.append(
            f"{n} replicates: the smallest p is {least:.4g}, above alpha = {strict:.4g}{family}; "
            f"{next(m for m in range(1, 64) if 2.0 ** (1 - m) <= strict)} replicates could decide"
        )
    if not np.isfinite(effect):
        warnings.append(f"{n} replicates cannot decide any difference at alpha = {strict:.4g}{family}")
    elif effect > 1.5:
        difference = "" if deviation is None else f" ({effect * deviation:.3g} in the metric)"
        remedy = (
            "more folds of the same data would not resolve one of 1"
            if needed is None
            else f"{needed} replicates would resolve one of 1"
        )
        warnings.append(
            f"{n} replicates decide a difference of {effect:.2g} standard deviations{difference} or more in 80 % "
            f"of studies{family}; {remedy}"
        )
    return Design(n, least, effect, None if deviation is None else effect * deviation, needed, tuple(warnings))
