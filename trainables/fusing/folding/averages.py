"""Exponential moving averages of the weights of K members."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from contrasweep.trainables.checkpoint import StateDict
from contrasweep.trainables.fusing.folding.network import Folded


class FoldedAverage:
    """average = decay * average + (1 - decay) * weight after each step that a member takes, as `averaging.Averaged`.
    `put` and `take` give whole state dicts, with the buffers of the network as they are."""

    def __init__(self, network: Folded) -> None:
        self.network = network
        self.values = {name: value.detach().clone() for name, value in network.named_parameters()}
        slots = network.slots
        self.decay: Float[Tensor, " k"] = torch.zeros(slots.count, dtype=torch.float64, device=slots.active.device)

    @torch.no_grad()
    def put(self, slot: int, decay: float, state: Mapping[str, Tensor]) -> None:
        """Let a slot's average go on from a plain network's state dict."""
        self.decay[slot] = decay
        for name, value in self.values.items():
            value[slot].copy_(state[name])

    def take(self, slot: int) -> dict[str, Tensor]:
        """The plain state dict of a slot's average."""
        state: StateDict = self.network.take(slot)
        for name, value in self.values.items():
            state[name].copy_(value[slot])
        return state
