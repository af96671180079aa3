"""Images of a trial on the device, and their views batch by batch: pairs, and single images of the same family."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrasweep.data import open_dataset
from contrasweep.errors import DataError
from contrasweep.trainables import augmentations, seeding
from contrasweep.trainables.exporting import normalised, squares
from contrasweep.trainables.images import moments
from contrasweep.trainables.paired.fitting import Inputs
from contrasweep.trainables.paired.network import Joint
from contrasweep.trainables.paired_images.colours import Colours
from contrasweep.trainables.paired_images.network import image_model, train_mode
from contrasweep.trainables.paired_images.settings import COLUMNS, Settings
from contrasweep.trainables.paired_images.views import apply_pair, draw_pair
from contrasweep.trainables.pytorch import ImageBatch, StoredImages
from contrasweep.trial import Trial

Sides = tuple[Tensor, ...]
"""What the network takes: (pre, post), or one batch of single inputs."""


class ImageInputs(Inputs):
    """The images of a trial's training and test part on the device, one tensor uint8 [n c h w] for each side.

    It also builds the network and draws the views, as `Inputs` asks of each modality.
    """

    def __init__(self, trial: Trial, settings: Settings, device: torch.device) -> None:
        self.settings = settings.resolve(trial.data)
        train, test = open_dataset(trial.data).parts(trial.fold)
        super().__init__(trial, train, test, device)
        # The sides of each part. One side that is fed twice is one tensor. Stored images are on the host: there may be
        # no room for them on the device. Colours are those of the images as stored, before they are resized.
        names = COLUMNS[self.settings.input]
        self.colours: Colours | None = None
        self.sides: dict[str, Sides] = {}
        self.colour_statistics: dict[str, Sides] = {"train": (), "test": ()}
        for split, part in (("train", train), ("test", test)):
            stored = {name: _pixels(part.array(name)) for name in set(names)}
            resized = {
                name: squares(pixels, self.settings.image_size).to(device)
                for name, pixels in stored.items()
            }
            self.sides[split] = tuple(resized[name] for name in names)
            if settings.colour_units:
                sides = [stored[name] for name in names]
                # The training part, which is first, has the quantiles.
                self.colours = self.colours or Colours.of(sides)
                self.colour_statistics[split] = tuple(x.to(device) for x in self.colours(*sides))
        # One scale for both images of a pair, since a scale for each would hide the shift between them.
        self.mean, self.std = moments(self.sides["train"])
        self.policy = self.settings.augmentation.settings

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        _, c, h, w = self.sides["train"][0].shape
        return c, h, w

    def model(self) -> Joint:
        """Build the network for these images, initialised from torch's global generator."""
        return image_model(self.settings, self.shape, self.classes)

    def train_mode(self, model: Joint) -> None:
        """Put the network into training mode, with BatchNorm as the encoder's `bn` says."""
        train_mode(model, self.settings.encoder.parameters.get("bn", "train"))

    def sides_of_rows(self, split: str, rows: Tensor) -> Sides:
        """Return the sides of these rows of `split` ("train", "test") without augmentation, normalised.

        Their colour statistics follow, where the network reads them.
        """
        return self._normal(
            [side[rows].to(self.device).float() / 255 for side in self.sides[split]]
        ) + self._statistics_of_rows(split, rows)

    def epoch(self, *key: int | str | None) -> Callable[[Tensor, slice], Sides]:
        """Draw the random views of all places of one epoch, seeded by `key`, whatever the batch size.

        Returns a function f(rows, places) -> sides, to be called for each batch. `rows` are the training rows of the
        batch, `places` is the slice of the epoch's order in which they stand. The result has the normalised views of
        each side, and then the colour statistics of each side if the network reads them.
        """
        # All of the epoch is drawn at once, one draw for each place of its order.
        n = len(self.train_labels)
        generator = seeding.generator(*key)
        draws: Any
        if self.settings.paired:
            draws = draw_pair(self.policy, n, generator)
        else:
            draws = augmentations.draw(self.policy, n, self.shape[0], generator)

        def views(rows: Tensor, places: slice) -> Sides:
            """Return the views that were drawn for these rows, normalised, and the rows' colour statistics."""
            pixels = [side[rows].to(self.device).float() / 255 for side in self.sides["train"]]
            draws_of_batch = draws[places].to(self.device)
            if self.settings.paired:
                moved: Sides = apply_pair(pixels[0], pixels[1], draws_of_batch)
            else:
                moved = (augmentations.apply(pixels[0], draws_of_batch),)
            return self._normal(moved) + self._statistics_of_rows("train", rows)

        return views

    def _statistics_of_rows(self, split: str, rows: Tensor) -> Sides:
        """Return the colour statistics of these rows, one tensor per side; () where the network reads none."""
        return tuple(side[rows] for side in self.colour_statistics[split])

    def _normal(self, sides: Sequence[ImageBatch]) -> Sides:
        """Return sides with values in [0, 1] as normalised ones (see `exporting.normalised`)."""
        return normalised(sides, self.mean, self.std, self.settings.centre)


def _pixels(array: Any) -> StoredImages:
    """Return stored images [n h w c] as [n c h w]; `DataError` where they are not uint8 or have other than 4 axes."""
    if array.ndim != 4 or array.dtype != np.uint8:
        raise DataError(f"images must be uint8 [n h w c], got {array.dtype} {list(array.shape)}")
    return torch.tensor(array).permute(0, 3, 1, 2).contiguous()
