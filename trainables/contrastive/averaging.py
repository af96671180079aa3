"""Running averages of a network's weights: what `ema` evaluates and exports, and the momentum encoders of targets."""

import copy

import torch
from torch import Tensor, nn

from contrasweep.trainables import torch_internals
from contrasweep.trainables.checkpoint import StateDict


class MomentumEncoder(nn.Module):
    """A copy of the network `online` whose weights theta' follow those of the network, theta, and have no gradients.

    After each step theta' becomes m theta' + (1 - m) theta (He et al. 2020, equation 2); at the start both are equal.
    The copy has its own running statistics of batch normalisation.
    """

    def __init__(self, online: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(online).requires_grad_(False)

    @torch.no_grad()
    def update(self, online: nn.Module, momentum: float) -> None:
        """Move the copy's weights towards those of `online` by the share 1 - `momentum` of their distance."""
        torch_internals.lerp_(
            list(self.network.parameters()), list(online.parameters()), 1 - momentum
        )

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return the embeddings [n d] of `images` [n c h w], without gradient."""
        embeddings: Tensor = self.network(images)
        return embeddings


class Averaged:
    """A copy of `model` whose parameters follow it: average = decay * average + (1 - decay) * weight after each step.

    Buffers (the statistics of batch normalisation) are copied from the model, not averaged.
    """

    def __init__(self, model: nn.Sequential, decay: float) -> None:
        self.source = model
        self.decay = decay
        self.follower = MomentumEncoder(model)

    @property
    def model(self) -> nn.Sequential:
        """The network with the averaged weights, a module of its own beside `source`."""
        network: nn.Sequential = self.follower.network  # type: ignore[assignment]
        return network

    @torch.no_grad()
    def update(self) -> None:
        """Move each averaged weight towards the model's present one, after a step of the model's optimizer."""
        self.follower.update(self.source, self.decay)
        for copied, current in zip(self.model.buffers(), self.source.buffers(), strict=True):
            copied.copy_(current)

    def state_dict(self) -> StateDict:
        """Return the averaged weights."""
        state: StateDict = self.model.state_dict()
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore the averaged weights."""
        self.model.load_state_dict(state)
