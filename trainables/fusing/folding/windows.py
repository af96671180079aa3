"""The windows of a convolution as rows of a matrix, and back: im2col and col2im (Chellapilla et al. 2006), with few
and plain operations, so that a compiler has little to do."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

Images = Float[Tensor, "k n h w c"]
Pair = tuple[int, int]


def places(side: int, kernel: int, stride: int) -> int:
    """How many windows of `kernel` pixels lie along a padded side, `stride` pixels apart."""
    return (side - kernel) // stride + 1


def windows(x: Images, kernel: Pair, stride: Pair) -> Float[Tensor, "k n y x a b c"]:
    """A view of all windows of padded images."""
    k, n, h, w, c = x.shape
    (a, b), (below, beside) = kernel, stride
    of_member, of_row, down, right, channel = x.stride()
    size = (k, n, places(h, a, below), places(w, b, beside), a, b, c)
    return x.as_strided(size, (of_member, of_row, down * below, right * beside, down, right, channel))


def overlapped(slopes: Float[Tensor, "k n y x a b c"], size: Pair, stride: Pair) -> Images:
    """The sum of windows where they overlap: the gradient of `windows` for padded images of this size."""
    rows = _along(slopes, 2, 4, size[0], stride[0])  # [k n h x b c]
    return _along(rows, 3, 4, size[1], stride[1])


def _along(slopes: Tensor, axis: int, of_kernel: int, side: int, stride: int) -> Tensor:
    """One axis of places and one of the kernel's pixels to one of the images' pixels, `side` of them: pixel
    stride * q + r is the sum over m of pixel r + stride * m of the window at q - m."""
    taps = slopes.unbind(of_kernel)
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
        """The windows' product with the weights."""
        columns = windows(x, kernel, stride).reshape(len(x), -1, weight.shape[1])
        ctx.save_for_backward(columns, weight)
        ctx.size, ctx.kernel, ctx.stride = x.shape, kernel, stride
        return torch.bmm(columns, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        """Two more products; images that need no gradient have none."""
        columns, weight = ctx.saved_tensors
        to_weight = torch.bmm(columns.transpose(1, 2), slopes) if ctx.needs_input_grad[1] else None
        to_images = None
        if ctx.needs_input_grad[0]:
            k, n, h, w, c = ctx.size
            (a, b), (below, beside) = ctx.kernel, ctx.stride
            of_windows = torch.bmm(slopes, weight.transpose(1, 2))
            of_windows = of_windows.view(k, n, places(h, a, below), places(w, b, beside), a, b, c)
            to_images = overlapped(of_windows, (h, w), ctx.stride)
        return to_images, to_weight, None, None
