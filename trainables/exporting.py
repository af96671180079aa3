"""Trained networks as modules with their preprocessing, as `load_model` of a trainable returns them."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrasweep.trainables.fields import Centre
from contrasweep.trainables.pytorch import Float, ImageBatch, StoredImages, UInt8

OfChannels = Float[Tensor, "c 1 1"]
"""A number for each channel, which fits images [n c h w]."""
SCALED_AT_ONCE = 256
"""Images that are scaled at once, so that their copies in float32 stay small."""


class FromPixels(nn.Module):
    """A network with its preprocessing, for images as they are stored: uint8 [n c h w].

    An item is one image or a pair; the two images of a pair are its sides, each in a tensor of its own. The images are
    resized to squares of `size` pixels (None: not resized) and scaled to [0, 1]. Then `normalised` takes `mean` and
    `std` [c 1 1], and `centre`: the colour that is subtracted. `numbers`, if given, computes further inputs of the
    network from the stored images. The network is in evaluation mode, so that an image's output depends on no other
    image.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        mean: OfChannels,
        std: OfChannels,
        centre: Centre = "dataset",
        size: int | None = None,
        numbers: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.centre = centre
        self.size = size
        self.numbers = numbers
        self.register_buffer("mean", mean.cpu())
        self.register_buffer("std", std.cpu())
        self.cpu().eval()

    def forward(self, *sides: StoredImages) -> object:
        """Return the network's output for these images, one tensor per side."""
        # `numbers` reads the images as they are stored, the network reads them resized and normalised.
        resized = sides if self.size is None else [squares(side, self.size) for side in sides]
        numbers = () if self.numbers is None else self.numbers(*sides)
        return self.network(
            *normalised([side.float() / 255 for side in resized], self.mean, self.std, self.centre),
            *numbers,
        )


def squares(pixels: StoredImages, size: int) -> UInt8[Tensor, "n c size size"]:
    """Scale images to squares of `size` pixels, with antialiasing where they shrink.

    A `size` of 0 is the shorter side of the images; square images then stay as they are.
    """
    size = size or min(pixels.shape[2:])
    return resized(pixels, (size, size))


def resized(pixels: UInt8[Tensor, "n c _ _"], size: tuple[int, int]) -> StoredImages:
    """Scale images to this height and width, with antialiasing where they shrink."""
    # One layout in memory, so that sums over pixels come out the same whatever the images come from.
    pixels = pixels.contiguous()
    if tuple(pixels.shape[2:]) == size:
        return pixels
    chunks = [
        F.interpolate(chunk.float(), size, mode="bilinear", antialias=True, align_corners=False)
        for chunk in torch.split(pixels, SCALED_AT_ONCE)
    ]
    return torch.cat([chunk.round().clamp(0, 255).to(torch.uint8) for chunk in chunks])


def normalised(
    sides: Sequence[ImageBatch],
    mean: OfChannels,
    std: OfChannels,
    centre: Centre = "dataset",
) -> tuple[Tensor, ...]:
    """Return (x - colour) / std for each side x.

    All sides of an item have the same colour, so that a shift between them stays. With `centre` "dataset" the colour is
    `mean`, with "item" the item's own mean over its sides. With "both" the channels come twice, [n 2c h w]: first minus
    `mean`, then minus the item's mean.
    """
    colours: list[Tensor] = []
    if centre != "item":
        colours.append(mean)
    # The mean of each item and channel over its sides (axis 0) and pixels (3, 4), as [n c 1 1].
    if centre != "dataset":
        colours.append(torch.stack(tuple(sides)).mean((0, 3, 4))[..., None, None])
    return tuple(
        torch.cat([(side - colour) / std for colour in colours], 1).contiguous(
            memory_format=torch.channels_last
        )
        for side in sides
    )
