"""The colours of a pair as numbers that a network reads beside its images.

Each image has statistics of its channels and of its chromaticities (shares of the brightness, and normalised
differences of neighbouring channels). The statistics are mean, deviation and five quantiles, of the values as they are
and of the values less the pair's own mean. Each statistic is ranked among those of the training part and transformed to
a normal distribution, because a threshold on a colour says more than a distance. Statistics are those of images as
stored, because resizing would blur the outer quantiles. Turning and mirroring change them little: on a large image only
every k-th pixel is looked at, and these are other pixels then.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contrasweep.trainables.pytorch import Float, ImageBatch, StoredImages

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a channel's values over an image that are statistics."""
LEVELS = 100
"""Quantiles of a statistic over the training part, among which a value is ranked."""
LIMIT = 3.0
"""The largest magnitude of a transformed statistic, in standard deviations: that of an image unlike all others."""
CHUNK_IMAGES = 64
"""Images at a time: torch before 2.15 takes quantiles of at most 2^24 values, and 13 channels give 76 a place."""
MAX_PLACES = 1024
"""Places of an image that are looked at, on a grid: enough for its quantiles."""
DARK = 0.01
"""Added to every pixel, so that the shares of a black one are finite."""


def count(channels: int) -> int:
    """Return f, the number of colour statistics of an image with so many channels."""
    # Twice (about zero, and about the pair's mean): mean, deviation and quantiles of each channel, each share of the
    # brightness, and each of the channels - 1 differences of neighbours.
    return 2 * (2 + len(QUANTILES)) * (3 * channels - 1)


class Colours(nn.Module):
    """Colour statistics of images, transformed to a normal distribution over the training part.

    `levels` [LEVELS, f] has the quantiles of each statistic there.
    """

    levels: Tensor

    def __init__(self, levels: Float[Tensor, "levels f"]) -> None:
        super().__init__()
        self.register_buffer("levels", levels)

    @classmethod
    def of(cls, sides: Sequence[StoredImages]) -> "Colours":
        """Compute the quantiles of each statistic over a training part.

        Both sides of its pairs share them, so that differences between the sides stay.
        """
        # The statistics of all images of both sides, one below the other.
        numbers = torch.cat(_statistics_of_stored(sides))
        q = torch.linspace(0, 1, LEVELS, device=numbers.device)
        # One by one, since torch takes quantiles of at most 2^24 values: 75,000 pairs together have more.
        return cls(torch.stack([torch.quantile(column.contiguous(), q) for column in numbers.T], 1))

    def forward(self, *sides: StoredImages) -> tuple[Float[Tensor, "n f"], ...]:
        """Return the statistics of each side [n f], which are normally distributed over the training part."""
        return tuple(self._normal(numbers) for numbers in _statistics_of_stored(sides))

    def _normal(self, numbers: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
        """Return the numbers by their rank among the training part's, as quantiles of the normal distribution."""
        levels = self.levels.T.contiguous()
        values = numbers.T.contiguous()
        # A value that equals several levels is placed in the middle of them.
        first = torch.searchsorted(levels, values)
        last = torch.searchsorted(levels, values, right=True)
        place = (first + last).T / 2
        # Ranks of 0 and 1 would be infinitely far out.
        rank = (place / LEVELS).clamp(0.5 / LEVELS, 1 - 0.5 / LEVELS)
        normal: Tensor = torch.special.ndtri(rank)
        return normal.clamp(-LIMIT, LIMIT).float()


def statistics(sides: Sequence[ImageBatch]) -> list[Float[Tensor, "n f"]]:
    """Return the f raw colour statistics of each image of each side; images have values in [0, 1]."""
    # Every `step`-th pixel of each side is looked at: about MAX_PLACES of an image, [n channels places].
    step = max(1, round(math.sqrt(sides[0][0, 0].numel() / MAX_PLACES)))
    values = []
    for side in sides:
        pixels = side[..., ::step, ::step]
        values.append(torch.cat([pixels, _chromaticities(pixels)], 1).flatten(2))
    # The mean of each pair and channel, over both sides.
    mean = torch.stack([x.mean(2, keepdim=True) for x in values]).mean(0)
    levels = torch.tensor(QUANTILES, device=mean.device)
    # Mean, deviation and quantiles of each channel: of its values, then of their differences from that mean.
    numbers = []
    for x in values:
        columns = torch.cat([x, x - mean], 1)
        quantiles = torch.quantile(columns, levels, dim=2)
        parts = [columns.mean(2), columns.std(2, correction=0), *quantiles]
        numbers.append(torch.cat(parts, 1))
    return numbers


def _chromaticities(image: ImageBatch) -> Float[Tensor, "n c2 h w"]:
    """Return each channel's share of the brightness, then normalised differences of neighbouring channels."""
    bright = image + DARK
    first = bright[:, 1:]
    second = bright[:, :-1]
    return torch.cat([bright / bright.sum(1, keepdim=True), (first - second) / (first + second)], 1)


def _statistics_of_stored(sides: Sequence[StoredImages]) -> list[Tensor]:
    """Return the statistics of each side [n f], computed for some images of all sides at a time."""
    parts = []
    for chunks in zip(*(torch.split(side, CHUNK_IMAGES) for side in sides), strict=True):
        # One memory layout, so that sums come out the same.
        parts.append(statistics([chunk.contiguous().float() / 255 for chunk in chunks]))
    return [torch.cat(same_side) for same_side in zip(*parts, strict=True)]
