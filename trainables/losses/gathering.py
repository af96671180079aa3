"""The rows of all processes with the gradient of this process's own."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrasweep.trainables.losses.distributed import gather, place, processes


def gather_with_gradient(z: Float[Tensor, "n d"]) -> Float[Tensor, "N d"]:
    """As `gather`; the gradient of this process's rows comes back, times the number of processes."""
    joined: Tensor = _Gather.apply(z)
    return joined


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        before = gather(torch.tensor([len(z)], device=z.device))[: place()[0]].sum()
        ctx.own = slice(int(before), int(before) + len(z))
        return gather(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient[ctx.own] * processes()
