"""The margin family: pairs and triplets that have to keep a distance. Terms per anchor.

Scores [n m], larger = more alike, so a positive has to score high and a negative low whatever the similarity. A pair
in neither mask counts nowhere. Where there is no pair or triplet there is no term, and the loss is 0.
"""

from typing import Literal

from contrasweep.trainables.losses.batch import Mask, Scores, Square
from contrasweep.trainables.losses.cross_entropy import masked_logsumexp
from contrasweep.trainables.losses.loss import Terms
from contrasweep.trainables.pytorch import F, Float, Tensor, torch

Mining = Literal["all", "hard", "semi_hard"]


def margin_contrastive(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    *,
    m_pos: float = 1.0,
    m_neg: float = 0.0,
    squared: bool = False,
) -> tuple[Terms, Terms]:
    """Mean max(0, m_pos - s) of positive pairs plus mean max(0, s - m_neg) of negative ones (Hadsell et al. 2006).

    s is the score of a pair. Returns two sets of terms, of the positive and of the negative pairs: each is reduced by
    itself, and the two means are added. With `squared` it is h^2 / 2 of each hinge h (equation 4, with similarities for
    distances).
    """
    return _pairs(F.relu(m_pos - scores), positives, squared), _pairs(
        F.relu(scores - m_neg), negatives, squared
    )


def triplet(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    *,
    margin: float | None = None,
    soft: bool = False,
    mining: Mining = "all",
) -> Terms:
    """max(0, s_an - s_ap + margin) over triplets, or its softplus if `soft` (FaceNet: Schroff et al. 2015).

    A triplet is an anchor a, a positive p and a negative n; s are the scores. `mining` says which triplets count:

    - `all`;
    - `hard`: those whose negative scores above the positive;
    - `semi_hard`: those whose negative scores at or below the positive, by less than the margin.

    `margin` None is 0 if `soft`, else .2.
    """
    from contrasweep.trainables.losses.autograd import triplet_terms

    return triplet_terms(scores, positives, negatives, _margin(margin, soft), soft, mining)


def lifted_structured(
    scores: Float[Tensor, "n n"],
    positives: Square,
    negatives: Square,
    *,
    margin: float = 1.0,
    smooth: bool = True,
    squared: bool = True,
) -> Terms:
    """Lifted structure: max(0, J)^2 / 2 over positive pairs, J_ij = margin - s_ij + C (Song et al. 2016).

    s are the scores. If not `squared`, max(0, J). C is the larger of i's and j's hardest negative, or if `smooth` the
    log-sum-exp over the negatives of both (equations 3 and 4). It needs the scores of all pairs.
    """
    # The hardest negative of each row [n], then of each pair of rows [n n].
    if smooth:
        of_row = masked_logsumexp(scores, negatives)
        hardest = torch.logaddexp(of_row[:, None], of_row)
    else:
        of_row = scores.masked_fill(~negatives, -torch.inf).amax(1)
        hardest = torch.maximum(of_row[:, None], of_row)
    # A pair without any negative has no J. Its infinite value is replaced before the sum, or its gradient would be NaN.
    pairs = positives & (hardest > -torch.inf)
    return _pairs(F.relu(margin - scores + hardest.masked_fill(~pairs, 0)), pairs, squared)


def batch_hard(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    *,
    margin: float | None = None,
    soft: bool = False,
) -> Terms:
    """Batch hard: max(0, margin + max_N s - min_P s), or its softplus if `soft` (Hermans et al. 2017, equation 5).

    s are the scores of an anchor, N its negatives, P its positives. Only anchors with both a positive and a negative
    have a term. `margin` None is 0 if `soft`, else .2.
    """
    nearest_negative = scores.masked_fill(~negatives, -torch.inf).amax(1)
    farthest_positive = scores.masked_fill(~positives, torch.inf).amin(1)
    # Infinite where an anchor lacks a positive or a negative; such an anchor has no term.
    gap = nearest_negative - farthest_positive + _margin(margin, soft)
    valid = positives.any(1) & negatives.any(1)
    values = torch.where(
        valid, F.softplus(gap, threshold=50) if soft else F.relu(gap), torch.zeros_like(gap)
    )
    return Terms(values, valid.to(values.dtype), (values.detach() > 0).to(values.dtype))


def _margin(margin: float | None, soft: bool) -> float:
    """Return `margin`; if it is None, the default: 0 for a soft loss, which needs no margin, and else FaceNet's 0.2."""
    if margin is None:
        return 0.0 if soft else 0.2
    return margin


def _pairs(hinges: Scores, pairs: Mask, squared: bool) -> Terms:
    """Return the terms of each row: a pair of the mask `pairs` has its hinge h as value, or h^2 / 2 if `squared`."""
    values = (hinges.square() / 2 if squared else hinges).masked_fill(~pairs, 0)
    number = pairs.sum(1).to(values.dtype)
    above_zero = (values.detach() > 0).sum(1).to(values.dtype)
    return Terms(values.sum(1), number, above_zero)
