"""Optimisers and the learning rate's course."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def build_optimizer(
    name: str,
    parameters: Iterable[Tensor],
    lr: float,
    weight_decay: float,
    momentum: float,
    device: torch.device,
) -> torch.optim.Optimizer:
    """`sgd` with momentum, or `adamw`; fused, which spares small models most of a step's cost."""
    options: dict[str, Any] = {
        "lr": lr,
        "weight_decay": weight_decay,
        "fused": device.type in ("cpu", "cuda"),
    }
    if name == "sgd":
        return torch.optim.SGD(parameters, momentum=momentum, **options)
    return torch.optim.AdamW(parameters, **options)


@dataclass(frozen=True)
class Schedule:
    """The learning rate at each step: linear warm-up from `warmup_from`, then a cosine down to lr * decay^3
    (SupContrast's, with decay .1). A function of the step alone, so that a resumed trial needs no state of it."""

    lr: float
    steps: int
    warmup_steps: int = 0
    warmup_from: float = 0.01
    decay: float = 0.1
    constant: bool = False

    def at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..., steps - 1."""
        after = self._after(max(step, self.warmup_steps))
        if step >= self.warmup_steps:
            return after
        low = min(self.warmup_from, after)
        return low + (after - low) * step / self.warmup_steps

    def _after(self, step: int) -> float:
        if self.constant:
            return self.lr
        low = self.lr * self.decay**3
        return low + (self.lr - low) * (1 + math.cos(math.pi * step / self.steps)) / 2
