"""All that can be set of a contrastive trial, checked before anything is spent."""

from dataclasses import replace
from typing import Annotated, Literal

from contrasweep.components import Component, Declared
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables import losses
from contrasweep.trainables.augmentations import (
    AUGMENTATIONS,
    check_augmentation,
    resolve_augmentation,
)
from contrasweep.trainables.contrastive.targets import (
    TARGETS,
    check_own_targets,
    check_targets,
    looks_at_loss,
)
from contrasweep.trainables.contrastive.transfer import with_digests
from contrasweep.trainables.encoders import ENCODERS, HEADS, Shape, check_encoder
from contrasweep.trainables.fields import (
    BelowOne,
    Count,
    Device,
    MaybeCount,
    NotNegative,
    Positive,
    Several,
)
from contrasweep.trainables.files import with_digest_of_weights
from contrasweep.trainables.images import rows_to_train, view_shape
from contrasweep.trainables.losses import LOSSES
from contrasweep.trainables.optimisation import OPTIMIZERS, TrainingSettings, check_optimizer
from contrasweep.trainables.pytorch import torch

RESIDENT_GIB = 8.0
ViewAugmentation = Annotated[Component, Declared(AUGMENTATIONS, "auto", {})]
"""The augmentation of one view."""


@checked
class Resources:
    """Processes of one trial, which divide each batch among them."""

    gpus: MaybeCount = 0
    """Whole GPUs, with a process for each. 0: one, or the share of one that the trial's memory needs."""
    processes: MaybeCount = 0
    """Processes of a trial without GPUs. 0: one."""

    @property
    def size(self) -> int:
        """The number of processes of the trial."""
        return self.gpus or self.processes or 1


@checked
class Settings(TrainingSettings):
    """Settings of a contrastive trial."""

    loss: Component = LOSSES.setting("supcon")
    """The loss, its similarity and reduction, and its own parameters."""
    targets: Annotated[Component, OMIT_DEFAULT] = TARGETS.setting("batch")
    """What embeddings are compared with: the batch, or a queue of past ones (`moco`, `xbm`, `nnclr`). Three targets do
    not use `loss`: a momentum encoder's projections (`byol`), its classes (`dino`), and balanced codes (`swav`)."""
    learnable_temperature: Annotated[bool, OMIT_DEFAULT] = False
    """Whether the temperature is learned with the network, from loss.temperature on."""
    encoder: Component = ENCODERS.setting("cnn")
    """The network from images to features."""
    projection: Component = HEADS.setting("mlp")
    """The head from features to embeddings, which the loss sees."""
    epochs: Count = 20
    """How often the training part is seen."""
    batch_size: Several = 128
    """Images of a step; the loss sees `n_views` rows of each."""
    sampling: Literal["shuffled", "class_balanced", "m_per_class"] = "shuffled"
    """Each row once an epoch, as many draws in which all classes are equally likely, or `per_class` rows of each class
    in a batch."""
    per_class: Annotated[Count, OMIT_DEFAULT] = 4
    """Rows of a class in a batch of `m_per_class`."""
    augmentation: Component = AUGMENTATIONS.setting("auto")
    """What the views of an image may differ in; `auto` is decided by the dataset's manifest."""
    view_size: Annotated[MaybeCount, OMIT_DEFAULT] = 0
    """Side of the square views. Each is a crop of the whole image, as torchvision's RandomResizedCrop draws it by the
    augmentation's `area` and `aspect`; an evaluation sees the centre. 0: that of the images, which are all of one size
    then."""
    n_views: Annotated[Count, OMIT_DEFAULT] = 2
    """Views of each image in a step; the loss sees so many rows an image. With 1, for losses of labels, the positives
    are other images of the class, and an epoch costs half."""
    view_augmentations: Annotated[tuple[ViewAugmentation, ...], OMIT_DEFAULT] = ()
    """Augmentations of the first views, one a view, where they differ; the other views have `augmentation`."""
    optimizer: Component = OPTIMIZERS.setting("sgd", weight_decay=1e-4)
    """What takes the steps."""
    clip: Annotated[NotNegative, OMIT_DEFAULT] = 0.0
    """The largest norm of a step's gradients, of all together; longer ones are scaled down to it (0: any)."""
    ema: Annotated[BelowOne, OMIT_DEFAULT] = 0.0
    """Decay of an exponential moving average of the weights, evaluated and exported in their place (0: none)."""
    learning_rate: Positive = 0.1
    """The largest learning rate."""
    loss_learning_rate: Annotated[Positive | None, OMIT_DEFAULT] = None
    """The largest learning rate of the loss's own weights (proxies, SigLIP's bias). None: that of the network."""
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
    extra_scores: Annotated[
        tuple[Literal["weighted_knn", "sgd_probe", "nmi", "few_labels"], ...], OMIT_DEFAULT
    ] = ()
    """What else is scored at the end: `weighted_knn` (k = 20 and 200), `sgd_probe`, `nmi` of clusters and classes,
    `few_labels` (a linear probe on one label in a hundred)."""
    retrieval: bool | Literal["always"] = True
    """Whether the last report has MAP@R, R-precision and recall@k. `always`: that of every evaluation, for a curve or
    early stopping by one of them."""
    figures: bool | Literal["first_fold"] = False
    """Whether the last report brings pictures: embeddings, nearest neighbours, confusions, class centres, views, and
    histograms of target and noise similarities. `first_fold`: of trials of the first fold, or without folds, alone."""
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
    transfer: Annotated[tuple[str, ...], OMIT_DEFAULT] = ()
    """Other datasets on whose images the frozen network is scored at the end: `knn1_on_NAME`, `knn5_on_NAME` and
    `probe_on_NAME`. Each has its own train and test split; if the trial has a fold, it is cut into as many folds."""
    resources: Annotated[Resources, OMIT_DEFAULT] = Resources()
    """Several GPUs for one trial: the loss, its gradient and batch normalisation are those of the whole batch."""
    resident_gib: Annotated[NotNegative, OMIT_DEFAULT] = RESIDENT_GIB
    """Decoded images of a part up to so many GiB lie whole on the device; those of larger parts stay in the node's
    cache and are read batch by batch. The numbers are the same to the bit."""
    reports_per_epoch: Annotated[Count, OMIT_DEFAULT] = 1
    """Reports, and so possible checkpoints and evaluations, of an epoch. Above 1, `step`, `checkpoint_every` and
    `evaluate_every` count parts of an epoch, so that a trial resumes in the middle of one."""
    order_seed: Annotated[int | None, OMIT_DEFAULT] = None
    """Seed of the order of the data alone (None: the trial's own). As an axis it tells what the order does from what
    the initial weights do."""

    def __post_init__(self) -> None:
        # Each rule is about settings that do not go together; those about the dataset are in `resolve`.
        loss = self.build_loss()
        self._check_views(loss)
        self._check_resources()
        check_targets(self.targets, loss, n_views=self.n_views, processes=self.resources.size)
        if self.loss_learning_rate is not None and not loss.has_weights:
            raise SpecError(
                f"loss {self.loss.name!r} has no weights of its own",
                place="loss_learning_rate",
                value=self.loss_learning_rate,
                hint="take siglip, proxy_anchor, arcface or cosface",
            )
        if self.learnable_temperature:
            initial_temperature(loss)  # raises where the loss has none
            if not looks_at_loss(self.targets):
                rule = f"{self.targets.name} has no temperature that is learned"
                raise SpecError(rule, place="learnable_temperature", value=True)
        if self.targets.name != "batch" and self.chunk_rows:
            raise SpecError(
                "chunks go with `targets: batch` only", place="chunk_rows", value=self.chunk_rows
            )
        if self.sampling == "m_per_class" and self.batch_size % self.per_class:
            rule = f"a batch holds {self.per_class} images of each of its classes (per_class)"
            raise SpecError(rule, place="batch_size", value=self.batch_size)

    def _check_views(self, loss: losses.AnyLoss) -> None:
        """Raise `SpecError` where the number of views does not suit the loss or `view_augmentations`."""
        if len(self.view_augmentations) > self.n_views:
            raise SpecError(
                f"each image has {self.n_views} views",
                place="view_augmentations",
                value=len(self.view_augmentations),
            )
        # Targets that do not look at the loss may have any number of views.
        if (
            self.n_views % 2
            and isinstance(loss, losses.ComposedViewsLoss)
            and looks_at_loss(self.targets)
        ):
            raise SpecError(
                "a loss of two views takes views in pairs", place="n_views", value=self.n_views
            )
        if self.n_views == 1 and not self._positives_by_label(loss):
            raise SpecError(
                "positives are views of one image here", place="n_views", value=1, hint="take 2"
            )

    def _check_resources(self) -> None:
        """Raise `SpecError` where the processes cannot share a batch equally."""
        size = self.resources.size
        if self.resources.gpus and self.resources.processes:
            raise SpecError(
                "a trial has gpus or processes, not both",
                place="resources",
                value=self.resources.processes,
            )
        if self.batch_size % size:
            raise SpecError(
                f"{size} processes divide a batch equally",
                place="batch_size",
                value=self.batch_size,
            )

    def resolve(self, data: Manifest) -> "Settings":
        """Return the settings with concrete values for all that depends on other settings or on the dataset.

        `DataError` where `data` has no images, `SpecError` where the settings do not suit `data` or each other.
        """
        # SupContrast's rule (see `warmup_epochs`).
        warmup = self.warmup_epochs
        if warmup is None:
            warmup = 10 if self.batch_size > 256 and self.epochs > 50 else 0
        if data.kind != "image":
            raise DataError(
                f"contrastive trains on images; dataset {data.name} is of kind {data.kind!r}"
            )
        if not data.classes and self.sampling != "shuffled":
            raise SpecError(
                f"dataset {data.name!r} has no labels, by which rows would be sampled",
                place="sampling",
                value=self.sampling,
                hint="take shuffled",
            )
        if not data.classes and self._positives_by_label(self.build_loss()):
            raise SpecError(
                f"dataset {data.name!r} has no labels, which this loss needs",
                place="loss",
                value=self.loss.name,
                hint="take infonce, barlow_twins or vicreg, or targets: byol",
            )
        self.check_reports(max(1, rows_to_train(data) // self.batch_size))
        # The classes that every training part has. With folds a class needs two rows, since the trial whose held-out
        # fold has the only one does not train on it. Where no counts are known, each class is taken to have enough.
        rows = data.counts.get("train", {}).get("classes", [2] * len(data.classes))
        needed = 2 if data.folds else 1
        trained = sum(n >= needed for n in rows)
        if self.sampling == "m_per_class" and self.batch_size // self.per_class > trained:
            rule = f"a batch of {self.batch_size} images has {self.batch_size // self.per_class} classes"
            where = " in every training part" if trained < len(data.classes) else ""
            hint = f"dataset {data.name} has {trained}{where}: raise per_class or lower batch_size"
            raise SpecError(rule, place="per_class", value=self.per_class, hint=hint)
        # Components of the user's own are tried on a few images here, so that no trial fails by them later: targets on
        # embeddings of 5 dimensions and 2 classes.
        encoder = with_digest_of_weights(self.encoder)
        losses.check_loss(self.loss)
        check_own_targets(self.targets, self.build_loss(5, 2), self.n_views)
        check_optimizer(self.optimizer, self.learning_rate)
        if "image" in data.columns and "shape" in data.columns["image"]:
            shape = view_shape(data, self.view_size)
            check_encoder(encoder, self.projection, shape)
            for chosen in self.augmentations:
                check_augmentation(chosen, shape)
        return replace(
            self,
            encoder=encoder,
            augmentation=resolve_augmentation(self.augmentation, data),
            view_augmentations=tuple(
                resolve_augmentation(chosen, data) for chosen in self.view_augmentations
            ),
            warmup_epochs=warmup,
            transfer=with_digests(self.transfer, data),
        )

    def check_reports(self, batches: int) -> None:
        """Raise `SpecError` where an epoch of so many `batches` has fewer of them than reports."""
        if self.reports_per_epoch > batches:
            rule = f"an epoch has {batches} batches"
            raise SpecError(rule, place="reports_per_epoch", value=self.reports_per_epoch)

    @property
    def augmentations(self) -> tuple[Component, ...]:
        """The augmentation of each of the `n_views` views, in their order.

        The first views have those of the setting `view_augmentations`, all further ones the setting `augmentation`.
        """
        return self.view_augmentations + (self.augmentation,) * (
            self.n_views - len(self.view_augmentations)
        )

    def loss_weights(self, shape: Shape, classes: int) -> int:
        """Return how many learned weights the loss itself has, for images of `shape` and `classes` classes."""
        if not self.build_loss().has_weights:
            return 0
        # The loss has weights for embeddings of this dimension. Most of our heads have it as a parameter; for any other
        # head a black image is embedded.
        dim = self.projection.parameters.get("dim")
        if not isinstance(dim, int):
            with torch.no_grad():
                dim = self.build_network(shape).eval()(torch.zeros(1, *shape)).shape[1]
        weights = self.build_loss(dim, classes).weights
        return sum(weight.numel() for weight in weights.parameters()) if weights is not None else 0

    def _positives_by_label(self, loss: losses.AnyLoss) -> bool:
        """Whether images with the same label are positives of each other.

        They are not with a loss of views or of instances, nor with targets that do not use the trial's loss.
        """
        by_views = isinstance(loss, losses.ComposedViewsLoss)
        by_instance = (
            isinstance(loss, losses.ComposedLoss) and loss.definition.positives == "instances"
        )
        return looks_at_loss(self.targets) and not (by_views or by_instance)

    def build_loss(self, dim: int = 0, classes: int = 0) -> losses.AnyLoss:
        """Return the loss as a function of (embeddings, labels, instance_ids); `SpecError` if it cannot be built.

        `dim` (of the embeddings) and `classes` are the sizes of the loss's own weights, if it has any. With `dim` 0 it
        is built without them: it can be asked for its settings, but not be trained.
        """
        try:
            return losses.compose(self.loss, dim, classes)
        except SpecError as error:
            raise error.at("loss") from None


def initial_temperature(loss: losses.AnyLoss) -> float:
    """Return the temperature of `loss`, at which the setting `learnable_temperature` starts to learn it.

    `SpecError` where the loss has no temperature, learns its own temperature (`siglip`), or has a `base_temperature`.
    """
    params = loss.params if isinstance(loss, losses.ComposedLoss) else {}
    if "temperature" in params and loss.has_weights:
        raise SpecError(
            "siglip learns its own temperature", place="learnable_temperature", value=True
        )
    if "temperature" not in params or params.get("base_temperature") is not None:
        raise SpecError(
            "a learnable temperature needs a loss with a temperature, and without base_temperature",
            place="learnable_temperature",
            value=True,
            hint="take infonce, supcon, sincere or ocl",
        )
    return float(params["temperature"])
