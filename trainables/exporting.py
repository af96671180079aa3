"""Trained networks as modules of their own, with what stands before them: what `load_model` of a trainable gives."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn


class FromPixels(nn.Module):
    """`network` on images as they are stored: uint8 [n c h w], one tensor a side, scaled to [0, 1] and normalised by
    `mean` and `std` [c 1 1]. In evaluation mode, so that an image's output depends on no other image."""

    def __init__(self, network: nn.Module, mean: Float[Tensor, "c 1 1"], std: Float[Tensor, "c 1 1"]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", mean.cpu())
        self.register_buffer("std", std.cpu())
        self.cpu().eval()

    def forward(self, *sides: UInt8[Tensor, "n c h w"]) -> object:
        normal = [((side.float() / 255 - self.mean) / self.std).contiguous(memory_format=torch.channels_last) for side in sides]
        return self.network(*normal)
