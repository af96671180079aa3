"""McNemar's exact test: two arms are right or wrong on the same items, and the items count where they differ."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from contrasweep.statistics.design import MCNEMAR, Contrast, Test


@dataclass(frozen=True)
class DiscordantContrast(Contrast):
    """Differences of items that are all 1 (a alone is right), -1 (b alone) or 0 (both or none).

    A direction must stand by two tests: the exact binomial test of the items where the arms differ, and the t-test of
    all differences, which is hardly ever the stricter one. Each end of the interval is the outer one of both tests. So
    it covers as well as the t interval, and excludes 0 exactly where both tests reject 0.
    """

    def test(self, level: float = 0.05) -> Test:
        """Return McNemar's exact test, at any level."""
        return MCNEMAR

    def interval(self, alpha: float = 0.05, level: float | None = None) -> tuple[float, float]:
        """Return the 1 - alpha interval of a - b, in shares of items that are right.

        It is infinite for a single item, else within -1 and 1. `level` is not used, as it changes no test.
        """
        values = np.asarray(self.values)
        wins = int((values > 0).sum())
        losses = int((values < 0).sum())
        differing = wins + losses
        if self.n < 2:
            return -math.inf, math.inf
        # Where no item differs, the bound of the share of differing items that may not have shown (rule of three).
        if not differing:
            unseen_share = 1 - (alpha / 2) ** (1 / self.n)
            return -unseen_share, unseen_share
        # Clopper and Pearson's bounds of a's share q of the items where the arms differ. Where these are a share s of
        # all items, the difference is s (2 q - 1).
        q_low = float(special.betaincinv(wins, losses + 1, alpha / 2)) if wins else 0.0
        q_high = float(special.betaincinv(wins + 1, losses, 1 - alpha / 2)) if losses else 1.0
        low, high = self._t_interval(alpha)
        share = differing / self.n
        # Each end is the outer one of both tests'.
        return (
            max(-1.0, min(low, share * (2 * q_low - 1))),
            min(1.0, max(high, share * (2 * q_high - 1))),
        )

    def _one_sided(self, distance: float, level: float, shifted: Any) -> float:
        """Return the one-sided p of a difference that lies `distance` beyond a bound.

        `shifted` are the distances of `values` beyond the bound. The p is that of the t-test; where the bound is 0, the
        larger one of the t-test and the exact binomial test.
        """
        if self.n < 2:
            return 1.0
        t = (
            float(special.stdtr(self.degrees, -distance / self.standard_error))
            if self.standard_error
            else 0.0
        )
        # The binomial test is of the bound 0 alone, where `shifted` are the differences themselves.
        if not np.isin(shifted, (-1.0, 0.0, 1.0)).all():
            return t
        # The chance that as many of the differing items or more are on this side, if both sides are equally likely.
        above_zero = int((shifted > 0).sum())
        differing = int((shifted != 0).sum())
        return max(t, float(special.bdtrc(above_zero - 1, differing, 0.5)) if above_zero else 1.0)
