"""All that can be set of a contrastive trial, checked before anything is spent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import pydantic

from contrasweep.components import Component
from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError
from contrasweep.schema import OMIT_DEFAULT, checked
from trainables import losses
from trainables.augmentations import AUGMENTATIONS, resolved
from trainables.encoders import ENCODERS, HEADS
from trainables.fields import Count, Device, MaybeCount, Positive
from trainables.losses import LOSSES
from trainables.optimisation import OPTIMIZERS


@checked
class Settings:
    """Settings of a contrastive trial."""

    MOVED: ClassVar[Mapping[str, str]] = {
        "similarity": "loss.similarity",
        "temperature": "loss.temperature",
        "epsilon": "loss.epsilon",
        "margin": "loss.margin",
        "m_pos": "loss.m_pos",
        "m_neg": "loss.m_neg",
        "soft": "loss.soft",
        "mining": "loss.mining",
        "smooth": "loss.smooth",
        "squared": "loss.squared",
        "reduction": "loss.reduction",
        "loss_options": "loss",
        "encoder_width": "encoder.width",
        "projection_dim": "projection.dim",
        "momentum": "optimizer.momentum",
        "weight_decay": "optimizer.weight_decay",
    }

    loss: Component = LOSSES.setting("supcon")
    """The loss, its similarity and reduction, and its own parameters."""
    encoder: Component = ENCODERS.setting("cnn")
    """The network from images to features."""
    projection: Component = HEADS.setting("mlp")
    """The head from features to embeddings, which the loss sees."""
    epochs: Count = 20
    """How often the training part is seen."""
    batch_size: Annotated[int, pydantic.Field(ge=2)] = 128
    """Images of a step; the loss sees twice as many rows."""
    sampling: Literal["shuffled", "class_balanced"] = "shuffled"
    """Each row once an epoch, or as many draws in which all classes are equally likely."""
    augmentation: Component = AUGMENTATIONS.setting("auto")
    """What the two views of an image may differ in; `auto` is decided by the dataset's manifest."""
    optimizer: Component = OPTIMIZERS.setting("sgd", weight_decay=1e-4)
    """What takes the steps."""
    learning_rate: Positive = 0.1
    """The largest learning rate."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """The learning rate after the warm-up: a cosine down to a thousandth, or constant."""
    warmup_epochs: MaybeCount | None = None
    """Epochs of linear warm-up. None: SupContrast's 10 where the batch is above 256 images and there are more than 50
    epochs, otherwise 0."""
    evaluate_on: Literal["features", "embeddings"] = "features"
    """What the scores are of: the encoder's features, or the head's embeddings."""
    classifier: Literal["knn", "probe"] = "knn"
    """What gives `accuracy` and `f1_macro`: the nearest neighbour, or a linear probe."""
    evaluate_every: MaybeCount = 5
    """Epochs between evaluations (0: only at the end) where the trial has a fold. A dataset's own test split is looked
    at once, at the end."""
    retrieval: bool = True
    """Whether the last report has MAP@R, R-precision and recall@k."""
    figures: bool = False
    """Whether the last report brings histograms of target and noise similarities."""
    device: Annotated[Device, OMIT_DEFAULT] = "auto"
    """Where it runs; `auto` is the GPU if the process sees one."""
    autocast: bool = False
    """bfloat16 where it can be; for GPUs, since a CPU without units for it is slower."""
    chunk_rows: MaybeCount = 0
    """Views that are encoded at a time (0: the whole batch); see `gradcache`."""
    threads: Count = 1
    """Threads of torch."""
    checkpoint_every: MaybeCount = 5
    """Epochs between checkpoints (0: only at the end)."""
    order_seed: Annotated[int | None, OMIT_DEFAULT] = None
    """Seed of the order of the data alone (None: the trial's own). As an axis it tells what the order does from what
    the initial weights do."""

    def __post_init__(self) -> None:
        self.build_loss()

    def resolve(self, data: Manifest) -> "Settings":
        """The same settings with everything concrete that depends on other settings or on the dataset."""
        warmup = self.warmup_epochs
        if warmup is None:
            warmup = 10 if self.batch_size > 256 and self.epochs > 50 else 0
        return replace(self, augmentation=resolved(self.augmentation, data), warmup_epochs=warmup)

    def build_loss(self) -> losses.ComposedLoss | losses.ExternalLoss:
        """The loss as a function of (embeddings, labels, instance_ids); `SpecError` if it cannot be built."""
        try:
            return losses.compose(self.loss)
        except SpecError as error:
            raise error.at("loss") from None
