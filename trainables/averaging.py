"""Exponential moving average of a network's weights: what is evaluated and exported where `ema` is set."""

import copy

import torch
from torch import Tensor, nn

from contrasweep.trainables import torch_internals
from contrasweep.trainables.checkpoint import StateDict


class Averaged:
    """A copy of `model` whose parameters follow it: average = decay * average + (1 - decay) * weight after each step.
    Buffers (the statistics of batch normalisation) are the model's own, as they are now."""

    def __init__(self, model: nn.Sequential, decay: float) -> None:
        self.decay = decay
        self.source, self.model = model, copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        """Follow the model by one step."""
        average: list[Tensor] = list(self.model.parameters())
        weights: list[Tensor] = list(self.source.parameters())
        torch_internals.lerp_(average, weights, 1 - self.decay)
        for mine, theirs in zip(self.model.buffers(), self.source.buffers(), strict=True):
            mine.copy_(theirs)

    def state_dict(self) -> StateDict:
        """The averaged weights."""
        state: StateDict = self.model.state_dict()
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore the averaged weights."""
        self.model.load_state_dict(state)
