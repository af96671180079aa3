"""Colours of image pairs by group: every group's brought to one mean and deviation, each side and channel by itself.

What another scene, season or sensor adds to all images of a group goes; what differs within the group stays. It reads
no label, so a group that is held out may be treated so too, once its images are there.
"""

import numpy as np
from numpy.typing import NDArray

MEAN, DEVIATION = 128.0, 42.0
"""What is stored: three deviations to either side of the mean fit a byte."""

Key = tuple[str, str]
"""A group and a side."""


class GroupColours:
    """Sums over the images added so far, by group and side."""

    def __init__(self) -> None:
        self._sums: dict[Key, NDArray[np.float64]] = {}  # [3, c]: pixels, sum, sum of squares

    def add(self, key: Key, image: NDArray[np.uint8]) -> None:
        """Count an image [h w c] of this group and side."""
        pixels = image.reshape(-1, image.shape[-1]).astype(np.float64)
        sums = np.stack([np.full(pixels.shape[1], len(pixels)), pixels.sum(0), (pixels**2).sum(0)])
        self._sums[key] = self._sums[key] + sums if key in self._sums else sums

    def normalised(self, key: Key, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """`image` [h w c] with the group's mean at `MEAN` and its deviation at `DEVIATION`, clipped to a byte; a
        channel that never varies in the group is `MEAN` everywhere."""
        count, total, squares = self._sums[key]
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
        scale = np.divide(DEVIATION, deviation, out=np.zeros_like(deviation), where=deviation > 1e-6)
        pixels: NDArray[np.uint8] = np.clip(np.rint(MEAN + (image - mean) * scale), 0, 255).astype(np.uint8)
        return pixels
