"""The latent hierarchical correlation l: how a pair differs along the encoder's stages (LOCAL, section 3.4).

The paper resizes the stages' difference maps to one size, concatenates all channels, takes their mean, flattens
and normalises. Resizing is linear and treats channels alike, so the mean over channels may be taken first:

    l = normalize(flatten(sum_i C_i resize(mean_c d_i) / sum_i C_i))

which is the same vector without the map of 960 (ResNet-18/34) or 3840 (ResNet-50) channels.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from contrasweep.errors import SpecError
from contrasweep.trainables.precision import widened

BLOCKS = ("1-2-3-4", "2-3-4", "3-4", "4")
"""The choices of stages of the paper's Table 5."""

EPS = 1e-6


def chosen(blocks: str) -> tuple[int, ...]:
    """Indices from 0 of the stages that `blocks` names: "3-4" -> (2, 3)."""
    return tuple(int(block) - 1 for block in blocks.split("-"))


def resize(maps: Float[Tensor, "n c *size"], size: Sequence[int]) -> Float[Tensor, "n c *out"]:
    """`maps` at `size`: averaged where they are larger, interpolated linearly where they are smaller."""
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    if any(have < want for have, want in zip(maps.shape[2:], size, strict=True)):
        mode = "bilinear" if len(size) == 2 else "linear"
        return F.interpolate(maps, tuple(size), mode=mode, align_corners=False)
    if len(size) == 2:
        return F.adaptive_avg_pool2d(maps, (size[0], size[1]))
    return F.adaptive_avg_pool1d(maps, size[0])


def latent(
    pre: Sequence[Float[Tensor, "n _ *_"]],
    post: Sequence[Float[Tensor, "n _ *_"]],
    *,
    blocks: str,
    size: Sequence[int],
    weighting: str = "channel",
) -> Float[Tensor, "n d"]:
    """l [n D_L] from the stage outputs of both sides, stage 1 first; D_L is the product of `size`.

    `weighting` is `channel` (the paper's: a stage counts by its channels, so stage 4 makes up half of l) or
    `block` (every stage counts alike).
    """
    total: Tensor | float = 0.0
    weights = 0.0
    for i in chosen(blocks):
        weight = float(pre[i].shape[1]) if weighting == "channel" else 1.0
        difference = widened(pre[i] - post[i]).mean(1, keepdim=True)
        total = total + weight * resize(difference, size)
        weights += weight
    assert isinstance(total, Tensor)
    return F.normalize((total / weights).flatten(1), dim=1, eps=EPS)


def rank(maps: Sequence[Sequence[int]], size: Sequence[int]) -> int:
    """A bound on the dimensions that l of stages with maps of these sizes spans at `size`: enlarging adds none."""
    return sum(math.prod(map(min, have, size)) for have in maps)


def check_size(size: Sequence[int], classes: int) -> None:
    """`SpecError` unless l has a dimension for every class: fewer cannot hold K orthogonal classes."""
    dimensions = int(torch.Size(size).numel())
    if dimensions < classes:
        raise SpecError(
            f"l needs a dimension for each of the {classes} classes",
            place="latent.size",
            value=dimensions,
            hint="use larger images, a larger latent.size, or beta 0",
        )
