"""Learned temperatures of K members."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.trainables.contrastive.temperature import LOWEST, LearnableTemperature
from contrasweep.trainables.fusing.folding.slots import Slots


class FoldedTemperature:
    """t = t0 exp(-s) for each member: `LearnableTemperature` with a leading axis."""

    def __init__(self, slots: Slots) -> None:
        device = slots.active.device
        self.log_scale = nn.Parameter(torch.zeros(slots.count, device=device))
        self.initial: Float[Tensor, " k"] = torch.ones(slots.count, dtype=torch.float64, device=device)

    @torch.no_grad()
    def put(self, slot: int, plain: LearnableTemperature) -> None:
        """Let a slot go on from a plain temperature."""
        self.initial[slot] = plain.initial
        self.log_scale[slot] = plain.log_scale.detach()

    def take(self, slot: int) -> dict[str, Tensor]:
        """The state dict of a slot's plain temperature."""
        return {"log_scale": self.log_scale.detach()[slot].clone()}

    def value(self, slot: int) -> float:
        """A slot's temperature as it is now."""
        return float(self.initial[slot]) * math.exp(-float(self.log_scale.detach()[slot]))

    def clipped(self, log_scale: Float[Tensor, " k"], initial: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        """Log-scales within their bounds."""
        return torch.minimum(log_scale, (initial / LOWEST).log().clamp(min=0).to(log_scale.dtype))
