"""Trained networks as modules of their own, with what stands before them: what `load_model` of a trainable gives."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn


class FromPixels(nn.Module):
    """`network` on images as they are stored: uint8 [n c h w], one tensor a side, scaled to [0, 1] and normalised by
    `mean` (None: each item's own) and `std` [c 1 1]. In evaluation mode, so that an image's output depends on no other
    image."""

    mean: Tensor | None
    std: Tensor

    def __init__(self, network: nn.Module, mean: Float[Tensor, "c 1 1"] | None, std: Float[Tensor, "c 1 1"]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", None if mean is None else mean.cpu())
        self.register_buffer("std", std.cpu())
        self.cpu().eval()

    def forward(self, *sides: UInt8[Tensor, "n c h w"]) -> object:
        return self.network(*normalised([side.float() / 255 for side in sides], self.mean, self.std))


def normalised(
    sides: Sequence[Float[Tensor, "n c h w"]], mean: Float[Tensor, "c 1 1"] | None, std: Float[Tensor, "c 1 1"]
) -> tuple[Tensor, ...]:
    """(x - mean) / std, the same on all sides, so that the shift between them stays; without `mean`, minus the mean
    colour of each item over its sides."""
    centre = torch.stack(tuple(sides)).mean((0, 3, 4))[..., None, None] if mean is None else mean
    return tuple(((side - centre) / std).contiguous(memory_format=torch.channels_last) for side in sides)
