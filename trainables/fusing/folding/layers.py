"""Rules for all layers but convolutions: linear ones, normalisation, pooling, dropout, elementwise functions."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrasweep.trainables.fusing.folding.convolutions import divided, joined
from contrasweep.trainables.fusing.folding.rules import Engine, Slots, Unfoldable, folding_rule, like, stacked
from contrasweep.trainables.pytorch import Float


class FoldedLinear(nn.Module):
    """K linear layers as one batched product."""

    def __init__(self, module: nn.Linear, slots: Slots) -> None:
        super().__init__()
        self.weight = stacked(module.weight, slots.count)
        self.bias = None if module.bias is None else stacked(module.bias, slots.count)

    def forward(self, x: Float[Tensor, "k *n i"]) -> Float[Tensor, "k *n o"]:
        """Map rows [k ... i] of each member to its rows [k ... o]."""
        rows, weight = x.flatten(1, -2), self.weight.transpose(1, 2)
        y = torch.bmm(rows, weight) if self.bias is None else torch.baddbmm(self.bias[:, None], rows, weight)
        return y.view(*x.shape[:-1], -1)


@folding_rule(nn.Linear)
def fold_linear(module: nn.Linear, slots: Slots, engine: Engine) -> nn.Module:
    """K linear layers as one batched product."""
    return FoldedLinear(module, slots)


PerChannel = Float[Tensor, "k c"]


class FoldedBatchNorm(nn.Module):
    """K batch normalisations with statistics for each member; those of inactive slots do not change.

    torch's own kernel on the members' channels side by side.
    """

    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(self, module: Any, slots: Slots) -> None:
        super().__init__()
        self.slots, self.eps, self.momentum = slots, module.eps, module.momentum
        for name in ("weight", "bias"):
            value = getattr(module, name)
            self.register_parameter(name, None if value is None else stacked(value, slots.count))  # type: ignore[arg-type]
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            value = getattr(module, name)
            self.register_buffer(name, None if value is None else stacked(value, slots.count))

    def forward(self, x: Float[Tensor, "k n c *size"]) -> Float[Tensor, "k n c *size"]:
        """Normalise each member's activations by its own statistics."""
        of_batch = self.training or self.running_mean is None
        weight, bias = (None if value is None else value.flatten() for value in (self.weight, self.bias))
        if not of_batch:
            mean, variance = self.running_mean.flatten(), self.running_var.flatten()
            return divided(F.batch_norm(joined(x), mean, variance, weight, bias, False, 0.0, self.eps), self.slots)
        full = torch.promote_types(x.dtype, torch.float32)  # as torch keeps them under autocast
        mean, variance = (x.new_zeros(self.slots.count * x.shape[2], dtype=full) for _ in range(2))
        y = F.batch_norm(
            joined(x), mean, variance, weight, bias, True, 1.0, self.eps
        )  # leaves the batch's in these two
        self._track(mean.view(self.slots.count, -1), variance.view(self.slots.count, -1))
        return divided(y, self.slots)

    @torch.no_grad()
    def _track(self, mean: PerChannel, variance: PerChannel) -> None:
        """Move the running statistics of active slots towards the batch's, whose variance is the unbiased one."""
        if self.running_mean is None or not self.training:
            return
        slots = self.slots
        slots.keep_inactive(self.num_batches_tracked, self.num_batches_tracked + 1)
        share: Any = self.momentum
        if share is None:  # a plain average over all batches so far
            share = like(1 / self.num_batches_tracked.clamp(min=1).to(mean.dtype), mean)
        for kept, now in ((self.running_mean, mean), (self.running_var, variance)):
            slots.keep_inactive(kept, kept * (1 - share) + now * share)


class ProductBatchNorm(FoldedBatchNorm):
    """The same from means over rows and places, for activations whose channels lie innermost in memory."""

    def forward(self, x: Float[Tensor, "k n c *size"]) -> Float[Tensor, "k n c *size"]:
        """Normalise each member's activations by its own statistics."""
        axes = (1, *range(3, x.ndim))
        shape = (self.slots.count, 1, -1, *[1] * (x.ndim - 3))
        if self.training or self.running_mean is None:
            mean = x.mean(axes, keepdim=True)
            centred = x - mean
            variance = centred.square().mean(axes, keepdim=True)
            count, channels = self.slots.count, x.shape[2]
            rows = x.numel() // (count * channels)
            unbiased = variance.detach() * (rows / max(rows - 1, 1))
            self._track(mean.detach().view(count, channels), unbiased.view(count, channels))
        else:
            centred = x - self.running_mean.view(shape)
            variance = self.running_var.view(shape)
        y = centred * torch.rsqrt(variance + self.eps)
        if self.bias is None:
            return y if self.weight is None else y * self.weight.view(shape)
        return torch.addcmul(self.bias.view(shape), y, self.weight.view(shape))


@folding_rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def fold_batch_norm(module: Any, slots: Slots, engine: Engine) -> nn.Module:
    """Fold a batch normalisation with statistics for each member.

    torch's kernel computes them, or means over the axes where activations are laid out for matrix products.
    """
    return ProductBatchNorm(module, slots) if engine.convolution == "products" else FoldedBatchNorm(module, slots)


class FoldedGroupNorm(nn.Module):
    """K group normalisations as one with K times the groups."""

    def __init__(self, module: nn.GroupNorm, slots: Slots) -> None:
        super().__init__()
        self.slots, self.groups, self.eps = slots, module.num_groups, module.eps
        self.weight = None if module.weight is None else stacked(module.weight, slots.count)
        self.bias = None if module.bias is None else stacked(module.bias, slots.count)

    def forward(self, x: Float[Tensor, "k n c *size"]) -> Float[Tensor, "k n c *size"]:
        """Normalise each row of each member within its groups of channels."""
        weight, bias = (None if value is None else value.flatten() for value in (self.weight, self.bias))
        return divided(F.group_norm(joined(x), self.groups * self.slots.count, weight, bias, self.eps), self.slots)


@folding_rule(nn.GroupNorm)
def fold_group_norm(module: nn.GroupNorm, slots: Slots, engine: Engine) -> nn.Module:
    """Fold into one group normalisation with K times the groups."""
    return FoldedGroupNorm(module, slots)


class FoldedLayerNorm(nn.Module):
    """K layer normalisations: one without weights, then each member's own."""

    def __init__(self, module: nn.LayerNorm, slots: Slots) -> None:
        super().__init__()
        self.shape, self.eps = module.normalized_shape, module.eps
        self.weight = None if module.weight is None else stacked(module.weight, slots.count)
        self.bias = None if module.bias is None else stacked(module.bias, slots.count)

    def forward(self, x: Float[Tensor, "k n ..."]) -> Float[Tensor, "k n ..."]:
        """Normalise each row of each member over its last axes."""
        y = F.layer_norm(x, self.shape, eps=self.eps)
        between = [1] * (x.ndim - 1 - len(self.shape))
        for value, apply in ((self.weight, torch.mul), (self.bias, torch.add)):
            if value is not None:
                y = apply(y, value.view(len(x), *between, *self.shape))
        return y


@folding_rule(nn.LayerNorm)
def fold_layer_norm(module: nn.LayerNorm, slots: Slots, engine: Engine) -> nn.Module:
    """Fold into one normalisation, with each member's weights."""
    return FoldedLayerNorm(module, slots)


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
    """Return the layer itself: it does not ask how many axes there are."""
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
    """Return the same pooling on the members' channels side by side."""
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
    """Return the same flattening within each member."""
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
    """Fold a dropout layer.

    Its masks come from the members' own generators, so that the step cannot be compiled.
    """
    if engine.compiled and module.p > 0:
        raise Unfoldable(f"{type(module).__name__} draws from a generator per member, which a compiled step cannot")
    return FoldedDropout(module, slots)
