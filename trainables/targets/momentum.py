"""A momentum encoder: a network whose weights are the running average of another's."""

import copy

import torch
from torch import nn

from contrasweep.trainables import torch_internals


class MomentumEncoder(nn.Module):
    """theta' <- m theta' + (1 - m) theta after each step of `online`, from equal weights at the start (He et al. 2020,
    equation 2). Statistics of normalisations are its own. It has no gradients."""

    def __init__(self, online: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(online).requires_grad_(False)

    @torch.no_grad()
    def update(self, online: nn.Module, momentum: float) -> None:
        """Move towards the weights of `online` by 1 - momentum."""
        torch_internals.lerp_(list(self.network.parameters()), list(online.parameters()), 1 - momentum)

    @torch.no_grad()
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The embeddings of `images`, without gradient."""
        embeddings: torch.Tensor = self.network(images)
        return embeddings
