"""Optimizers over K members: the updates of `trainables.optimisation` with hyperparameters for each member.

An update is a pure function of stacked tensors, so that a compiled step can hold it; who is allowed to move is decided
where the result is copied back (`step`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from contrasweep.config import Config
from contrasweep.trainables.checkpoint import StateDict
from contrasweep.trainables.fusing.folding.rules import PerMember, Slots, Unfoldable, copied, like
from contrasweep.trainables.optimisation import LARS, SGD, AdamW

Stacked = list[Tensor]
"""One tensor [K ...] a parameter."""


class FoldedOptimizer(ABC):
    """The part that all share: scalars [K] in float64, states stacked as the parameters are.

    `lr` [K] is written before a step. `templates` are tensors shaped and lying in memory as the plain parameters.
    """

    defaults: ClassVar[Mapping[str, float]] = {}
    """Numbers of the plain optimizer beside its rate."""
    names: ClassVar[tuple[str, ...]] = ()
    """States, one tensor a parameter each."""
    counts: ClassVar[tuple[str, ...]] = ()
    """States that are one whole number."""

    def __init__(
        self, parameters: Sequence[Tensor], slots: Slots, templates: Sequence[Tensor], *, decay_on: str = "all"
    ) -> None:
        self.parameters, self.slots, self.templates = list(parameters), slots, list(templates)
        self.decayed = [decay_on == "all" or p.ndim - 1 > 1 for p in self.parameters]
        device = slots.active.device
        self.scalars: dict[str, PerMember] = {
            name: torch.full((slots.count,), float(value), dtype=torch.float64, device=device)
            for name, value in {"lr": 0.0, **self.defaults, **dict.fromkeys(self.counts, 0.0)}.items()
        }
        self.states: dict[str, Stacked] = {
            name: [torch.zeros_like(p, requires_grad=False) for p in self.parameters] for name in self.names
        }

    @property
    def lr(self) -> PerMember:
        """Return each member's learning rate of its next step."""
        return self.scalars["lr"]

    def put(self, slot: int, options: Config, state: StateDict | None = None) -> None:
        """Give a slot its member's options, and the state of its plain optimizer (None: of one that is new)."""
        for name, number in self.named(options).items():
            self.scalars[name][slot] = number
        for name in self.counts:
            self.scalars[name][slot] = 0 if state is None else state[name]
        for name, stacked in self.states.items():
            for i, value in enumerate(stacked):
                if state is None:
                    value[slot].zero_()
                else:
                    value[slot].copy_(state[name][i])

    def take(self, slot: int) -> StateDict:
        """Return the state of a slot's member as its plain optimizer has it."""
        taken: StateDict = {
            name: [copied(value[slot], plain) for plain, value in zip(self.templates, stacked, strict=True)]
            for name, stacked in self.states.items()
        }
        return taken | {name: int(self.scalars[name][slot]) for name in self.counts}

    def named(self, options: Config) -> dict[str, float]:
        """Return our scalars from the plain optimizer's options."""
        return {name: float(options.get(name, default)) for name, default in self.defaults.items()}

    @abstractmethod
    def moved(
        self, parameters: Stacked, gradients: Stacked, states: Mapping[str, Stacked], scalars: Mapping[str, PerMember]
    ) -> tuple[Stacked, dict[str, Stacked], dict[str, PerMember]]:
        """Return the parameters, states and counts after one step; the arguments are not changed."""


class FoldedSGD(FoldedOptimizer):
    """SGD with momentum and L2 weight decay."""

    defaults: ClassVar[Mapping[str, float]] = {"weight_decay": 0.0, "momentum": 0.9}
    names = ("velocity",)

    def moved(
        self, parameters: Stacked, gradients: Stacked, states: Mapping[str, Stacked], scalars: Mapping[str, PerMember]
    ) -> tuple[Stacked, dict[str, Stacked], dict[str, PerMember]]:
        """Return weights and velocities: v = momentum v + g + weight_decay w; w = w - lr v."""
        weights, velocities = [], []
        each = [scalars[name] for name in ("lr", "weight_decay", "momentum")]
        rates = {dtype: [value.to(dtype) for value in each] for dtype in {p.dtype for p in parameters}}
        for p, g, v, decayed in zip(parameters, gradients, states["velocity"], self.decayed, strict=True):
            lr, decay, momentum = (like(value, p) for value in rates[p.dtype])
            g = self.decayed_gradient(p, g, decay, decayed)
            velocities.append(v * momentum + g)
            weights.append(p - velocities[-1] * lr)
        return weights, {"velocity": velocities}, {}

    def decayed_gradient(self, parameter: Tensor, gradient: Tensor, decay: Tensor, decayed: bool) -> Tensor:
        """Return the gradient plus that of the weight decay."""
        return torch.addcmul(gradient, parameter, decay) if decayed else gradient


class FoldedLARS(FoldedSGD):
    """Layer-wise adaptive rates on SGD, with each member's own norms."""

    defaults: ClassVar[Mapping[str, float]] = {"weight_decay": 0.0, "momentum": 0.9, "trust": 0.001}

    def moved(
        self, parameters: Stacked, gradients: Stacked, states: Mapping[str, Stacked], scalars: Mapping[str, PerMember]
    ) -> tuple[Stacked, dict[str, Stacked], dict[str, PerMember]]:
        """SGD's update along gradients that are scaled by trust |w| / |g + weight_decay w|."""
        scaled = [self._scaled(p, g, scalars) for p, g in zip(parameters, gradients, strict=True)]
        return super().moved(parameters, scaled, states, scalars)

    def decayed_gradient(self, parameter: Tensor, gradient: Tensor, decay: Tensor, decayed: bool) -> Tensor:
        """Return the gradient, which has its decay already."""
        return gradient

    def _scaled(self, p: Tensor, g: Tensor, scalars: Mapping[str, PerMember]) -> Tensor:
        if p.ndim - 1 <= 1:
            return g
        g = torch.addcmul(g, p, like(scalars["weight_decay"].to(p.dtype), p))
        size, gradient_norm = (torch.linalg.vector_norm(value.flatten(1), dim=1) for value in (p, g))
        scale = torch.where((size > 0) & (gradient_norm > 0), scalars["trust"].to(p.dtype) * size / gradient_norm, 1.0)
        return g * like(scale, g)


class FoldedAdamW(FoldedOptimizer):
    """Adam with decoupled weight decay; members may have taken different numbers of steps."""

    defaults: ClassVar[Mapping[str, float]] = {"weight_decay": 0.0, "first": 0.9, "second": 0.999, "eps": 1e-8}
    names, counts = ("mean", "square"), ("steps",)

    def named(self, options: Config) -> dict[str, float]:
        """Return our scalars from the plain optimizer's options; its `betas` are two of them."""
        first, second = options.get("betas", (0.9, 0.999))
        return super().named({**options, "first": first, "second": second})

    def moved(
        self, parameters: Stacked, gradients: Stacked, states: Mapping[str, Stacked], scalars: Mapping[str, PerMember]
    ) -> tuple[Stacked, dict[str, Stacked], dict[str, PerMember]]:
        """Return weights and moments: w = w (1 - lr weight_decay) - lr m' / (sqrt(s') + eps), both moments unbiased."""
        lr, decay, first, second, eps = (scalars[n] for n in ("lr", "weight_decay", "first", "second", "eps"))
        steps = scalars["steps"] + 1
        rate, root = lr / (1 - first**steps), (1 - second**steps).sqrt()
        each = (1 - lr * decay, 1 - first, second, 1 - second, rate, root, eps)
        rates = {dtype: [value.to(dtype) for value in each] for dtype in {p.dtype for p in parameters}}
        weights, means, squares = [], [], []
        for p, g, m, s, decayed in zip(
            parameters, gradients, states["mean"], states["square"], self.decayed, strict=True
        ):
            keep, one, two, rest, by, below, e = (like(value, p) for value in rates[p.dtype])
            means.append(m + (g - m) * one)
            squares.append(s * two + g * g * rest)
            decayed_p = p * keep if decayed else p
            weights.append(decayed_p - by * means[-1] / (squares[-1].sqrt() / below + e))
        return weights, {"mean": means, "square": squares}, {"steps": steps}


FOLDED: Mapping[Any, type[FoldedOptimizer]] = {SGD: FoldedSGD, AdamW: FoldedAdamW, LARS: FoldedLARS}
"""class of the plain optimizer -> its folded form."""


def fold_optimizer(
    plain: Any, parameters: Sequence[Tensor], slots: Slots, templates: Sequence[Tensor], *, decay_on: str = "all"
) -> FoldedOptimizer:
    """Return the folded form of a class of `contrasweep.trainables.optimisation`; `Unfoldable` for all others."""
    if plain not in FOLDED:
        raise Unfoldable(f"the optimizer {getattr(plain, 'name', plain)} has no form for several members")
    return FOLDED[plain](parameters, slots, templates, decay_on=decay_on)
