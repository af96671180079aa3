"""The sum of a loss over tiles of a batch, whose gradient is taken as each tile is computed."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrasweep.trainables.losses import distributed
from contrasweep.trainables.losses.ids import Ids
from contrasweep.trainables.losses.tiled import Anchors, TileGradient, anchors


def weighted_sum(
    z: Float[Tensor, "n d"], ids: Ids, tile: TileGradient, scores: int | None = None, shared: bool = False
) -> Float[Tensor, ""]:
    """Sum of `tile` over all tiles, differentiable once with respect to `z`. `shared`: each process of the default
    group computes its share of the anchors, and all get the same sum and gradient."""
    rows = distributed.share(len(z)) if shared else range(len(z))
    total: Tensor = _WeightedSum.apply(z, tile, list(anchors(ids, rows, scores)), shared)
    return total


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, tile: TileGradient, tiles: list[Anchors], shared: bool) -> Tensor:
        gradient = torch.zeros_like(z) if ctx.needs_input_grad[0] else None
        total = z.new_zeros((), dtype=torch.float64)
        for one in tiles:
            total += tile(z, one, gradient)
        if shared:
            distributed.sum_up([total] if gradient is None else [total, gradient])
        if gradient is not None:
            ctx.save_for_backward(gradient)
        return total.to(z.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return (gradient * upstream, None, None, None)
