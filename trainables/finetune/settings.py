"""All that can be set of a trial of `finetune`, checked before anything is spent."""

from dataclasses import replace
from typing import Annotated, Literal

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
from contrasweep.trainables.encoders import ENCODERS, HEADS, Shape, check_encoder
from contrasweep.trainables.fields import (
    AboveZero,
    Count,
    Device,
    MaybeCount,
    NotNegative,
    Positive,
    Several,
)
from contrasweep.trainables.files import with_digest_of_weights
from contrasweep.trainables.images import view_shape
from contrasweep.trainables.optimisation import OPTIMIZERS, TrainingSettings, check_optimizer
from contrasweep.trainables.pytorch import nn


@checked
class Settings(TrainingSettings):
    """Settings of a trial of `finetune`."""

    encoder: Component = ENCODERS.setting("cnn")
    """The network from images to features. An arm with a `start` has that of its source."""
    frozen: bool = False
    """Whether the encoder stays as it is and the classifier alone is trained: a linear probe. The classifier then sees
    features of mean 0 and variance 1 (He et al. 2022, appendix A.1), so that one learning rate suits all encoders."""
    label_fraction: AboveZero = 1.0
    """The part of the training labels that is used, of each class alike and at least one image. Which ones follows from
    the seed and fold alone, so that all arms have the same."""
    layer_decay: AboveZero = 1.0
    """Learning rate of a layer over that of the layer after it, from the classifier down (Clark et al. 2020, section
    3.2.5). A layer is a block of the encoder, as its modules have it."""
    epochs: Count = 20
    """How often the labelled images are seen."""
    batch_size: Several = 128
    """Images of a step."""
    augmentation: Component = AUGMENTATIONS.setting("auto")
    """How images are augmented; `auto` is decided by the dataset's manifest."""
    view_size: Annotated[MaybeCount, OMIT_DEFAULT] = 0
    """Side of the square crops that are trained on, of images of any size; an evaluation sees the centre. 0: that of
    the images."""
    optimizer: Component = OPTIMIZERS.setting("sgd")
    """What takes the steps."""
    clip: Annotated[NotNegative, OMIT_DEFAULT] = 0.0
    """The largest norm of a step's gradients, of all together (0: any)."""
    learning_rate: Positive = 0.05
    """The largest learning rate."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """The learning rate after the warm-up: a cosine down to a thousandth, or constant."""
    warmup_epochs: MaybeCount = 0
    """Epochs of linear warm-up."""
    evaluate_every: MaybeCount = 0
    """Epochs between evaluations (0: only at the end) where the trial has a fold."""
    checkpoint_every: MaybeCount = 5
    """Epochs between checkpoints (0: only at the end)."""
    device: Annotated[Device, OMIT_DEFAULT] = "auto"
    """Where it runs; `auto` is the GPU if the process sees one."""
    autocast: bool = False
    """bfloat16 where it can be; for GPUs, since a CPU without units for it is slower."""
    threads: Count = 1
    """Threads of torch."""
    resident_gib: Annotated[NotNegative, OMIT_DEFAULT] = 8.0
    """Decoded images of a part up to so many GiB lie whole on the device; larger parts are read batch by batch."""

    def __post_init__(self) -> None:
        if self.frozen and self.layer_decay != 1:
            raise SpecError(
                "a frozen encoder has no layers to train",
                place="layer_decay",
                value=self.layer_decay,
            )

    def resolve(self, data: Manifest) -> "Settings":
        """Return the settings with concrete values for what depends on the dataset, and the digest of weights.

        `DataError` where `data` has no images, `SpecError` where its images have no labels or a component of the user's
        own does not suit.
        """
        if data.kind != "image":
            raise DataError(
                f"finetune trains on images; dataset {data.name} is of kind {data.kind!r}"
            )
        if not data.classes:
            raise SpecError(
                f"dataset {data.name!r} has no labels to train on", place="data", value=data.name
            )
        # Components of the user's own are tried on a few images here, so that no trial fails by them later.
        encoder = with_digest_of_weights(self.encoder)
        check_optimizer(self.optimizer, self.learning_rate)
        if "image" in data.columns and "shape" in data.columns["image"]:
            shape = view_shape(data, self.view_size)
            check_encoder(encoder, HEADS.choose("none"), shape)
            check_augmentation(self.augmentation, shape)
        return replace(
            self, encoder=encoder, augmentation=resolve_augmentation(self.augmentation, data)
        )

    @property
    def network_text(self) -> str:
        """The encoder with its parameters, and whether it is trained, as text that tells networks apart in a plan."""
        return (
            f"{canonical.dumps(self.encoder.to_plain())} {'frozen' if self.frozen else 'trained'}"
        )

    def build_network(self, shape: Shape, classes: int) -> "nn.Sequential":  # type: ignore[override]
        """Build encoder and classifier for images of `shape` (channels, height, width).

        They are initialised from torch's global generator. A frozen encoder needs no gradients, and its features are
        normalised before the linear layer.
        """
        encoder = self.encoder.build(shape)
        linear = nn.Linear(encoder.dim, classes)
        if not self.frozen:
            return nn.Sequential(encoder, linear)
        for parameter in encoder.parameters():
            parameter.requires_grad_(False)
        return nn.Sequential(
            encoder, nn.Sequential(nn.BatchNorm1d(encoder.dim, affine=False), linear)
        )
