"""McNemar's exact test: two arms are right or wrong on the same items, and the items count where they differ."""

import math
from dataclasses import dataclass

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

    def _one_sided(self, sign: int, bound: float, level: float) -> float:
        """Return the one-sided p of "the true difference is at most `bound`" (`sign` 1) or "at least `bound`" (-1).

        It is the larger one of two: that of the t-test and that of the binomial test. `interval` agrees with it.
        """
        if self.n < 2:
            return 1.0
        distance = sign * (self.difference - bound)
        values = sign * np.asarray(self.values)
        differing = int((values != 0).sum())
        # No item differs. If the true difference were the bound, a share of at least `distance` of the items would
        # differ; p is the chance that none of n does.
        if not differing:
            return float(np.clip(1 - distance, 0, 1) ** self.n)
        # The p of the t-test; without any spread it is 0 or 1.
        t_p = float(distance <= 0)
        if self.standard_error:
            t_p = float(special.stdtr(self.degrees, -distance / self.standard_error))
        # Where a share s of the items differ, and a share q of these are wins, the difference is s (2 q - 1). First the
        # q at which it is the bound, then the chance of as many wins or more at this q. No share is below 0.
        q = (1 + sign * bound * self.n / differing) / 2
        if q < 0:
            return t_p
        return max(t_p, float(special.bdtrc((values > 0).sum() - 1, differing, min(1.0, q))))
