"""Looks at data that still grow: how much of alpha each may spend, and what a family comes to after each look.

A comparison that is tested at several looks, at its full level each time, is decided wrongly far too often (one seed at
a time from 6 to 40: 23 % of true nulls). Lan and DeMets (1983) spend alpha over the looks instead: a function says how
much of it may be spent by the time that a share of all replicates is there, and each look's critical value follows from
it and from the looks before.

Many comparisons at once are the group-sequential Holm procedure (Ye et al. 2013, Maurer and Bretz 2013): each has its
own spending function, evaluated at the level that the step-down gives it. That is Holm's procedure applied to
*sequential p-values* (Liu and Anderson 2008): the smallest level at which any look so far would have decided. What a
look decided stays decided and passes its share of alpha on.

What is not decided is futile where neither a difference worth finding nor one as large as the estimate would be likely
to be decided by the last look. Futility is no verdict, costs no level, and only says that further replicates would most
likely be wasted.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from contrasweep.errors import SpecError, check_known
from contrasweep.rows import Mode
from contrasweep.statistics.checks import Floats, floats
from contrasweep.statistics.family import Family

SpendingName = Literal["obrien-fleming", "power"]
NODES = 128
"""Gauss-Legendre nodes of an integral over a look's statistic: critical values agree with rpact's in five decimals."""
MOST_DEVIATIONS = 8.2
"""Statistics above this many standard deviations have no probability in double precision."""
LEAST_DEVIATIONS = -5.0
"""From below this many standard deviations a statistic does not come back to decide for its side."""
T_PATHS = 300_000
"""Simulated studies without a difference: they measure the inflation of t statistics to 1 % at .05, to 3 % at .003."""
LEVELS = np.exp(np.linspace(math.log(1e-8), math.log(0.5), 50))
"""Two-sided levels between which sequential p-values are interpolated; a smaller one counts as the first level."""


def obrien_fleming(alpha: ArrayLike, time: ArrayLike) -> Floats:
    """Return how much of a one-sided `alpha` is spent by `time` (0 to 1): 2 - 2 Phi(z(alpha / 2) / sqrt(time)).

    The bounds are close to those of O'Brien and Fleming (1979). Almost nothing is spent early, so that the last look
    has hardly a lower level than that of a study without looks.
    """
    with np.errstate(divide="ignore"):
        spent: Floats = 2 * special.ndtr(
            special.ndtri(np.asarray(alpha) / 2) / np.sqrt(floats(time))
        )
    return spent


def power_family(alpha: ArrayLike, time: ArrayLike) -> Floats:
    """Return how much of a one-sided `alpha` is spent by `time` (0 to 1): alpha x time^2 (Kim and DeMets 1987).

    More is spent early than by O'Brien and Fleming, and less than in proportion to time.
    """
    spent: Floats = np.asarray(alpha) * floats(time) ** 2
    return spent


SPENDING: dict[str, Callable[[ArrayLike, ArrayLike], Floats]] = {
    "obrien-fleming": obrien_fleming,
    "power": power_family,
}


@dataclass(frozen=True)
class Looks:
    """All looks at the results of a study, those that were taken and those that are planned.

    `information` has the amount of data at each look, in any unit that grows, such as replicates. `times` has for each
    look the argument of the spending function, from 0 to 1. It is the share of the last look's information. Only in a
    study that was extended it is not: alpha that was spent stays spent, and the rest is spread over the looks to come.
    `spending` is the name of the spending function.
    """

    information: tuple[float, ...]
    times: tuple[float, ...]
    spending: str = "obrien-fleming"

    def __post_init__(self) -> None:
        check_known(
            self.spending,
            "functions",
            SPENDING,
            "there is no such function",
            place="replicates.spending",
        )
        steps = [*itertools.pairwise(self.information), *itertools.pairwise(self.times)]
        rising = all(before < after for before, after in steps)
        if not (
            rising and self.information and self.information[0] > 0 and self.times[-1] <= 1 + 1e-9
        ):
            raise SpecError(
                "looks come one after the other, none of them after time 1",
                place="replicates",
                value=list(zip(self.information, self.times, strict=False)),
            )

    def critical_values(self, alpha: float) -> Floats:
        """Return for each look the value [looks] that |z| must reach to decide.

        The two-sided level of the whole study is `alpha`.
        """
        values: Floats = _critical_values(self, (float(alpha),))[0]
        return values

    def nominal_levels(self, alpha: float) -> Floats:
        """Return for each look the two-sided p [looks] up to which it decides, if the level of the study is `alpha`.

        Because of the earlier looks, that of the last one is a little below `alpha`.
        """
        levels: Floats = 2 * special.ndtr(-self.critical_values(alpha))
        return levels

    def t_inflation(self, alpha: float) -> float:
        """Return the factor, at least 1, by which the chance of a false verdict is larger than `alpha`.

        The factor is for t statistics of more and more seeds. The p of each look is exact, but the critical values
        assume that the statistic moves from look to look as a Brownian motion. Early values of a t statistic are less
        correlated with its later ones. By simulation the factor is 1.01 to 1.05 with steps of five seeds and
        O'Brien-Fleming spending. It is up to 1.28 with a look at each of 2 to 8 seeds.
        """
        return _t_inflation(self, float(alpha))

    def repeated_p(self, p_values: ArrayLike, look: int) -> Floats:
        """Return the repeated p-values (Jennison and Turnbull 1989) of two-sided `p_values`, in the same shape.

        They are p-values of the look with the number `look`, counted from 0. A repeated p is the smallest level of the
        whole study at which this look would decide, whatever the other looks say. It is 1 for NaN.
        """
        z = -special.ndtri(np.clip(floats(p_values), 1e-300, 1.0) / 2)
        # The level at which z is the critical value, interpolated between LEVELS: log levels are about linear in z^2.
        # The bounds rise from the largest level to the smallest. A z below the first of them counts as a p of 1.
        bounds = self._curves[:, look][::-1]
        level = np.exp(np.interp(z**2, bounds**2, np.log(LEVELS)[::-1]))
        repeated: Floats = np.where(z >= bounds[0], level, 1.0)
        return repeated

    def level_at(self, alpha: float, look: int) -> float:
        """Return the two-sided p up to which `look` (from 0) decides, if the level of the whole study is `alpha`.

        It is interpolated as in `repeated_p`. The repeated confidence interval of this look is therefore its interval
        of coverage 1 - this p.
        """
        bound = np.interp(math.log(alpha), np.log(LEVELS), self._curves[:, look] ** 2)
        return float(2 * special.ndtr(-math.sqrt(bound)))

    @cached_property
    def _curves(self) -> Floats:
        """The critical value at each look for each level of the study in `LEVELS`, [levels, looks].

        It falls as the level rises.
        """
        return np.minimum.accumulate(_critical_values(self, tuple(LEVELS)), axis=0)


@lru_cache(maxsize=64)
def _critical_values(looks: Looks, alphas: tuple[float, ...]) -> Floats:
    """Return the critical values [alphas, looks] of one side of a two-sided test.

    They are computed by the recursive integration of Armitage, McPherson and Rowe (1969). The score z sqrt(t) at
    information t moves as a Brownian motion: its change from look to look is normal, with the information between them
    as variance. No study is taken to stop for futility, so that stopping for futility costs no level.
    """
    one_sided = np.asarray(alphas) / 2
    allowed = SPENDING[looks.spending]
    information = np.asarray(looks.information) / looks.information[-1]
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    bounds = np.empty((len(one_sided), len(information)))
    spent = np.zeros_like(one_sided)
    # At the nodes x [alphas, nodes], the probability mass of each among studies that no look so far has decided.
    x = mass = np.empty(0)
    before = 0.0
    for look, now in enumerate(information):
        # The bound of this look is crossed with the probability that the spending function allows by now.
        due = np.maximum(allowed(one_sided, min(1.0, looks.times[look])) - spent, 0.0)
        spent = spent + due
        step = now - before
        if look == 0:
            score = np.minimum(-special.ndtri(due), MOST_DEVIATIONS) * math.sqrt(now)
        else:
            score = _upper_quantile(x, mass, due, math.sqrt(step), math.sqrt(now))
        bounds[:, look] = score / math.sqrt(now)
        # The density of the score of undecided studies, from a low score to the bound. It is normal at the first look;
        # later it comes from every node of the look before by a normal step.
        low = LEAST_DEVIATIONS * math.sqrt(now)
        half = (score - low) / 2
        following = low + half[:, None] * (nodes + 1)
        if look == 0:
            density = np.exp(-(following**2) / (2 * now)) / math.sqrt(2 * math.pi * now)
        else:
            kernel = np.exp(
                -((following[:, :, None] - x[:, None, :]) ** 2) / (2 * step)
            ) / math.sqrt(2 * math.pi * step)
            density = np.einsum("arc,ac->ar", kernel, mass)
        x = following
        mass = density * half[:, None] * weights
        before = now
    return bounds


@lru_cache(maxsize=64)
def _t_inflation(looks: Looks, alpha: float) -> float:
    """Return the chance that any look decides a study whose arms do not differ, divided by `alpha`; at least 1.

    The chance is that in `T_PATHS` simulated studies. The seed is fixed, so the result is the same everywhere.
    """
    # For each study the mean and the sum of squared deviations of its seeds so far, `before` of them.
    rng = np.random.default_rng(0)
    mean = np.zeros(T_PATHS)
    squares = np.zeros(T_PATHS)
    before = 0
    decided = np.zeros(T_PATHS, bool)
    for information, level in zip(looks.information, looks.nominal_levels(alpha), strict=True):
        # The mean and the squared deviations of the `added` seeds update both, which then are those of n seeds.
        n = round(information)
        added = n - before
        added_mean = rng.normal(size=T_PATHS) / math.sqrt(added)
        squares = squares + before * added / n * (mean - added_mean) ** 2
        if added > 1:
            squares = squares + rng.chisquare(added - 1, T_PATHS)
        mean = (before * mean + added * added_mean) / n
        before = n
        if n > 1:
            # |t| = |mean| / sqrt(squares / (n - 1) / n) is beyond the critical t value of this look's level.
            bound = -special.stdtrit(n - 1, level / 2) / math.sqrt(n * (n - 1))
            decided |= np.abs(mean) >= bound * np.sqrt(squares)
    return max(1.0, float(decided.mean()) / alpha)


def _upper_quantile(x: Floats, mass: Floats, due: Floats, step: float, scale: float) -> Floats:
    """Return the score [alphas] that is exceeded with the probability `due` [alphas], found by bisection.

    `mass` [alphas, nodes] is the probability of the score at the look before, at each of its values `x` [alphas,
    nodes]. `step` is the standard deviation of the change of the score since then, and `scale` that of the score
    itself.
    """
    low = np.full(len(due), -MOST_DEVIATIONS * scale)
    high = np.full(len(due), MOST_DEVIATIONS * scale)
    for _ in range(50):
        middle = (low + high) / 2
        # The chance to end above the middle from each node, times the node's probability.
        above = (special.ndtr((x - middle[:, None]) / step) * mass).sum(axis=1)
        low = np.where(above > due, middle, low)
        high = np.where(above > due, high, middle)
    return high


def conditional_power(z: ArrayLike, time: float, critical: float, drift: float) -> Floats:
    """Return the chance that a comparison with the statistic `z` at `time` reaches `critical` at the last look.

    `time` is the share of the last look's information that is there, below 1. `drift` is the true difference, in
    standard errors of the last look's estimate.
    """
    # The score so far is sqrt(time) z; its change to come is normal with mean drift (1 - time) and variance 1 - time.
    ahead = (math.sqrt(time) * np.asarray(z) + (1 - time) * drift - critical) / math.sqrt(1 - time)
    chance: Floats = special.ndtr(ahead)
    return chance


Decision = Literal["open", "better", "worse", "equivalent", "futile"]
FUTILE_BELOW = 0.2
"""A comparison with less than this chance of a decision at the last look is futile."""
POWER_WANTED = 0.8
"""A difference that the last look decides with this chance is worth finding, where no margin is declared."""


@dataclass(frozen=True)
class Standing:
    """The state of a comparison after a look.

    `p_value` is the repeated p of no difference, adjusted over the family; `equivalence_p` that of a difference of the
    margin (None without a margin). `level` is the two-sided level at which the look tested the comparison. `decision`
    is better, worse or equivalent exactly where the 1 - `level` interval says so.
    """

    p_value: float
    equivalence_p: float | None
    level: float
    decision: Decision


def judge_looks(
    p_values: Sequence[Sequence[float]],
    differences: Sequence[float],
    looks: Looks,
    family: Family,
    *,
    equivalence_p: Sequence[Sequence[float]] | None = None,
    standard_errors: Sequence[float] | None = None,
    decided: Sequence[bool] | None = None,
    may_decide: Sequence[bool] | None = None,
    mode: Mode = "max",
    inflation: float = 1.0,
) -> list[Standing]:
    """Judge a family of comparisons after a look, and return the standing of each.

    Args:
        p_values: Two-sided p of no difference [comparisons][looks so far]; NaN where a look did not test a comparison.
        differences: The latest estimates of a - b [comparisons].
        looks: The looks so far and to come.
        family: The comparisons that are judged together.
        equivalence_p: The p of a difference as large as the family's margin, in the shape of `p_values`.
        standard_errors: The standard errors [comparisons] that the estimates will have at the last look.
        decided: Which comparisons an earlier look decided: these pass their share of alpha on, whatever their p is now.
        may_decide: Which comparisons may have a verdict at this look (default: all). The others have a p of 1, and may
            be futile.
        mode: Whether larger or smaller values are better.
        inflation: A factor by which all repeated p-values are multiplied. Where replicates are seeds it is
            `Looks.t_inflation`, as critical values are a little too low for t statistics; else 1.
    """
    p = floats(p_values)
    decided_before = [False] * len(p) if decided is None else list(decided)
    may_decide = [True] * len(p) if may_decide is None else may_decide
    errors = [None] * len(p) if standard_errors is None else standard_errors
    latest = []  # the newest look that tested each comparison; -1: none did
    repeated_ps = []  # the repeated p of each comparison at that look
    for i, ps_of_looks in enumerate(p):
        tested = np.flatnonzero(np.isfinite(ps_of_looks))
        look = int(tested[-1]) if len(tested) else -1
        repeated_p = 1.0
        if look >= 0 and may_decide[i]:
            repeated = float(looks.repeated_p(ps_of_looks[look], look))
            repeated_p = min(1.0, inflation * repeated)
        latest.append(look)
        repeated_ps.append(repeated_p)
    # For the others, a comparison that an earlier look decided counts with a p of 0, so that it passes its share of
    # alpha on by Holm's procedure. Comparisons of the family without data have a p of 1.
    counted_ps = np.where(decided_before, 0.0, repeated_ps).tolist()
    counted_ps += [1.0] * max(0, family.size - len(p))
    # The level of the comparisons that are still open, by which futility is judged.
    adjusted_ps = family.adjusted(counted_ps)[: len(p)]
    level_left = family.level_after(int((adjusted_ps <= family.alpha).sum()))
    standings = []
    for i, (difference, look) in enumerate(zip(differences, latest, strict=True)):
        # A comparison itself is judged by its present p, whether it was decided before or not.
        ps = list(counted_ps)
        ps[i] = repeated_ps[i]
        adjusted = float(family.adjusted(ps)[i])
        level = looks.level_at(family.share(ps, i) / inflation, max(0, look))
        # Equivalence is adjusted by Bonferroni's correction.
        equivalence = None
        if family.margin is not None and equivalence_p is not None:
            equivalence = 1.0
            if look >= 0 and may_decide[i]:
                equivalence = inflation * float(looks.repeated_p(equivalence_p[i][look], look))
            equivalence = min(1.0, equivalence * max(1, family.size))
        decision: Decision = "open"
        if adjusted <= family.alpha:
            decision = "better" if (difference > 0) == (mode == "max") else "worse"
        elif equivalence is not None and equivalence <= family.alpha:
            decision = "equivalent"
        elif _futile(p[i], difference, looks, level_left, family.margin, errors[i]):
            decision = "futile"
        standings.append(Standing(adjusted, equivalence, level, decision))
    return standings


def _futile(
    p: Floats,
    difference: float,
    looks: Looks,
    level: float,
    margin: float | None,
    error: float | None,
) -> bool:
    """Whether neither a direction nor, with a margin, equivalence has a fair chance by the last look.

    For a direction the true difference is taken to be the smallest one that is worth finding, or the estimate where
    that is larger. `p` [looks] are the p-values of one comparison, `level` is the level that it has left, and `error`
    the standard error that its difference will have at the last look.
    """
    # Nothing is futile that was never tested, nor at the last look, after which nothing could be saved.
    tested = np.flatnonzero(np.isfinite(p))
    if not len(tested) or len(p) == len(looks.times):
        return False
    # A direction: whether the statistic of the newest test is likely to reach the last look's critical value.
    look = int(tested[-1])
    time = looks.information[look] / looks.information[-1]
    critical = float(looks.critical_values(level)[-1])
    z = -float(special.ndtri(max(p[look], 1e-300) / 2))
    if margin is None or not error:
        drift = critical + float(special.ndtri(POWER_WANTED))
        return bool(conditional_power(z, time, critical, drift) < FUTILE_BELOW)
    drift = max(margin, abs(difference)) / error
    if conditional_power(z, time, critical, drift) >= FUTILE_BELOW:
        return False
    return _equivalence_unlikely(difference / error, margin / error, time, critical)


def _equivalence_unlikely(difference: float, margin: float, time: float, critical: float) -> bool:
    """Whether equivalence has hardly a chance at the last look, if there is no true difference.

    `difference` and `margin` are in standard errors of the last look's estimate. `time` is the share of its information
    that is there, and `critical` its critical value.
    """
    # For its interval to lie within the margin, the last estimate must be within `room` of 0. If there is no true
    # difference, the last estimate is normal around `centre` with this `spread`.
    room = margin - critical
    centre = time * difference
    spread = (1 - time) ** 0.5
    if room <= 0:
        return True
    chance = special.ndtr((room - centre) / spread) - special.ndtr((-room - centre) / spread)
    return bool(chance < FUTILE_BELOW)
