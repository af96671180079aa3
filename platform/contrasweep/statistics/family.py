"""The one family of comparisons that a study decides, and the level that each of them is judged at.

A study has one question: `overall` (arms against each other, averaged over all cells) or `cells` (in each cell). The
comparisons of that question are its family, and alpha is the chance of any false verdict in it. Everything else that a
report shows is exploratory and has no verdict.

`overall` is the default: the pairs of arms are the smallest family of a study, and few replicates can decide nothing in
a large one (five folds of three arms in six cells make 18 comparisons, each at .0028). Who asks where an effect holds,
and has the replicates for it, declares `question: cells`.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from contrasweep.errors import SpecError
from contrasweep.statistics.checks import Floats, checked_level, floats

Question = Literal["overall", "cells"]
LEVEL_DIVISOR = 4.0
"""The divisor of the level at each further look at a finished table. With 2, equal arms had a verdict in up to .073 of
10,000 studies at .05; with 4 in up to .058 (`benchmarks/results/declared_anew.md`)."""


@dataclass(frozen=True)
class Family:
    """`size` comparisons that are judged together at `alpha`.

    `margin` is the smallest difference of interest, in units of the metric, below which arms are equivalent (None:
    nothing is called equivalent). Without a margin p-values are adjusted by Holm's procedure (1979).

    With a margin each comparison has two null hypotheses, "no difference" and "a difference of the margin or more". At
    most one of them is true, so that alpha / size is enough for both (Shaffer 1986). A comparison that rejects one may
    still reject the other wrongly. So its share of alpha does not pass on to the rest, as it does in Holm's procedure:
    every comparison has alpha / size.
    """

    size: int
    alpha: float = 0.05
    margin: float | None = None

    def __post_init__(self) -> None:
        checked_level(self.alpha)
        if self.margin is not None and not self.margin > 0:
            raise SpecError(
                "a smallest difference is more than 0",
                place="smallest_difference",
                value=self.margin,
            )

    def without(self, count: int) -> "Family":
        """Return the family with `count` comparisons fewer: those of arms whose values are all equal.

        No such comparison can be decided wrongly. With a margin the family is returned unchanged, as such arms may be
        called equivalent.
        """
        return self if self.margin is not None else replace(self, size=max(0, self.size - count))

    @property
    def level(self) -> float:
        """The level that the smallest p of the family must reach: alpha over the number of comparisons.

        A comparison whose p is at most this level is decided, whatever the other p-values are. The level also chooses
        the test.
        """
        return self.alpha / max(1, self.size)

    @property
    def correction(self) -> str:
        """The name of the correction; empty for a single comparison."""
        if self.size < 2:
            return ""
        if self.margin is None:
            return "Holm"
        return "Bonferroni"

    def adjusted(self, p_values: Sequence[float]) -> Floats:
        """Return the `p_values` of all comparisons of the family, adjusted, in the same order.

        A comparison is decided whose adjusted p is at most alpha.
        """
        if self.margin is None:
            return holm(p_values)
        adjusted: Floats = np.minimum(self.size * floats(p_values), 1)
        return adjusted

    def share(self, p_values: Sequence[float], index: int) -> float:
        """Return the share of alpha that the comparison at `index` is tested at, among these p-values.

        It is alpha over the number of comparisons that are left at its step of Holm's procedure, or alpha / size where
        there is a margin. Equal p-values share the first of their steps. A comparison's adjusted p is at most alpha
        exactly where its p is at most this share.
        """
        if self.margin is not None:
            return self.level
        # The comparison's step is the number of smaller p-values. The procedure stops at the first p that is not
        # decided, so that no later one has a larger share.
        decided = int((self.adjusted(p_values) <= self.alpha).sum())
        before = int((np.asarray(p_values) < p_values[index]).sum())
        return self.alpha / max(1, len(p_values) - min(before, decided))

    def level_after(self, decided: int) -> float:
        """Return the level at which the remaining comparisons are tested once `decided` of the family are decided.

        It is alpha over the number of remaining ones (Holm's step-down), or alpha / size where there is a margin.
        """
        return self.alpha / max(1, self.size - decided) if self.margin is None else self.level


def pairs_of(arms: Iterable[str], reference: str | None = None) -> list[tuple[str, str]]:
    """Return the pairs of arms that are compared: each arm with the reference, or without one every two arms.

    The list is empty where the reference is not among the arms.
    """
    names = list(dict.fromkeys(arms))
    if reference is None:
        return list(itertools.combinations(names, 2))
    return [(arm, reference) for arm in names if arm != reference] if reference in names else []


def family_size(
    cells: Iterable[Collection[str]], reference: str | None, question: Question = "overall"
) -> int:
    """Return the number of comparisons of a study; `cells` has the arms of each of its cells.

    The question "cells" counts the pairs of arms in each cell. "overall" counts the pairs of arms that any cell has,
    each once. With a `reference` only pairs with the reference count.
    """
    groups = [frozenset(arms) for arms in cells]
    if reference is not None:
        groups = [arms for arms in groups if reference in arms]
    if question == "cells":
        return sum(
            math.comb(len(arms), 2) if reference is None else len(arms) - 1 for arms in groups
        )
    all_arms = frozenset[str]().union(*groups)
    if reference is not None:
        return max(0, len(all_arms) - 1)
    # Two thousand arms have two million pairs, which are not listed where one cell has all arms.
    if all_arms in groups:
        return math.comb(len(all_arms), 2)
    return len({pair for arms in set(groups) for pair in itertools.combinations(sorted(arms), 2)})


def holm(p_values: Sequence[float]) -> Floats:
    """Return Holm's (1979) adjusted p-values [m], in the order given.

    Rejecting those <= alpha keeps the chance of any false rejection in the family at alpha, whatever the tests'
    dependence.
    """
    # The smallest p times m, the next times m - 1, and so on; no value is less than the one before, and none above 1.
    p = floats(p_values)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1)
    return adjusted
