"""Diagnostics of contrastive trials: functions of a batch or a step that any trainable can put in its reports."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from contrasweep.trainables.losses.batch import BatchLoss, Ids, members, valid_anchors
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.loss import REDUCTIONS, Terms
from contrasweep.trainables.precision import widened
from contrasweep.trainables.pytorch import Float, Matrix
from contrasweep.trainables.similarities import unit

SAMPLED_ROWS = 2048
"""Rows that alignment and uniformity look at, at most: the first ones, since batches are in random order."""


@torch.no_grad()
def of_batch(
    loss: Any,
    value: Tensor | float,
    embeddings: Matrix,
    labels: Ids,
    instance_ids: Ids | None = None,
) -> dict[str, float]:
    """Return the metrics of a training batch, whose loss has this `value`.

    These are `valid_anchors` (the number of rows with a positive), `alignment` and `uniformity`. A `ComposedLoss` also
    has `collapse_value` (its value where all embeddings are equal), `collapse_distance` = value - collapse_value, and
    `collapsed`. `collapsed` is 1 where the value is within 1 % of the collapse value and all embeddings have one
    direction, else 0. Where the similarity depends on lengths, the directions may differ: embeddings far shorter than
    the margin or temperature also bring a loss to its collapse value.
    """
    # The positives of a function of another package are the rows with the same label.
    ids = loss.ids(labels, instance_ids) if isinstance(loss, BatchLoss) else labels
    z = widened(embeddings.detach())
    metrics = {
        "valid_anchors": float(valid_anchors(ids)),
        "alignment": alignment(z[:SAMPLED_ROWS], ids[:SAMPLED_ROWS]),
        "uniformity": uniformity(z[:SAMPLED_ROWS]),
    }
    if isinstance(loss, ComposedLoss):
        collapse = collapse_value(loss, ids, typical_score(loss, z))
        distance = float(value) - collapse
        # A uniformity near 0 says that all directions coincide. They need not where the similarity depends on lengths,
        # and so has no lowest score.
        coincide = metrics["uniformity"] > -0.05 or math.isinf(loss.similarity.low)
        # Within 1 %; of a collapse value near 0, within 1e-4.
        collapsed = coincide and abs(distance) <= 0.01 * max(abs(collapse), 0.01)
        metrics |= {
            "collapse_value": collapse,
            "collapse_distance": distance,
            "collapsed": float(collapsed),
        }
    return metrics


def collapse_value(loss: ComposedLoss, ids: Ids, score: float) -> float:
    """Return the value of `loss` for a batch with these `ids` [n] whose embeddings are all equal.

    Every score is then `score` (see `typical_score`). The value is

    - log(n - 1) for SupCon, InfoNCE (without epsilon) and OCL,
    - the mean of log(1 + |N(i)|) over the anchors i for SINCERE,
    - the margin for triplets and batch-hard, and ln 2 for their soft forms.
    """
    # All anchors of a class have the same value. So one row of each class is computed, unless the loss needs the scores
    # of all rows.
    member, counts = members(ids)
    places = torch.arange(len(ids), device=ids.device)
    if loss.definition.all_pairs:
        computed_rows = places
        computed_row_of = places
    else:
        # Any one row of each class: of several rows that are written to one index, one stays.
        computed_rows = places.new_zeros(len(counts)).scatter_(0, member, places)
        computed_row_of = member
    same = ids[computed_rows, None] == ids
    positives = same & (computed_rows[:, None] != places)
    terms = loss.terms(
        torch.full(same.shape, score, dtype=torch.float64, device=ids.device), positives, ~same
    )
    # Each row has the terms of its computed row; then they are reduced as in training.
    pairs = (counts[member] - 1).double()
    reduce = REDUCTIONS[loss.reduction]
    value = 0.0
    for part in terms:
        of_all_rows = Terms(*(values[computed_row_of] for values in part))
        value += float(reduce(of_all_rows, pairs))
    return value


def typical_score(loss: ComposedLoss, z: Matrix) -> float:
    """Return the score of two equal embeddings: the similarity's largest.

    The dot product has none: there it is the mean squared length of `z`, or 1 where `z` has no rows.
    """
    if math.isfinite(loss.similarity.high):
        return loss.similarity.high
    return 1.0 if len(z) == 0 else float(z.double().square().sum(1).mean())


def alignment(z: Matrix, ids: Ids) -> float:
    """Mean |u_i - u_p|^2 over positive pairs of unit embeddings, 0 to 4; NaN without pairs (Wang & Isola 2020)."""
    # |u_i - u_p|^2 = |u_i|^2 + |u_p|^2 - 2 u_i.u_p, summed by class, so that no matrix of all pairs is needed.
    u = unit(z.double())
    member, counts = members(ids)
    pairs = (counts * (counts - 1)).sum()
    # The sum of |u_i|^2 over all pairs: each row has as many pairs as its class has other rows.
    squares = u.square().sum(1)
    lengths = ((counts[member] - 1) * squares).sum()
    # The sum of u_i.u_p: |sum of a class|^2 is that over all its pairs, and of each row with itself.
    class_sums = u.new_zeros(len(counts), u.shape[1]).index_add(0, member, u)
    products = class_sums.square().sum() - squares.sum()
    return float((2 * lengths - 2 * products) / pairs) if pairs else math.nan


def uniformity(z: Matrix) -> float:
    """Return log mean e^{-2 |u_i - u_j|^2} over pairs of unit embeddings; NaN for fewer than 2 rows.

    0 when all coincide, about -4 when spread over a sphere of many dimensions (Wang & Isola 2020).
    """
    if len(z) < 2:
        return math.nan
    u = unit(z)
    return float(torch.pdist(u).square().mul(-2).exp().mean().log())


def gradient_norm(gradients: Iterable[Tensor | None]) -> Float[Tensor, ""]:
    """Return the L2 norm of all gradients together, in float32 or more; a gradient that is None counts as zero."""
    norms = [torch.linalg.vector_norm(widened(g)) for g in gradients if g is not None]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
