"""Optimisers and the learning rate's course.

The optimisers are ours and not torch.optim's, because the first `torch.optim.Optimizer` of a process imports
torch._dynamo, which takes seconds and some 100 MB: more than a whole small trial.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contrasweep.errors import SpecError, choose_from


class SGD:
    """Stochastic gradient descent with momentum and L2 weight decay: torch.optim.SGD's update."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, weight_decay: float = 0.0, momentum: float = 0.9
    ) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.lr, self.weight_decay, self.momentum = lr, weight_decay, momentum
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters against `gradients`, which this may overwrite."""
        with torch.no_grad():
            if self.weight_decay:
                torch._foreach_add_(gradients, self.parameters, alpha=self.weight_decay)
            torch._foreach_mul_(self.velocity, self.momentum)
            torch._foreach_add_(self.velocity, gradients)
            torch._foreach_add_(self.parameters, self.velocity, alpha=-self.lr)

    def state_dict(self) -> dict[str, Any]:
        return {"velocity": self.velocity}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        _copy(self.velocity, state["velocity"])


class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), torch.optim.AdamW's update."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.lr, self.weight_decay, self.betas, self.eps = lr, weight_decay, betas, eps
        self.mean = [torch.zeros_like(p) for p in self.parameters]
        self.square = [torch.zeros_like(p) for p in self.parameters]
        self.steps = 0

    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters against `gradients`."""
        self.steps += 1
        first, second = self.betas
        with torch.no_grad():
            torch._foreach_mul_(self.parameters, 1 - self.lr * self.weight_decay)
            torch._foreach_lerp_(self.mean, gradients, 1 - first)
            torch._foreach_mul_(self.square, second)
            torch._foreach_addcmul_(self.square, gradients, gradients, value=1 - second)
            scale = torch._foreach_sqrt(self.square)
            torch._foreach_div_(scale, math.sqrt(1 - second**self.steps))
            torch._foreach_add_(scale, self.eps)
            torch._foreach_addcdiv_(self.parameters, self.mean, scale, value=-self.lr / (1 - first**self.steps))

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        _copy(self.mean, state["mean"])
        _copy(self.square, state["square"])
        self.steps = state["steps"]


Optimizer = SGD | AdamW
OPTIMIZERS = ("sgd", "adamw")


def build_optimizer(
    name: str, parameters: Iterable[Tensor], lr: float, weight_decay: float = 0.0, momentum: float = 0.9
) -> Optimizer:
    """The optimiser `name`; `momentum` is SGD's."""
    if name not in OPTIMIZERS:
        raise SpecError(
            "there is no such optimiser",
            place="optimizer",
            value=name,
            hint=choose_from("optimisers", list(OPTIMIZERS), name),
        )
    return SGD(parameters, lr, weight_decay, momentum) if name == "sgd" else AdamW(parameters, lr, weight_decay)


def gradients_of(optimizer: Optimizer, loss: Tensor) -> list[Tensor]:
    """d loss / d parameter for each of the optimiser's parameters; zero for one that the loss does not depend on."""
    found = torch.autograd.grad(loss, optimizer.parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(optimizer.parameters, found, strict=True)]


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


def _copy(to: list[Tensor], values: list[Tensor]) -> None:
    for tensor, value in zip(to, values, strict=True):
        tensor.copy_(value)
