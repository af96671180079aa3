"""Settings of paired images, and of single ones of the same family."""

from dataclasses import replace
from typing import Literal

from contrasweep.components import Component
from contrasweep.config import MutableConfig
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.schema import checked, resolved_config
from contrasweep.study import dotted
from contrasweep.trainables.fields import Centre, MaybeCount
from contrasweep.trainables.files import with_digest_of_weights
from contrasweep.trainables.images import image_shape
from contrasweep.trainables.paired.settings import PairedSettings
from contrasweep.trainables.paired_images.encoders import (
    ENCODERS,
    SMALL_STEM_PIXELS,
    check_encoder,
    stage_side,
)
from contrasweep.trainables.paired_images.views import AUGMENTATIONS, resolve_augmentation

COLUMNS = {
    "pair": ("pre", "post"),
    "pre": ("pre", "pre"),
    "post": ("post", "post"),
    "single": ("image",),
    "pre_single": ("pre",),
    "post_single": ("post",),
}
"""`input` -> the columns that are the sides."""


@checked
class Settings(PairedSettings):
    """Settings of the methods for pairs of images (the LOCAL paper), and for single images as in its Tables 6 and 7."""

    input: Literal["pair", "pre", "post", "single", "pre_single", "post_single"] = "pair"
    """`pair`; `pre` or `post`: the same network fed one side twice, which shows what the change is worth; `single` for
    datasets of single images, `pre_single` or `post_single` for one side of pairs as if they were single (then z = e,
    the classifier sees r, and there is no l: beta must be 0)."""
    encoder: Component = ENCODERS.setting("resnet18")
    """The encoder, with its parameters."""
    colour_units: MaybeCount = 0
    """Width of a layer that reads colour statistics of each image, its output beside the encoder's in r; 0: none."""
    image_size: MaybeCount = 0
    """Side of the images in pixels; 0: as staged."""
    centre: Centre = "dataset"
    """The colour that is subtracted: the training part's mean (`dataset`); the item's own over its sides (`item`),
    which takes away the scene and leaves the change; or `both`, each in channels of its own."""
    augmentation: Component = AUGMENTATIONS.setting("auto")
    """The views: `pairs` moves both sides of a pair alike, the others are of single images. `auto` is `pairs` for
    pairs, and for single images what their dataset's manifest says."""

    def __post_init__(self) -> None:
        PairedSettings.__post_init__(self)
        if not self.paired and self.beta > 0:
            raise SpecError(
                "single images have no l", place="beta", value=self.beta, hint="set beta to 0"
            )
        moves_pairs = self.augmentation.name == "pairs"
        if self.augmentation.name != "auto" and moves_pairs != self.paired:
            raise SpecError(
                f"this augmentation does not suit input {self.input!r}",
                place="augmentation",
                value=self.augmentation.name,
                hint="pairs have 'pairs', single images any other; 'auto' takes what suits",
            )

    @property
    def paired(self) -> bool:
        """Whether the network sees two sides."""
        return len(COLUMNS[self.input]) == 2

    @property
    def copies(self) -> int:
        """How many times each channel of an image enters the network: 2 with `centre: both`, else once.

        With `both` a channel comes with the dataset's mean subtracted, and again with the pair's own mean subtracted.
        """
        return 2 if self.centre == "both" else 1

    def resolve(self, data: Manifest) -> "Settings":
        """Return the settings with concrete values for `data`: sizes, stem, augmentation, digest of weights.

        `DataError` where `data` holds no images (`input: single`) or image pairs (any other input), or has no labels.
        `SpecError` where a batch is larger than the training part, l has fewer dimensions than there are classes, or
        the user's own encoder does not suit.
        """
        kind = "image" if self.input == "single" else "image-pair"
        if data.kind != kind:
            raise DataError(
                f"input {self.input!r} needs a dataset of kind {kind!r}; {data.name} is of kind {data.kind!r}"
            )
        self.check_data(data)
        # The first side says how large images are. The encoder sees each channel once a colour that is subtracted.
        sides = COLUMNS[self.input]
        augmentation = resolve_augmentation(self.augmentation, data, sides)
        shape = image_shape(data, sides[0])
        sized = self.for_images(shape)
        # The side of l is 0 where the encoder's maps tell it, which are known once it is built.
        if side := sized.latent.size:
            sized.check_latent((side, side), len(data.classes))
        sized = replace(
            sized, augmentation=augmentation, encoder=with_digest_of_weights(sized.encoder)
        )
        check_encoder(
            sized.encoder, (sized.copies * shape[0], sized.image_size, sized.image_size), sized.beta
        )
        return sized

    def for_images(self, shape: tuple[int, int, int]) -> "Settings":
        """Return the settings with the sizes and the stem for images of `shape` (channels, height, width) as staged."""
        side = self.image_size or min(shape[1:])
        sizes: MutableConfig = {"image_size": side}
        # Only our ResNets have a stem; it is None for other encoders.
        stem = self.encoder.parameters.get("stem")
        if stem == "auto":
            stem = "small" if side <= SMALL_STEM_PIXELS else "imagenet"
            sizes["encoder"] = {"stem": stem}
        # l is as large as the third stage, whose size our ResNets tell by their stem before they are built.
        if not self.latent.size and stem is not None:
            sizes["latent"] = {"size": stage_side(side, stem, stage=3)}
        return Settings(**dotted.merge(resolved_config(self), sizes))
