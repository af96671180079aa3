"""All settings of a review-helpfulness trial, checked before anything is spent."""

import dataclasses
from typing import Annotated

import pydantic

from contrasweep.components import Component
from contrasweep.data.manifest import Manifest
from contrasweep.data.resolving import find, storage_of
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import errors_named
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables.fields import AboveZero, Count, Device, MaybeCount, Positive
from contrasweep.trainables.files import DIGEST_DIGITS, require_digest
from contrasweep.trainables.losses import require_number
from contrasweep.trainables.pytorch import torch
from contrasweep.trainables.review_helpfulness.datasets.word_vectors import VECTORS_KIND
from contrasweep.trainables.review_helpfulness.losses import LOSSES
from contrasweep.trainables.review_helpfulness.models import MODELS


@checked
class Sampler:
    """Groups of one positive and several negative reviews of a product; see `GroupSampler`."""

    interval: Annotated[int, pydantic.Field(ge=0, le=3)] = 1
    """A negative's label is more than this below its positive's; the lowest 1 + interval labels of a product have no
    positives."""
    num_negatives: Count = 7
    """Negatives of a group."""
    groups: Count = 4
    """Groups of a step."""
    max_groups: Count | None = None
    """Groups of an epoch at most; null: as many as there are positives."""


@checked
class Plateau:
    """How the learning rate falls where the validation MAP stays on a plateau, as `PlateauSchedule` computes it."""

    factor: AboveZero = 0.5
    """What the learning rate is multiplied by."""
    patience: MaybeCount = 4
    """Epochs in a row without a better validation MAP that are let pass."""


Threshold = Annotated[int, pydantic.Field(ge=0, le=3)]
"""A label from 0 to 3, above which labels are relevant."""
USUAL_THRESHOLD = 1
"""The relevance threshold of datasets that have none of their own."""


def threshold_of(data: Manifest, chosen: int | None) -> int:
    """Return the label above which reviews are relevant: `chosen`, if it is not None, else that of the dataset.

    A dataset without `relevance_threshold` in its manifest has `USUAL_THRESHOLD`. `DataError` where the threshold is no
    label from 0 to 3.
    """
    threshold = (
        data.source.get("relevance_threshold", USUAL_THRESHOLD) if chosen is None else chosen
    )
    if not isinstance(threshold, int) or threshold not in range(4):
        raise DataError(
            f"{data.name}: its relevance_threshold must be a label from 0 to 3, got {threshold!r}; stage it again"
        )
    return threshold


@checked
class Settings:
    """Settings of a review-helpfulness trial, which trains by Adam and is tested with the weights of its best epoch."""

    model: Component = MODELS.setting("proposed")
    """One of the eight models, with settings of its own."""
    use_text: bool = True
    """Off: texts are hidden from the model."""
    use_images: bool = True
    """Off: images are hidden from the model."""
    loss: Component = LOSSES.setting("hinge")
    """The ranking or classification loss of the sampled groups."""
    sampler: Sampler = Sampler()
    """The groups that are trained on."""
    epochs: Count = 30
    """Epochs at most."""
    learning_rate: Positive = 1e-4
    """Adam's, until the validation MAP is on a plateau."""
    plateau: Plateau = Plateau()
    """When the learning rate falls."""
    patience: MaybeCount = 10
    """Training ends after so many epochs in a row without a better validation MAP; 0: never."""
    relevance_threshold: Threshold | None = None
    """Labels above this one are relevant to the metrics; null: the dataset's own (Lazada: 0, all others 1)."""
    helpful_threshold: Annotated[int, pydantic.Field(ge=0, le=4)] = 2
    """The least label that counts as helpful: in the contrastive loss, in `bce` and in the distances."""
    min_word_count: Count = 5
    """A word of the vocabulary occurs at least so often in the training part."""
    max_tokens: Count = 128
    """Words of a text at most."""
    max_regions: Count = 128
    """Image regions of an item at most."""
    word_dim: Count = 300
    """Size of a word vector."""
    word_vectors: str | None = None
    """Initial word vectors: a staged dataset of `datasets:WORD_VECTORS`, by its name; null: random ones. A plan adds
    the digest."""
    distances: bool = False
    """Add the distances of Tables 7-8 to the last report."""
    evaluation_rows: Count = 64
    """Reviews that are scored at a time."""
    device: Annotated[Device, OMIT_DEFAULT] = "auto"
    """`auto` takes a GPU where there is one."""
    threads: Count = 1
    """Threads of torch."""

    def __post_init__(self) -> None:
        if self.model.name not in MODELS:
            from contrasweep.trainables.review_helpfulness.batch import HelpfulnessModel

            entry = self.model.entry
            if not (isinstance(entry, type) and issubclass(entry, HelpfulnessModel)):
                raise SpecError(
                    "a model of your own is a class derived from review_helpfulness.batch:HelpfulnessModel",
                    place="model",
                    value=self.model.name,
                )
        if not (self.use_text or self.use_images):
            raise SpecError("use_text and use_images cannot both be off", place="use_text")
        if self.distances and not self.model.entry.gives_features:
            raise SpecError(
                "distances are measured on post-interaction features, which this model does not have",
                place="distances",
                value=self.model.name,
                hint=f"known: {', '.join(name for name, model in MODELS.items() if model.gives_features)}",
            )

    def resolve(self, data: Manifest) -> "Settings":
        """Return the settings with the dataset's relevance threshold, and with the digest of the word vectors.

        The digest is part of a trial's identity. `DataError` where the data are no reviews, `SpecError` where there are
        no such word vectors, or the user's own loss fails.
        """
        if data.kind != "reviews":
            raise DataError(
                f"review_helpfulness trains on reviews; {data.name} is of kind {data.kind!r}"
            )
        if self.distances and not (self.use_images and "roi" in data.columns):
            raise SpecError(
                "distances between text and images need images",
                place="distances",
                value=True,
                hint=f"{data.name} has none, or use_images is off",
            )
        self._check_loss()
        resolved = self.with_threshold(data)
        if self.word_vectors is None:
            return resolved
        name = self.word_vectors.partition("#")[0]
        return dataclasses.replace(
            resolved, word_vectors=f"{name}#{self.staged_vectors(data).digest[:DIGEST_DIGITS]}"
        )

    def _check_loss(self) -> None:
        """Raise `SpecError` where the user's own ranking loss fails, or gives no number with a gradient.

        It is tried with 2 groups of 2 reviews each.
        """
        if self.loss.name in LOSSES:
            return
        scores = torch.zeros(2, 2, requires_grad=True)
        with errors_named(f"{self.loss.name} fails on scores [2, 2]", "loss"):
            labels = torch.tensor([[3, 0], [2, 1]])
            value = self.loss.build(scores, labels, self.helpful_threshold)
        require_number(value, "groups", self.loss.name)

    def staged_vectors(self, data: Manifest) -> Manifest:
        """Return the staged word vectors, which lie in the storage of `data`.

        `SpecError` where there is no such dataset; `DataError` where it is another than planned.
        """
        name, _, digest = (self.word_vectors or "").partition("#")
        try:
            staged = find(name, storage=storage_of(data))
        except DataError as error:
            hint = f"stage it with WORD_VECTORS; {error}"
            raise SpecError(
                "there is no such dataset", place="word_vectors", value=name, hint=hint
            ) from None
        if staged.kind != VECTORS_KIND or staged.columns["vector"]["shape"] != [self.word_dim]:
            what = f"{name} is of kind {staged.kind} with columns {dict(staged.columns)}"
            raise DataError(
                f"word_vectors: {what}; needed are {VECTORS_KIND} of word_dim {self.word_dim}"
            )
        require_digest(staged, name, digest, "word_vectors")
        return staged

    def with_threshold(self, data: Manifest) -> "Settings":
        """Return the same settings with the dataset's relevance threshold where they have none."""
        return dataclasses.replace(
            self, relevance_threshold=threshold_of(data, self.relevance_threshold)
        )
