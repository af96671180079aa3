"""What a design can decide before it is run, and how many replicates it would need."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

# not stats or optimize, whose import takes longer than the rest of a plan
from scipy import special

from contrasweep.errors import plural
from contrasweep.statistics.design import Design
from contrasweep.statistics.family import Family
from contrasweep.statistics.resampling import EXACT_UP_TO, attained_level, smallest_p

POWER = 0.8
"""The chance of a decision that counts as enough."""
MAX_SEEDS = 64
"""No plan with more seeds than this is proposed."""
LARGE = 1.5
"""A plan gets a warning where it decides only differences above this number of standard deviations."""
HARDLY = 4.0
"""A plan decides hardly anything where it decides only differences above this number of standard deviations."""


def power(n: int, effect: float, *, alpha: float = 0.05) -> float:
    """Return the chance that n >= 2 seeds on one split decide a true difference of `effect` standard deviations.

    The standard deviation is that of the paired differences, which are taken as normal. For the t-test the chance
    follows from the noncentral t distribution.

    For the sign-flip test it is an approximation: that of a t-test with n - 1/2 seeds, at the largest level up to
    `alpha` that this test can attain with its 2^n patterns. It is at most 0.04 below the exact chance for n <= 14. It
    is exact where `alpha` is so small that all differences must have one sign.
    """
    effect = abs(effect)
    if n > EXACT_UP_TO or smallest_p(n) > alpha:
        return t_power(effect * np.sqrt(n), n - 1, alpha)
    # Where only the smallest p rejects, all differences must have one sign: P(all above 0) + P(all below 0).
    attained = attained_level(n, alpha)
    if attained == smallest_p(n):
        return float(special.ndtr(effect) ** n + special.ndtr(-effect) ** n)
    return t_power(effect * np.sqrt(n - 0.5), n - 1, attained)


def t_power(noncentrality: float, df: float, alpha: float) -> float:
    """Return the chance that a two-sided t-test at `alpha` rejects.

    `noncentrality` is the true difference in standard errors (at least 0), `df` the degrees of freedom.
    """
    critical = -special.stdtrit(df, alpha / 2)
    # At large values SciPy's noncentral t loses its tail. There only the estimate of the noise decides: it must be
    # below `noncentrality / critical` times the noise.
    if noncentrality > 30:
        return float(special.chdtr(df, df * (noncentrality / critical) ** 2))
    above = 1 - special.nctdtr(df, noncentrality, critical)
    # The chance to be below the critical value of the other side is small; where it is all but 0, SciPy may give NaN.
    return float(above + np.nan_to_num(special.nctdtr(df, noncentrality, -critical)))


def detectable_effect(n: int, *, alpha: float = 0.05) -> float:
    """Return the smallest difference, in standard deviations, that n seeds decide at `alpha` with the chance `POWER`.

    It is infinite where not even 10,000 standard deviations are decided.
    """

    def beyond_wanted(effect: float) -> float:
        return power(n, effect, alpha=alpha) - POWER

    if n < 2 or beyond_wanted(1e4) < 0:
        return np.inf
    return root(beyond_wanted, 1e4)


@dataclass(frozen=True)
class PlannedPower:
    """The smallest difference that a design decides in 80 % of studies, and sentences on it.

    `family` has the comparisons, and its smallest level is used. `what` is a name of the comparisons for the sentences.
    `in_units` is the smallest difference in units of the metric, with the noise of the trials of the earlier study
    `study`; None where no study tells the noise.
    """

    design: Design
    family: Family
    what: str = ""
    in_units: float | None = None
    study: str = ""

    @property
    def least(self) -> float:
        """The smallest true difference that is decided, in spreads; infinite where nothing can be decided.

        A spread is the standard deviation of one trial's paired difference. All noise is taken to be that of training.
        The variance between the means of folds is taken to be that of the folds, so that more seeds of a fold do not
        lower it.
        """
        return _detectable(self.design, self.family.level)

    @property
    def sentence(self) -> str:
        """A sentence on the smallest difference that can be decided, and on the test.

        The difference is in units of the metric, or in spreads where these are not known.
        """
        size = self.family.size
        name = f"{self.what}, " if self.what else ""
        count = f"{name}{plural(size, 'comparison')}"
        if not math.isfinite(self.least):
            return f"{count}: nothing"
        level = f" at alpha / {size}" if size > 1 else ""
        test = f"{self.design.test(self.family.level)}{level}"
        if self.in_units is not None:
            return (
                f"{count}: a difference below {self.in_units:.2g} stays undecided with this design ({test}, 80 % of "
                f"studies, noise as in {self.study})"
            )
        return (
            f"{count}: a difference below {self.least:.2g} spreads stays undecided with this design ({test}, 80 % of "
            "studies). The spread is the standard deviation of one trial's paired difference, which no trial tells yet"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on what the design is too small for, and what would be enough."""
        if not math.isfinite(self.least):
            why = "one replicate tells nothing about noise; add seeds or folds"
            if self.design.replicates > 1:
                why = "one seed on all folds, which they may share: what another would change is not known; add seeds"
            elif self.design.searched:
                why = "the search leaves one fold, which tells nothing about noise; search fewer folds"
            return (f"nothing can be decided: {why}",)
        lines = []
        d = self.design
        level = self.family.level
        # Too few seeds for the exact test.
        missed = d.exact_test_missed(self.family.alpha, level)
        if missed:
            # The fewest seeds with which the sign-flip test can reach the level, if any can.
            enough = next((n for n in range(2, EXACT_UP_TO + 2) if smallest_p(n) <= level), None)
            lines.append(f"{missed}; {enough} seeds would be exact" if enough else missed)
        # Too few replicates for any but large differences. Nothing is said where the design decides the declared
        # smallest difference of interest.
        margin = self.family.margin
        wanted = margin is not None and self.in_units is not None and self.in_units <= margin
        if self.least > LARGE and not wanted:
            little = "only large differences are decided"
            if self.least > HARDLY:
                little = "hardly anything can be decided"
            remedy = self.remedy
            if self.in_units is not None:
                remedy = f"the smallest difference it decides is {self.in_units:.2g}"
            lines.append(f"{little}; {remedy}")
        return tuple(lines)

    @property
    def remedy(self) -> str:
        """A sentence on how many seeds (of each fold, where there are folds) decide a difference of one spread."""
        d = self.design
        for seeds in range(d.seeds + 1, MAX_SEEDS + 1):
            if _detectable(replace(d, seeds=seeds), self.family.level) <= 1:
                if d.folds:
                    return f"{seeds} seeds on each fold would decide one spread, if the noise is of training"
                return f"{seeds} seeds would decide one spread"
        return (
            f"{MAX_SEEDS} seeds would not decide one spread: compare less (fewer arms, a reference)"
        )


# a call takes 30 noncentral distributions, and a remedy tries many designs
@functools.lru_cache(maxsize=1024)
def _detectable(design: Design, level: float) -> float:
    """Return the smallest true difference that the design decides at `level` with the chance `POWER`.

    It is in standard deviations of one trial's paired difference, if all noise is of training. Over folds the variance
    of a fold's mean counts as variance between folds, which share training rows; no number of seeds rules that out.
    """
    # Nothing is decided by one replicate, nor by one seed on all folds where nobody knows what another would change.
    unknown = design.seed_part is not None and math.isinf(design.seed_part.variance)
    if design.replicates < 2 or (unknown and design.seeds == 1):
        return math.inf
    if not design.folds:
        return detectable_effect(design.seeds, alpha=level)
    # The standard error of the mean by Nadeau and Bengio, for a trial's difference with a standard deviation of 1.
    error = math.sqrt((1 / design.replicates + design.overlap) / design.seeds)
    degrees = design.replicates - 1.0

    def beyond_wanted(effect: float) -> float:
        return t_power(effect / error, degrees, level) - POWER

    return root(beyond_wanted, 1e5)


def root(increasing: Callable[[float], float], high: float) -> float:
    """Return where an increasing function crosses 0 between 0 and `high`, to within 1e-6, by bisection."""
    low = 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if increasing(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
