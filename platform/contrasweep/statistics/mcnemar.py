"""McNemar's exact test: two arms that are right or wrong on the same items, of which those where they differ count."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from contrasweep.statistics.design import MCNEMAR, Contrast, Test


@dataclass(frozen=True)
class DiscordantContrast(Contrast):
    """Differences of items that are all 1 (a alone is right), -1 (b alone) or 0 (both or none).

    A direction must stand by the exact binomial test of the items where they differ, and by the t-test of all
    differences, which is hardly ever the stricter one. The interval is the outer one of both, so that it covers as well
    as the t interval, and excludes 0 exactly where both tests reject it.
    """

    def test(self, level: float = 0.05) -> Test:
        """McNemar's exact test at any level."""
        return MCNEMAR

    def interval(self, alpha: float = 0.05, level: float | None = None) -> tuple[float, float]:
        """Return the 1 - alpha interval of the difference of the shares of items that a and b have right.

        It is infinite for a single item, and never beyond -1 and 1. The test does not depend on `level`.
        """
        values = np.asarray(self.values)
        wins = int((values > 0).sum())
        losses = int((values < 0).sum())
        differ = wins + losses
        if self.n < 2:
            return -math.inf, math.inf
        if not differ:  # by the rule of three: so many differing items may not have shown
            most = 1 - (alpha / 2) ** (1 / self.n)
            return -most, most
        # Clopper and Pearson's bounds of a's share of the items where the arms differ; a share q of a part s of all
        # items is a difference of s (2 q - 1).
        least = float(special.betaincinv(wins, losses + 1, alpha / 2)) if wins else 0.0
        most = float(special.betaincinv(wins + 1, losses, 1 - alpha / 2)) if losses else 1.0
        half = -float(special.stdtrit(self.degrees, alpha / 2)) * self.standard_error
        share = differ / self.n
        # Each end is the outer one of both tests'.
        return (
            max(-1.0, min(self.difference - half, share * (2 * least - 1))),
            min(1.0, max(self.difference + half, share * (2 * most - 1))),
        )

    def _one_sided(self, distance: float, level: float, shifted: Any) -> float:
        """Return the one-sided p of a difference that lies `distance` beyond a bound; `shifted` are values less it.

        It is the larger of that of the t-test and, where the bound is 0, that of the exact binomial test.
        """
        if self.n < 2:
            return 1.0
        t = (
            float(special.stdtr(self.degrees, -distance / self.standard_error))
            if self.standard_error
            else 0.0
        )
        if not np.isin(shifted, (-1.0, 0.0, 1.0)).all():
            return t  # another bound than 0, of which the items where they differ say nothing
        # P(as many of the items that differ are on this side, or more), if both sides are equally likely.
        above_zero = int((shifted > 0).sum())
        differ = int((shifted != 0).sum())
        return max(t, float(special.bdtrc(above_zero - 1, differ, 0.5)) if above_zero else 1.0)
