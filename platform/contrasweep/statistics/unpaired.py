"""Two arms whose runs have nothing in common: the difference of their means, which carries the spread of both.

Welch's t-test judges them, which takes runs as normal and lets each arm have a spread of its own. Where both arms have
equally many runs, and few enough, a verdict must stand by the permutation test as well. It tries all relabelings of the
runs, and takes them as exchangeable but not as normal. Each end of the interval is then the outer one of both tests.
Relabelings alone are not enough: by simulation they reject in .069 of studies of 5 and 5 runs whose spreads differ by a
factor of 3.
"""

import itertools
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from contrasweep.statistics.checks import Floats
from contrasweep.statistics.design import PERMUTATION, WELCH, Components, Contrast, Design, Test
from contrasweep.statistics.evidence import Evidence, Gaps
from contrasweep.statistics.resampling import TIE, constant, smallest_p

MOST_RUNS = 7
"""The most runs of each arm with which all relabelings are tried (7 have 3,432)."""


@lru_cache(maxsize=8)
def _relabelings(n: int) -> Any:
    """Return all relabelings of 2 n runs but the present one, as [C(2n, n) - 1, 2 n].

    A row has 1 for the n runs that it gives to a, and 0 for those that it gives to b. At present a has the first n.
    """
    # The first combination is the present one.
    chosen = np.array(list(itertools.combinations(range(2 * n), n)))[1:]
    labels = np.zeros((len(chosen), 2 * n), dtype=np.float64)
    np.put_along_axis(labels, chosen, 1.0, axis=1)
    return labels


@dataclass(frozen=True)
class UnpairedContrast(Contrast):
    """The runs of a and of b, and the difference of their means; `values` is empty, as no run has a partner.

    `deviation` is the standard deviation of the difference of a run of a and one of b.
    """

    a: tuple[float, ...] = field(default=(), repr=False)
    b: tuple[float, ...] = field(default=(), repr=False)

    @property
    def n(self) -> int:
        """The number of runs of the arm that has fewer."""
        return min(len(self.a), len(self.b))

    @property
    def deviation(self) -> float:  # type: ignore[override]
        """The standard deviation of the difference of two single runs."""
        return math.sqrt(self.components.residual)

    @property
    def smallest_p(self) -> float:
        """The smallest two-sided p of the permutation test; 1 where it does not judge."""
        if len(self.a) == len(self.b) and self.n <= MOST_RUNS:
            return 2 / math.comb(2 * self.n, self.n)
        return 1.0

    def test(self, level: float = 0.05) -> Test:
        """Return the test used at `level`: the permutation test where it can reach that level, else Welch's t-test."""
        return PERMUTATION if self.smallest_p <= level else WELCH

    def interval(self, alpha: float = 0.05, level: float | None = None) -> tuple[float, float]:
        """Return the 1 - alpha interval of the difference a - b, by the test used at `level` (default: alpha).

        Infinite where an arm has a single run.
        """
        if self.n < 2:
            return -math.inf, math.inf
        low, high = self._t_interval(alpha)
        if self.test(alpha if level is None else level) == PERMUTATION and self.smallest_p <= alpha:
            # A difference beyond the k-th shift from either end is rejected: fewer than k relabelings are as extreme
            # there, so that its p is at most alpha.
            shifts = np.sort(self._shifts)
            k = math.floor(alpha / 2 * (len(shifts) + 1) + 1e-9)
            low = min(low, float(shifts[k - 1]))
            high = max(high, float(shifts[len(shifts) - k]))
        return low, high

    @property
    def _shifts(self) -> Floats:
        """For each relabeling of the runs, the true difference a - b at which it is as extreme as the present labels.

        It is the mean of those runs of a that the relabeling gives to b, less the mean of those runs of b that it gives
        to a.
        """
        a = np.array(self.a)
        b = np.array(self.b)
        labels = _relabelings(self.n)
        a_to_b = 1 - labels[:, : self.n]
        b_to_a = labels[:, self.n :]
        shifts: Floats = (a_to_b @ a - b_to_a @ b) / a_to_b.sum(axis=1)
        return shifts

    def _one_sided(self, sign: int, bound: float, level: float) -> float:
        """Return the one-sided p of "the true difference is at most `bound`" (`sign` 1) or "at least `bound`" (-1).

        It is that of Welch's t-test; where the permutation test judges, the larger one of both tests.
        """
        if self.n < 2:
            return 1.0
        distance = sign * (self.difference - bound)
        p = 0.0
        # The shift of a relabeling is the true difference at which it is as extreme as the present labels. For a
        # difference at the bound it is at least as extreme where its shift does not lie beyond the bound. p is the
        # share of such labelings, among which the present one counts.
        if self.test(level) == PERMUTATION:
            shifts = self._shifts
            tie = TIE * float(np.abs([*self.a, *self.b]).sum())
            p = float(1 + (sign * shifts <= sign * bound + tie).sum()) / (1 + len(shifts))
        # Without any spread t would be infinite and p 0. So p is at least what n pairs can reach.
        if self.standard_error == 0:
            return max(p, smallest_p(self.n) / 2) if distance > 0 else 1.0
        return max(p, float(special.stdtr(self.degrees, -distance / self.standard_error)))


def unpaired_contrast(a: Floats, b: Floats) -> UnpairedContrast:
    """Return what the runs `a` [n] and `b` [m] say of the difference of their means."""
    sides = (a, b)
    variances = [float(x.var(ddof=1)) if len(x) > 1 else 0.0 for x in sides]
    variances_of_means = [variance / len(x) for variance, x in zip(variances, sides, strict=True)]
    # Welch's degrees of freedom; without any spread, those of runs with a common variance.
    variance = sum(variances_of_means)
    spread = sum(
        v**2 / (len(x) - 1) for v, x in zip(variances_of_means, sides, strict=True) if len(x) > 1
    )
    common_degrees = max(1.0, len(a) + len(b) - 2.0)
    return UnpairedContrast(
        float(a.mean() - b.mean()),
        math.sqrt(variance),
        variance**2 / spread if spread > 0 else common_degrees,
        Components(residual=sum(variances)),
        Design(seeds=min(len(a), len(b)), unit="run"),
        (),
        a=tuple(map(float, a)),
        b=tuple(map(float, b)),
    )


def unpaired_evidence(
    a: Floats, b: Floats, failed: tuple[int, int], mode: str = "max"
) -> Evidence | None:
    """Return the evidence of two arms from the values of their runs, `a` [n] and `b` [m]; None where an arm has no run.

    `failed` counts the failed runs of a and of b. Each counts as a loss, with a value that is worse than the worst run
    by the range of all runs. `mode` is "max" where larger values are better, else "min". Runs have no partners: `pairs`
    is how many pairs could be made of them.
    """
    if not len(a) or not len(b):
        return None
    # The runs of each arm, with its failures as losses.
    all_runs = np.concatenate([a, b])
    spread = np.ptp(all_runs)
    lost = all_runs.min() - spread if mode == "max" else all_runs.max() + spread
    failed_a, failed_b = failed
    with_losses_a = np.append(a, np.full(failed_a, lost))
    with_losses_b = np.append(b, np.full(failed_b, lost))
    # A verdict for an arm has to hold with that arm's own failures as losses; those of both could outweigh each other.
    return Evidence(
        common=unpaired_contrast(a, b),
        gaps=Gaps(failed_a, failed_b, planned=max(len(with_losses_a), len(with_losses_b))),
        a_loses=unpaired_contrast(with_losses_a, b) if failed_a else None,
        b_loses=unpaired_contrast(a, with_losses_b) if failed_b else None,
        pairs=min(len(a), len(b)),
        means=(float(a.mean()), float(b.mean())),
        constant=min(len(a), len(b)) > 1 and constant(a) and constant(b),
    )


def spread_beside(evidence: Evidence, a: str, b: str) -> str:
    """Return why a comparison with a single run has no verdict, and how the runs of the other arm spread.

    `a` and `b` are the names of the arms. "" for paired replicates, and where both arms have several runs.
    """
    common = evidence.common
    if not isinstance(common, UnpairedContrast) or common.n > 1:
        return ""
    runs = common.b
    name = b
    if len(common.a) > len(common.b):
        runs = common.a
        name = a
    if len(runs) < 2:
        return "one run each: no verdict"
    return f"one run: no verdict; {len(runs)} runs of {name} spread by {np.std(runs, ddof=1):.2g}"
