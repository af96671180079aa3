"""A temperature that is learned with the network."""

import math
from dataclasses import replace

import torch
from torch import nn

from contrasweep.trainables.losses import ComposedLoss

LOWEST = 0.01
"""CLIP's bound: logits are scaled by 100 at most."""


class LearnableTemperature(nn.Module):
    """A temperature t = t0 exp(-s) with a learned s that starts at 0; `initial` is t0.

    s is the logarithm of the scale of the logits, as in CLIP (Radford et al. 2021, section 2.3). The temperature
    stays at .01 (`LOWEST`) or above, or at t0 where that is lower. Weight decay is towards t0.
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.initial = initial
        self.log_scale = nn.Parameter(torch.zeros(()))

    @property
    def value(self) -> float:
        """The temperature as it is now, as a plain number without gradient."""
        return self.initial * math.exp(-float(self.log_scale.detach()))

    def applied_to(self, loss: ComposedLoss) -> ComposedLoss:
        """Return `loss` at this temperature, through which gradients reach the temperature."""
        return replace(loss, scale=self.log_scale.exp())

    @torch.no_grad()
    def clip(self) -> None:
        """Keep the temperature at or above its lower bound; called after each step."""
        # t0 exp(-s) >= LOWEST where s <= log(t0 / LOWEST); s may always be 0.
        self.log_scale.clamp_(max=max(0.0, math.log(self.initial / LOWEST)))
