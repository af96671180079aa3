"""Running averages of a network's weights: what `ema` evaluates and exports, and the momentum encoders of targets."""

import copy

import torch
from torch import Tensor, nn

from contrasweep.trainables import torch_internals
from contrasweep.trainables.checkpoint import StateDict


class MomentumEncoder(nn.Module):
    """theta' <- m theta' + (1 - m) theta after each step of `online`, from equal weights at the start.

    Source: He et al. 2020, equation 2. Statistics of normalisations are its own. It has no gradients.
    """

    def __init__(self, online: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(online).requires_grad_(False)

    @torch.no_grad()
    def update(self, online: nn.Module, momentum: float) -> None:
        """Move towards the weights of `online` by 1 - momentum."""
        torch_internals.lerp_(
            list(self.network.parameters()), list(online.parameters()), 1 - momentum
        )

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return the embeddings of `images`, without gradient."""
        embeddings: Tensor = self.network(images)
        return embeddings


class Averaged:
    """A copy of `model` whose parameters follow it: average = decay * average + (1 - decay) * weight after each step.

    Buffers (the statistics of batch normalisation) are the model's own, as they are now.
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
        """Update the average after a step of the model."""
        self.follower.update(self.source, self.decay)
        for mine, theirs in zip(self.model.buffers(), self.source.buffers(), strict=True):
            mine.copy_(theirs)

    def state_dict(self) -> StateDict:
        """Return the averaged weights."""
        state: StateDict = self.model.state_dict()
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore the averaged weights."""
        self.model.load_state_dict(state)
