"""From values per anchor to one number.

A loss has terms: anchors in the cross-entropy family and in batch_hard, ordered pairs or triplets elsewhere. `Terms`
holds their sum, number and number above zero per anchor, which is all that a reduction needs.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxtyping import Float

from contrasweep.trainables.pytorch import Tensor


class Terms(NamedTuple):
    """Per anchor: the sum of its terms, how many there are, and how many are above zero."""

    total: Float[Tensor, " n"]
    number: Float[Tensor, " n"]
    above_zero: Float[Tensor, " n"]


PerAnchor = Float[Tensor, " n"]
Scalar = Float[Tensor, ""]


def valid_anchors(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Mean over the anchors that have a term of the mean of their terms."""
    return _mean(_each(terms), (terms.number > 0).to(pairs.dtype))


def all_anchors(terms: Terms, pairs: PerAnchor) -> Scalar:
    """As `valid_anchors`, but anchors without a term count as 0."""
    return _each(terms).sum() / max(len(terms.total), 1)


def positive_pairs(terms: Terms, pairs: PerAnchor) -> Scalar:
    """As `valid_anchors`, each anchor weighted by its number of positives."""
    return _mean(_each(terms), pairs * (terms.number > 0))


def mean(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Mean over all terms."""
    return terms.total.sum() / terms.number.sum().clamp(min=1)


def mean_nonzero(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Mean over the terms above zero: what pytorch-metric-learning does by default."""
    return terms.total.sum() / terms.above_zero.sum().clamp(min=1)


def _each(terms: Terms) -> PerAnchor:
    return terms.total / terms.number.clamp(min=1)


def _mean(values: PerAnchor, weights: PerAnchor) -> Scalar:
    return (values * weights).sum() / weights.sum().clamp(min=1)


REDUCTIONS: Mapping[str, Callable[[Terms, PerAnchor], Scalar]] = MappingProxyType(
    {
        "valid_anchors": valid_anchors,
        "all_anchors": all_anchors,
        "positive_pairs": positive_pairs,
        "mean": mean,
        "mean_nonzero": mean_nonzero,
    }
)
"""name -> (terms, positives per anchor) -> scalar; without any term all give 0 with zero gradient."""
