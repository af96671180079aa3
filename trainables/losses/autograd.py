"""Functions with a gradient of their own: sums over tiles, and over triplets.

They derive from PyTorch's class, so modules that a plan reads import this one where they compute.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrasweep.trainables.losses import distributed
from contrasweep.trainables.losses.batch import Ids, Mask, Scores
from contrasweep.trainables.losses.loss import Terms
from contrasweep.trainables.losses.tiled import Anchors, TileGradient, tiles_of_anchors
from contrasweep.trainables.pytorch import Bool, Float, Matrix

TRIPLETS_AT_ONCE = 2**21
"""Triplets that are computed at once: 8 MB of float32."""


def sum_of_tiles(
    z: Matrix,
    ids: Ids,
    tile: TileGradient,
    max_scores: int | None = None,
    shared: bool = False,
) -> Float[Tensor, ""]:
    """Return the sum of `tile` over all tiles of a batch, differentiable once with respect to `z`.

    A tile has at most `max_scores` scores (None: as many as suit the device). `shared`: each process of the default
    group computes its share of the anchors, and all get the same sum and gradient.
    """
    rows = distributed.share(len(z)) if shared else range(len(z))
    total: Tensor = _SumOfTiles.apply(
        z, tile, list(tiles_of_anchors(ids, rows, max_scores)), shared
    )
    return total


class _SumOfTiles(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, tile: TileGradient, tiles: list[Anchors], shared: bool
    ) -> Tensor:
        """Sum the tiles; the gradient is computed here, so that no graph of the scores is kept."""
        gradient = torch.zeros_like(z) if ctx.needs_input_grad[0] else None
        # In float64, since float32 loses digits in a sum over many tiles.
        total = z.new_zeros((), dtype=torch.float64)
        # `tile` returns the sum of a tile's values, and adds their gradient to `gradient`.
        for anchors in tiles:
            total += tile(z, anchors, gradient)
        if shared:
            distributed.sum_up([total] if gradient is None else [total, gradient])
        if gradient is not None:
            ctx.save_for_backward(gradient)
        return total.to(z.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        # For z; tile, tiles and shared have none.
        return (gradient * upstream, None, None, None)


def triplet_terms(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    margin: float,
    soft: bool,
    mining: str,
) -> Terms:
    """Sum max(0, s_an - s_ap + margin) (softplus if `soft`) over the triplets of each anchor that `mining` takes.

    `mining` is "all", "hard" or "semi_hard" (see `margin.triplet`).

    The triplets of n rows are cubic in number. They are computed a tile of anchors at a time. The gradient is taken in
    the forward pass, so that one [n m] matrix of gradients is all that is kept.

    Returns:
        Per anchor the sum, the number of triplets, and the number above zero.
    """
    total, count, above = _Triplets.apply(scores, positives, negatives, margin, soft, mining)
    return Terms(total, count, above)


class _Triplets(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        positives: Tensor,
        negatives: Tensor,
        margin: float,
        soft: bool,
        mining: str,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return sum, number and number above zero of the terms of each anchor; the gradient is computed here."""
        gradient = torch.zeros_like(scores)
        total, count, above = (scores.new_zeros(len(scores)) for _ in range(3))
        for rows, columns, filled in _tiles(positives, scores.shape[1]):
            # s_an - s_ap of each anchor [t], positive [p] and column [m]; a triplet where the column is a negative.
            tile = scores[rows]
            gaps = tile[:, None, :] - tile.gather(1, columns)[:, :, None]
            in_use = (negatives[rows][:, None, :] & filled[:, :, None]) & _mined(
                gaps, margin, mining
            )
            # At -inf both value and slope are 0, so triplets that are not in use count nowhere.
            gaps = (gaps + margin).masked_fill(~in_use, -torch.inf)
            values = F.softplus(gaps, threshold=50) if soft else F.relu(gaps)
            slopes = gaps.sigmoid() if soft else (gaps > 0).to(gaps.dtype)
            total[rows] = values.sum((1, 2))
            count[rows] = in_use.sum((1, 2)).to(total.dtype)
            above[rows] = (values > 0).sum((1, 2)).to(total.dtype)
            # A gap rises with its negative's score: a negative's gradient is the sum over the positives.
            gradient_of_tile = slopes.sum(1)
            # A gap falls with its positive's score: a positive's gradient is minus the sum over the negatives.
            gradient[rows] = gradient_of_tile.scatter_add(1, columns, -slopes.sum(2))
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(count, above)
        return total, count, above

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, total: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        # `total` is the gradient of each anchor's sum; the counts have none, nor have the other inputs.
        return (gradient * total[:, None], None, None, None, None, None)


def _mined(gaps: Float[Tensor, "t p m"], margin: float, mining: str) -> Bool[Tensor, "t p m"]:
    """Return which triplets `mining` takes, by their gaps s_an - s_ap."""
    if mining == "hard":
        return gaps > 0
    if mining == "semi_hard":
        return (gaps <= 0) & (gaps > -margin)
    return torch.ones_like(gaps, dtype=torch.bool)


def _tiles(positives: Mask, columns: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield tiles: the rows of t anchors, the columns of their positives [t p], and which of these are no padding.

    p is the largest number of positives of an anchor; anchors with fewer have other columns as padding.
    """
    most = int(positives.sum(1).max()) if positives.numel() else 0
    if most == 0:
        return
    step = max(1, TRIPLETS_AT_ONCE // (most * columns))
    for start in range(0, len(positives), step):
        # Sorted, the columns of the positives come first, in their order.
        filled, places = (
            positives[start : start + step]
            .to(torch.uint8)
            .sort(dim=1, descending=True, stable=True)
        )
        yield slice(start, start + step), places[:, :most], filled[:, :most].bool()
