"""The losses of review-helpfulness models: adaptive cross-modal contrast, pairwise ranking, binary helpfulness."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal, get_args

from contrasweep.components import Table
from contrasweep.errors import SpecError, check_known
from contrasweep.trainables.fields import Positive
from contrasweep.trainables.pytorch import Bool, F, Float, Int, Tensor, torch

Pooled = Float[Tensor, "b d"]
Scalar = Float[Tensor, ""]
ContrastiveReduction = Literal["sum", "mean_anchor", "balanced"]
RankingReduction = Literal["sum", "mean", "none"]


def adaptive_contrastive_loss(
    h_p: Pooled,
    h_r: Pooled,
    v_p: Pooled,
    v_r: Pooled,
    *,
    o_pos: float,
    o_neg: float,
    adaptive: bool = True,
    clamp_weights: bool = False,
    detach_weights: bool = False,
    reduction: str = "balanced",
    product_ids: Int[Tensor, " b"] | Sequence[int] | None = None,
    mask_same_product: bool = False,
) -> Scalar:
    """Return Eq. 33 of Nguyen et al., EMNLP 2022 (Eq. 32 with `adaptive=False`), of the b helpful rows of a batch.

    `h_p`, `h_r`, `v_p`, `v_r` are the max-pooled features of product text, review text, product images and review
    images. The six unordered pairs of these are positives within a row and negatives across rows; similarity is the
    cosine, 0 for a zero vector. Positives weigh o_pos - s, negatives s - o_neg. `clamp_weights` keeps the weights
    from going below 0, `detach_weights` keeps gradients out of them: either is another loss than the paper's.
    `mask_same_product` takes pairs of rows of one product out of the negatives.

    Reductions: `sum` (the paper's; grows as b^2), `mean_anchor` (sum / 6b), `balanced` (mean over positives plus
    mean over negatives). No rows give 0, one row has no negatives. `SpecError` where a reduction is unknown, or
    `mask_same_product` has no `product_ids`.
    """
    check_known(
        reduction,
        "reductions",
        get_args(ContrastiveReduction),
        "there is no such reduction",
        place="reduction",
    )
    # For each of the six pairs of features a matrix [b b] of cosines, whose diagonal has the positives.
    rows = len(h_p)
    similarity = _similarities(h_p, h_r, v_p, v_r)
    positives = torch.diagonal(similarity, dim1=-2, dim2=-1)
    negatives = similarity[:, _negatives(rows, product_ids, mask_same_product, h_p.device)]
    if adaptive:
        positives = positives * _weights(o_pos - positives, clamp_weights, detach_weights)
        negatives = negatives * _weights(negatives - o_neg, clamp_weights, detach_weights)
    pulled = -positives.sum()
    pushed = negatives.sum()
    if reduction == "balanced":
        return pulled / max(1, positives.numel()) + pushed / max(1, negatives.numel())
    total = pulled + pushed
    return total / (6 * max(1, rows)) if reduction == "mean_anchor" else total


def circle_contrastive_loss(*features: Pooled) -> Scalar:
    """Return the circle loss (Sun et al. 2020) that the code of Nguyen et al. 2022 has in place of their Eq. 33.

    `features` are the four of `adaptive_contrastive_loss`. The loss is the mean over rows j, and over the six pairs of
    features, of

        softplus(-g a_jj (s_jj - 1 + m) + log sum_k e^{g b_jk (s_jk - m)})

    Here s are cosines, m = 0.25 and g = 256. The weights a = max(0, 1 + m - s) and b = max(0, s + m) have no gradient.
    As in that code, k = j is among the negatives too. No rows give 0.
    """
    margin = 0.25
    gamma = 256.0
    # [6 b b] cosines, on whose diagonals are the positives. `pulled` [6 b] is -a (s - 1 + m), `pushed` b (s - m).
    similarity = _similarities(*features)
    positives = torch.diagonal(similarity, dim1=-2, dim2=-1)
    pulled = F.relu(1 + margin - positives).detach() * (1 - margin - positives)
    pushed = F.relu(similarity + margin).detach() * (similarity - margin)
    terms = F.softplus(gamma * pulled + torch.logsumexp(gamma * pushed, -1))
    return terms.sum() / max(1, terms.numel())


def _similarities(*features: Pooled) -> Float[Tensor, "6 b b"]:
    """Return the cosines of rows for the six pairs of four features [b d], in the order (0, 1), (0, 2), ... (2, 3).

    Entry (j, k) of a pair's [b b] is the cosine of row j of the first feature with row k of the second.
    """
    first, second = zip(*combinations(range(4), 2), strict=True)
    unit = _unit(torch.stack(features))
    return unit[list(first)] @ unit[list(second)].mT


def _unit(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """Return x / |x|; a zero vector stays zero, with a gradient of ordinary size (1/eps would be 1e8 and more)."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(norm == 0, torch.ones_like(norm), norm)


def _negatives(
    rows: int,
    product_ids: Tensor | Sequence[int] | None,
    mask_same_product: bool,
    device: "torch.device",
) -> Bool[Tensor, "b b"]:
    """Return which pairs of rows are negatives: those of different rows, with the mask those of different products."""
    different_rows = ~torch.eye(rows, dtype=torch.bool, device=device)
    if not mask_same_product:
        return different_rows
    if product_ids is None:
        raise SpecError("mask_same_product needs product_ids", place="product_ids")
    ids = torch.as_tensor(product_ids, device=device)
    return different_rows & (ids[:, None] != ids[None, :])


def _weights(weights: Tensor, clamp: bool, detach: bool) -> Tensor:
    """Return the weights, not below 0 with `clamp`, and without gradient with `detach`."""
    weights = F.relu(weights) if clamp else weights
    return weights.detach() if detach else weights


def pairwise_ranking_loss(
    positive_scores: Float[Tensor, " g"],
    negative_scores: Float[Tensor, " g"] | Float[Tensor, "g k"],
    *,
    beta: float | Float[Tensor, "..."],
    reduction: str,
) -> Float[Tensor, "..."]:
    """Return max(0, beta - f+ + f-), Eq. 34 of Nguyen et al. 2022, for g positives with one or k negatives each.

    `beta` is the margin: a number, or a tensor of the negatives' shape. With `reduction` "none" the result has the
    shape of the negatives. "sum" adds up all its values, and "mean" divides the sum by the number of positives. No
    pairs give 0.
    """
    check_known(
        reduction,
        "reductions",
        get_args(RankingReduction),
        "there is no such reduction",
        place="reduction",
    )
    # Against k negatives each, positives are [g 1].
    if negative_scores.dim() > positive_scores.dim():
        positive_scores = positive_scores[:, None]
    loss = F.relu(beta - positive_scores + negative_scores)
    if reduction == "none":
        return loss
    return loss.sum() / max(1, len(loss)) if reduction == "mean" else loss.sum()


def hinge(
    scores: Float[Tensor, "g w"],
    labels: Int[Tensor, "g w"],
    helpful_threshold: int,
    *,
    margin: Literal["fixed", "label_diff"] = "fixed",
    beta: Positive = 1.0,
) -> Scalar:
    """Return the ranking loss (Eq. 34) of g groups whose first review is the positive.

    The margin is `beta` (`fixed`), or how far the label of the positive is above that of the negative (`label_diff`).
    `helpful_threshold` is not used; it is there because all `LOSSES` take it.
    """
    margins = beta if margin == "fixed" else (labels[:, :1] - labels[:, 1:]).to(scores.dtype)
    return pairwise_ranking_loss(scores[:, 0], scores[:, 1:], beta=margins, reduction="mean")


def bce(scores: Float[Tensor, "g w"], labels: Int[Tensor, "g w"], helpful_threshold: int) -> Scalar:
    """Return the binary cross-entropy of `label >= helpful_threshold` against the scores as logits."""
    return F.binary_cross_entropy_with_logits(
        scores, (labels >= helpful_threshold).to(scores.dtype)
    )


GroupLoss = Callable[..., Tensor]
"""(scores [g w], labels [g w], helpful_threshold, parameters of its own) -> []: the loss of g groups of w reviews."""

LOSSES: Table[GroupLoss] = Table("loss", {"hinge": hinge, "bce": bce}, plural="losses")
"""name -> the loss of sampled groups."""
