"""Rules for convolutions: grouped ones, and batched products of shifted views.

Folding K convolutions into one with K groups is HFTA's (Wang et al. 2021, MLSys). On a CPU, and for few channels, a
product of the unfolded windows with the weights (im2col and col2im: Chellapilla et al. 2006) is faster, once compiled.
It is made of few and plain operations, so that a compiler has little to do.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from contrasweep.trainables.fusing.folding.rules import Engine, Slots, folding_rule, stacked
from contrasweep.trainables.pytorch import Float

Images = Float[Tensor, "k n h w c"]
Pair = tuple[int, int]


def output_size(side: int, kernel: int, stride: int) -> int:
    """Return how many windows of `kernel` pixels lie along a padded side, `stride` pixels apart."""
    return (side - kernel) // stride + 1


def windows(x: Images, kernel: Pair, stride: Pair) -> Float[Tensor, "k n y x a b c"]:
    """Return a view of all windows of padded images."""
    k, n, h, w, c = x.shape
    (a, b), (below, beside) = kernel, stride
    of_member, of_row, down, right, channel = x.stride()
    size = (k, n, output_size(h, a, below), output_size(w, b, beside), a, b, c)
    return x.as_strided(size, (of_member, of_row, down * below, right * beside, down, right, channel))


def overlapped(gradients: Float[Tensor, "k n y x a b c"], size: Pair, stride: Pair) -> Images:
    """Return the sum of windows where they overlap: the gradient of `windows` for padded images of this size."""
    rows = _along(gradients, 2, 4, size[0], stride[0])  # [k n h x b c]
    return _along(rows, 3, 4, size[1], stride[1])


def _along(gradients: Tensor, axis: int, of_kernel: int, side: int, stride: int) -> Tensor:
    """Turn one axis of windows and one of the kernel's pixels into one of the image's pixels, `side` of them.

    Pixel stride * q + r is the sum over m of pixel r + stride * m of the window at q - m.
    """
    taps = gradients.unbind(of_kernel)
    lines = -(-side // stride)
    behind = [0, 0] * (taps[0].ndim - 1 - axis)
    phases = []
    for r in range(stride):
        shifted = [F.pad(tap, (*behind, m, lines - tap.shape[axis] - m)) for m, tap in enumerate(taps[r::stride])] or [
            taps[0].new_zeros(1).expand(*taps[0].shape[:axis], lines, *taps[0].shape[axis + 1 :])
        ]
        total = shifted[0]
        for more in shifted[1:]:
            total = total + more
        phases.append(total)
    if stride == 1:
        return phases[0].narrow(axis, 0, side)
    return torch.stack(phases, axis + 1).flatten(axis, axis + 1).narrow(axis, 0, side)


class WindowProduct(torch.autograd.Function):
    """Padded images [k n h w c] and weights [k a*b*c o] to maps [k n*y*x o]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, kernel: Pair, stride: Pair) -> Tensor:
        """Return the windows' product with the weights."""
        columns = windows(x, kernel, stride).reshape(len(x), -1, weight.shape[1])
        ctx.save_for_backward(columns, weight)
        ctx.size, ctx.kernel, ctx.stride = x.shape, kernel, stride
        return torch.bmm(columns, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Two more products; images that need no gradient have none."""
        columns, weight = ctx.saved_tensors
        to_weight = torch.bmm(columns.transpose(1, 2), gradients) if ctx.needs_input_grad[1] else None
        to_images = None
        if ctx.needs_input_grad[0]:
            k, n, h, w, c = ctx.size
            (a, b), (below, beside) = ctx.kernel, ctx.stride
            of_windows = torch.bmm(gradients, weight.transpose(1, 2))
            of_windows = of_windows.view(k, n, output_size(h, a, below), output_size(w, b, beside), a, b, c)
            to_images = overlapped(of_windows, (h, w), ctx.stride)
        return to_images, to_weight, None, None


def joined(x: Float[Tensor, "k n c *size"]) -> Float[Tensor, "n kc *size"]:
    """Return the members' channels side by side, as torch's own layers take them; a view where memory lies so."""
    return x.transpose(0, 1).flatten(1, 2)


def divided(x: Float[Tensor, "n kc *size"], slots: Slots) -> Float[Tensor, "k n c *size"]:
    """Return the reverse of `joined`, always a view."""
    return x.view(len(x), slots.count, x.shape[1] // slots.count, *x.shape[2:]).transpose(0, 1)


class GroupedConv(nn.Module):
    """K convolutions as one with K times the groups."""

    def __init__(self, module: Any, slots: Slots) -> None:
        super().__init__()
        self.slots, self.plain = slots, (module.stride, module.padding, module.dilation)
        self.groups, self.mode = module.groups, module.padding_mode
        self.around = module._reversed_padding_repeated_twice
        self.convolution = getattr(F, f"conv{len(module.kernel_size)}d")
        self.weight = stacked(module.weight, slots.count)
        self.bias = None if module.bias is None else stacked(module.bias, slots.count)

    def forward(self, x: Float[Tensor, "k n c *size"]) -> Float[Tensor, "k n o *out"]:
        """Convolve the maps [k n c *size] of each member."""
        x, (stride, padding, dilation) = joined(x), self.plain
        if self.mode != "zeros":
            x, padding = F.pad(x, self.around, mode=self.mode), 0
        bias = None if self.bias is None else self.bias.flatten()
        groups = self.groups * self.slots.count
        return divided(
            self.convolution(x, self.weight.flatten(0, 1), bias, stride, padding, dilation, groups), self.slots
        )


class ProductConv(nn.Module):
    """K convolutions as batched products: the windows of all places [k n*h*w a*b*c] with the weights [k a*b*c o].

    The weights lie in memory as the product wants them, [k a b c o]; their axes are the plain ones, [k o c a b].
    """

    def __init__(self, module: nn.Conv2d, slots: Slots) -> None:
        super().__init__()
        self.slots = slots
        self.stride, self.kernel = module.stride, module.kernel_size
        self.around = module._reversed_padding_repeated_twice
        weight = stacked(module.weight, slots.count)
        lying = weight.detach().permute(0, 3, 4, 2, 1).contiguous().permute(0, 4, 3, 1, 2)
        self.weight = nn.Parameter(lying, requires_grad=weight.requires_grad)
        self.bias = None if module.bias is None else stacked(module.bias, slots.count)

    def forward(self, x: Float[Tensor, "k n c h w"]) -> Float[Tensor, "k n o y x"]:
        """Convolve the maps [k n c h w] of each member; the channels of the result lie innermost in memory."""
        x = x.permute(0, 1, 3, 4, 2)  # [k n h w c]
        if any(self.around):
            x = F.pad(x, (0, 0, *self.around))
        height, width = (output_size(*along) for along in zip(x.shape[2:4], self.kernel, self.stride, strict=True))
        weight = self.weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
        y: Tensor = WindowProduct.apply(x.contiguous(), weight, self.kernel, self.stride)
        y = y if self.bias is None else y + self.bias[:, None]
        return y.view(len(x), x.shape[1], height, width, -1).permute(0, 1, 4, 2, 3)


@folding_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def fold_convolution(module: Any, slots: Slots, engine: Engine) -> nn.Module:
    """Fold into products where convolutions of images have no groups, dilation or padding but zeros, else groups."""
    plain = isinstance(module, nn.Conv2d) and module.groups == 1 and module.dilation == (1, 1)
    if engine.convolution == "products" and plain and module.padding_mode == "zeros":
        return ProductConv(module, slots)
    return GroupedConv(module, slots)
