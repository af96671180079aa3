"""Settings of two towers: an encoder of images and one of texts, in one space."""

from dataclasses import replace
from typing import Annotated, Literal

import pydantic

from contrasweep import canonical
from contrasweep.components import Component
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables.augmentations import (
    AUGMENTATIONS,
    check_augmentation,
    resolve_augmentation,
)
from contrasweep.trainables.contrastive.transfer import with_digests
from contrasweep.trainables.dual_encoder.losses import LOSSES
from contrasweep.trainables.dual_encoder.settings import DualEncoderSettings
from contrasweep.trainables.encoders import ENCODERS, HEADS, Shape, check_encoder
from contrasweep.trainables.fields import Count, MaybeCount, NotNegative
from contrasweep.trainables.files import with_digest_of_weights
from contrasweep.trainables.images import rows_to_train, view_shape
from contrasweep.trainables.pytorch import nn
from contrasweep.trainables.texts.encoders import ENCODERS as TEXT_ENCODERS
from contrasweep.trainables.texts.encoders import with_digest_of_folder

Prompt = Annotated[str, pydantic.Field(pattern=r"^[^{}]*\{\}[^{}]*$")]
"""A text with {} in the place of a class's name."""


@checked
class Settings(DualEncoderSettings):
    """Settings of a trial of two towers."""

    loss: Component = LOSSES.setting("clip")
    """What compares the images of a batch with its texts, with its parameters."""
    learnable_temperature: bool = True
    """Whether the loss's temperature, and SigLIP's bias, are learned, from the given ones on. Logits are scaled by 100
    at most, as in CLIP."""
    encoder: Component = ENCODERS.setting("cnn")
    """The network from images to features."""
    text_encoder: Component = TEXT_ENCODERS.setting("cnn")
    """The network from texts to features."""
    dim: Count = 128
    """The dimension of the space that a linear layer of each tower leads to."""
    augmentation: Component = AUGMENTATIONS.setting("auto")
    """What the view of an image may differ in from it; `auto` is decided by the dataset's manifest."""
    view_size: Annotated[MaybeCount, OMIT_DEFAULT] = 0
    """Side of the square that is cropped at random from a whole image, of any size; an evaluation sees the centre. 0:
    that of the images, which are all of one size then."""
    min_count: Count = 1
    """Words seen less often in the captions are unknown; a Hugging Face model has its own."""
    captions: Literal["auto", "dataset", "classes"] = "auto"
    """The texts of images: the dataset's captions, or `prompts` with the name of each image's class. `auto`: captions
    where there are some."""
    prompts: Annotated[tuple[Prompt, ...], pydantic.Field(min_length=1)] = ("a photo of a {}.",)
    """The texts of a class, {} for its name: its zero-shot classifier is the mean of their embeddings."""
    zero_shot_on: Annotated[tuple[str, ...], OMIT_DEFAULT] = ()
    """Other datasets of images with classes that the last report classifies by prompts: `zero_shot_on_NAME`."""
    resident_gib: Annotated[NotNegative, OMIT_DEFAULT] = 8.0
    """Decoded images of a part up to so many GiB lie whole on the device; larger parts are read batch by batch."""

    def resolve(self, data: Manifest) -> "Settings":
        """Return the settings with concrete values for `data`: captions, augmentation, digests of files.

        `DataError` where the images of `data` have neither captions nor classes, or no row is held out. `SpecError`
        where `data` lacks the chosen captions or classes, or a component of the user's own does not suit.
        """
        captioned = data.kind == "image-text"
        labelled = bool(data.classes)
        if not captioned and (data.kind != "image" or not labelled):
            what = "images without classes" if data.kind == "image" else f"kind {data.kind!r}"
            raise DataError(
                f"two_tower needs images with captions, or with classes to make captions of; {data.name} is of {what}"
            )
        if not (data.folds or data.rows("test")):
            raise DataError(
                f"{data.name} has no test split of its own; hold out folds, with folds=5"
            )
        # `auto` takes captions where there are some.
        captions = self.captions
        if captions == "auto":
            captions = "dataset" if captioned else "classes"
        if (captions == "dataset" and not captioned) or (captions == "classes" and not labelled):
            missing = "captions" if captions == "dataset" else "classes"
            raise SpecError(
                f"{data.name} has no {missing}", place="captions", value=captions, hint="take auto"
            )
        self.check_batch(rows_to_train(data))
        # Components of the user's own are tried on a few images here, so that no trial fails by them later.
        shape = view_shape(data, self.view_size)
        encoder = with_digest_of_weights(self.encoder)
        check_encoder(encoder, HEADS.choose("none"), shape)
        check_augmentation(self.augmentation, shape)
        self.check_parts()
        return replace(
            self,
            captions=captions,
            encoder=encoder,
            text_encoder=with_digest_of_folder(self.text_encoder),
            augmentation=resolve_augmentation(self.augmentation, data),
            zero_shot_on=with_digests(self.zero_shot_on, data),
        )

    @property
    def network_text(self) -> str:
        """Both towers with their parameters, as text."""
        return (
            " ".join(canonical.dumps(part.to_plain()) for part in (self.encoder, self.text_encoder))
            + f" {self.dim}"
        )

    def build_network(self, shape: Shape, vocabulary: int) -> "nn.Module":  # type: ignore[override]
        """Build both towers for images of `shape` (channels, height, width) and a vocabulary of this size.

        They are initialised from torch's global generator.
        """
        from contrasweep.trainables.two_tower.network import TwoTowers

        return TwoTowers(self.encoder.build(shape), self.text_encoder.build(vocabulary), self.dim)
