"""Settings of sentence embeddings."""

from dataclasses import replace
from typing import Any, Literal

from contrasweep.components import Component, Table
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.schema import checked
from contrasweep.trainables import losses
from contrasweep.trainables.dual_encoder.losses import LOSSES as OF_TWO_SIDES
from contrasweep.trainables.dual_encoder.settings import DualEncoderSettings
from contrasweep.trainables.encoders import HEADS
from contrasweep.trainables.losses import Loss
from contrasweep.trainables.texts.encoders import ENCODERS, with_digest_of_folder


def _takes(entry: Any, config: Config) -> type:
    """Return the class whose fields are the settings that the loss `entry` takes.

    `config` is what a study gives for the loss. A loss is one of the table `LOSSES`, which compares all rows, or of
    `OF_TWO_SIDES`.
    """
    table = losses.LOSSES if isinstance(entry, Loss) else OF_TWO_SIDES
    return table.takes(entry, config)


def _find(path: str) -> Any:
    """Return the loss at a dotted path.

    A function of scores and two masks gives a row `Loss`, as in the table `LOSSES`; any other gives a loss of two
    sides.
    """
    found = losses.LOSSES.find(path)
    return found if isinstance(found, Loss) else OF_TWO_SIDES.find(path)


LOSSES: Table[Any] = Table(
    "loss of texts",
    {
        **{name: loss for name, loss in losses.LOSSES.items() if isinstance(loss, Loss)},
        **OF_TWO_SIDES,
    },
    plural="losses of texts",
    takes=_takes,
    find=_find,
)
"""Losses of two sides; and those of `trainables.losses` of a matrix of scores, whose rows are both sides stacked."""


@checked
class Settings(DualEncoderSettings):
    """Settings of a trial of sentence embeddings."""

    loss: Component = LOSSES.setting("multiple_negatives")
    """What compares the two sides of a batch, with its parameters."""
    positives: Literal["views", "entailed", "groups"] = "views"
    """What a sentence is alike to: itself under another dropout (`views`: SimCSE without labels); the hypothesis that
    it entails (`entailed`: SimCSE with labels); or itself and all sentences that entailment links it to (`groups`,
    for a loss of labels)."""
    hard_negatives: bool = True
    """Whether sentences that contradict a premise of the batch are negatives too (`entailed`, a loss of two sides)."""
    positive_class: str = "ENTAILMENT"
    """The class of pairs that are alike."""
    negative_class: str = "CONTRADICTION"
    """The class of pairs that are hard negatives."""
    score: str = "relatedness"
    """The column of the test part that cosines are correlated with."""
    encoder: Component = ENCODERS.setting("cnn")
    """The network from texts to features, which the scores are of."""
    projection: Component = HEADS.setting("none")
    """The head from features to what the loss sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Losses of two sides have one positive per row; others have the rows of a label, or the views of an instance.
        by_label = not self.of_two_sides and self.loss.entry.positives == "labels"
        if self.positives == "groups" and not by_label:
            raise SpecError(
                "groups have several positives, which this loss does not know",
                place="loss",
                value=self.loss.name,
                hint="take supcon or sincere, or positives: views",
            )

    def resolve(self, data: Manifest) -> "Settings":
        """Return the settings for `data`, with the digest of a Hugging Face model's folder.

        `DataError` where `data` has no pairs of texts, or lacks a class that `positive_class` or `negative_class`
        names.
        """
        if data.kind != "text-pair":
            raise DataError(f"texts trains on text pairs; {data.name} is of kind {data.kind!r}")
        if self.positives != "views":
            wanted = [self.positive_class]
            if self.uses_hard_negatives:
                wanted.append(self.negative_class)
            missing = [name for name in wanted if name not in data.classes]
            if missing:
                raise DataError(
                    f"{data.name} has no class {missing[0]!r}; its classes are {', '.join(data.classes)}"
                )
        self.check_parts()
        return replace(self, encoder=with_digest_of_folder(self.encoder))

    @property
    def uses_hard_negatives(self) -> bool:
        """Whether a batch has contradictions as further negatives, which losses of two sides alone can use."""
        return self.positives == "entailed" and self.hard_negatives and self.of_two_sides
