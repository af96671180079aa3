"""Rules for layers without parameters: elementwise ones, pooling, flattening, dropout."""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.trainables.fusing.folding.convolutions import divided, joined
from contrasweep.trainables.fusing.folding.engines import Engine
from contrasweep.trainables.fusing.folding.errors import Unfoldable
from contrasweep.trainables.fusing.folding.rules import folding_rule
from contrasweep.trainables.fusing.folding.slots import Slots

ELEMENTWISE = (
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
)
POOLING = (
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
)


@folding_rule(*ELEMENTWISE)
def fold_elementwise(module: nn.Module, slots: Slots, engine: Engine) -> nn.Module:
    """The layer itself: it does not ask how many axes there are."""
    return copy.deepcopy(module)


class FoldedPooling(nn.Module):
    """A pooling of each channel for itself, whoever it belongs to."""

    def __init__(self, module: nn.Module, slots: Slots) -> None:
        super().__init__()
        self.slots, self.pooling = slots, copy.deepcopy(module)
        self.whole = isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1))

    def forward(self, x: Float[Tensor, "k n c *size"]) -> Float[Tensor, "k n c *out"]:
        """Pool the maps of all members."""
        if self.whole:
            return x.mean((-2, -1), keepdim=True)
        return divided(self.pooling(joined(x)), self.slots)


@folding_rule(*POOLING)
def fold_pooling(module: nn.Module, slots: Slots, engine: Engine) -> nn.Module:
    """The same pooling on the members' channels side by side."""
    return FoldedPooling(module, slots)


class FoldedFlatten(nn.Module):
    """A flattening whose axes are counted after the members'."""

    def __init__(self, module: nn.Flatten) -> None:
        super().__init__()
        self.first, self.last = (axis if axis < 0 else axis + 1 for axis in (module.start_dim, module.end_dim))

    def forward(self, x: Float[Tensor, "k n ..."]) -> Float[Tensor, "k ..."]:
        """Flatten the axes of each member."""
        return x.flatten(self.first, self.last)


@folding_rule(nn.Flatten)
def fold_flatten(module: nn.Flatten, slots: Slots, engine: Engine) -> nn.Module:
    """The same flattening within each member."""
    return FoldedFlatten(module)


class FoldedDropout(nn.Module):
    """Dropout whose mask each member draws from its own generator: what torch's dropout draws from it alone."""

    def __init__(self, module: Any, slots: Slots) -> None:
        super().__init__()
        self.slots, self.p, self.by_channel = slots, module.p, not isinstance(module, nn.Dropout)

    def forward(self, x: Float[Tensor, "k n ..."]) -> Float[Tensor, "k n ..."]:
        """Zero a share `p` of each member's values in training, and scale the others up."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x * 0
        shape = (*x.shape[1:3], *[1] * (x.ndim - 3)) if self.by_channel else x.shape[1:]
        masks = [torch.empty(shape, dtype=x.dtype, device=x.device) for _ in range(len(x))]
        for mask, generator in zip(masks, self.slots.generators, strict=True):
            mask.bernoulli_(1 - self.p, generator=generator)
        return x * torch.stack(masks).div_(1 - self.p)


@folding_rule(nn.Dropout, nn.Dropout2d)
def fold_dropout(module: Any, slots: Slots, engine: Engine) -> nn.Module:
    """Masks from the members' own generators, which no compiled step can draw from."""
    if engine.compiled and module.p > 0:
        raise Unfoldable(f"{type(module).__name__} draws from a generator per member, which a compiled step cannot")
    return FoldedDropout(module, slots)
