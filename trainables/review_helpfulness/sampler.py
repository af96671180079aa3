"""Groups of one more helpful review and several less helpful ones of the same product, drawn anew each epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasweep.data.column_files import Ints


def pair_candidates(labels: ArrayLike, interval: int) -> list[tuple[int, Ints]]:
    """Return the rows of one product that can be positives, each with the rows that can be its negatives.

    A negative's label is more than `interval` below that of its positive. Rows whose label is among the lowest 1 +
    interval distinct labels are no positives. Positives come by falling label, then in row order.
    """
    # Distinct labels, falling. The lowest 1 + interval have none far enough below them.
    truth = np.asarray(labels, dtype=np.int64)
    levels = np.unique(truth)[::-1]
    candidates = []
    for level in levels[: max(0, len(levels) - 1 - interval)]:
        negatives = np.flatnonzero(truth < level - interval)
        candidates += [(int(row), negatives) for row in np.flatnonzero(truth == level)]
    return candidates


@dataclass(frozen=True)
class _Candidate:
    """A row that can be a positive, the rows of its negatives, and the cumulative probabilities to draw these by."""

    positive: int
    negatives: Ints
    cumulative: NDArray[np.float64]


class GroupSampler:
    """Puts the rows of a training part into groups [positive, negative x num_negatives].

    All rows of a group are reviews of one product, and a negative's label lies more than `interval` below that of the
    positive. Negatives are drawn with replacement, with probabilities in proportion to 1 - the frequency of their label
    among the product's reviews. An epoch has a group for each possible positive, but at most `max_groups` of them
    (None: any number), chosen at random anew in each epoch.
    """

    def __init__(
        self,
        labels: ArrayLike,
        products: Sequence[int] | Ints,
        *,
        interval: int,
        num_negatives: int,
        max_groups: int | None = None,
    ) -> None:
        truth = np.asarray(labels, dtype=np.int64)
        owner = np.asarray(products)
        self.num_negatives = num_negatives
        self.max_groups = max_groups
        self.candidates: list[_Candidate] = []
        for product in dict.fromkeys(owner.tolist()):
            # How often each label occurs among the product's reviews.
            rows = np.flatnonzero(owner == product)
            frequency = np.bincount(truth[rows]) / len(rows)
            # `pair_candidates` numbers the product's rows from 0; `rows` has their numbers in the part.
            for positive, negatives in pair_candidates(truth[rows], interval):
                # Negatives with a rare label are likelier.
                weights = 1 - frequency[truth[rows[negatives]]]
                self.candidates.append(
                    _Candidate(
                        int(rows[positive]), rows[negatives], np.cumsum(weights / weights.sum())
                    )
                )

    def __len__(self) -> int:
        """Return the number of groups in an epoch."""
        return min(len(self.candidates), self.max_groups or len(self.candidates))

    def epoch(self, seed: int) -> Ints:
        """Return an epoch's groups, int64 [groups, 1 + num_negatives] of row numbers, a pure function of `seed`."""
        # Each positive once, in random order; for each of its negatives a uniform number.
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(len(self.candidates))[: len(self)]
        draws = rng.random((len(self), self.num_negatives))
        groups = np.empty((len(self), 1 + self.num_negatives), dtype=np.int64)
        for group, number, draw in zip(groups, chosen, draws, strict=True):
            # A uniform number falls into one negative's share of the probability. Rounding may leave the sum of these
            # shares below 1.
            candidate = self.candidates[number]
            picked = np.searchsorted(candidate.cumulative, draw, side="right")
            picked = np.minimum(picked, len(candidate.negatives) - 1)
            group[0] = candidate.positive
            group[1:] = candidate.negatives[picked]
        return groups

    def batches(self, seed: int, groups: int) -> Iterator[Ints]:
        """Yield an epoch's groups, `groups` at a time; the last batch may be smaller."""
        drawn = self.epoch(seed)
        yield from (drawn[start : start + groups] for start in range(0, len(drawn), groups))
