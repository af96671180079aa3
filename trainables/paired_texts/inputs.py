"""Sentences of a trial on the device as word indices, and their views batch by batch."""

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor

from contrasweep.data import open_dataset
from contrasweep.trainables import seeding
from contrasweep.trainables.paired.fitting import Inputs
from contrasweep.trainables.paired.network import Joint
from contrasweep.trainables.paired_texts.settings import Settings
from contrasweep.trainables.texts.words import PADDING, UNKNOWN, WordReader
from contrasweep.trial import Trial


class TextInputs(Inputs):
    """The two parts of a trial's dataset as word indices [n w]; the vocabulary is the training part's."""

    def __init__(self, trial: Trial, settings: Settings, device: torch.device) -> None:
        self.settings = settings.resolve(trial.data)
        train, test = open_dataset(trial.data).parts(trial.fold)
        super().__init__(trial, train, test, device)
        # Both parts as texts; the vocabulary is made of the training part's, on both sides.
        sides = {
            split: [part.column(side).to_pylist() for side in ("premise", "hypothesis")]
            for split, part in (("train", train), ("test", test))
        }
        self.reader = WordReader(chain(*sides["train"]), settings.min_count, settings.max_words)
        self.sides = {
            split: tuple(self.reader(side).to(device) for side in texts_of_sides)
            for split, texts_of_sides in sides.items()
        }

    def model(self) -> Joint:
        """Build the network for this vocabulary, initialised from torch's global generator."""
        return text_model(self.settings, self.reader.size, self.classes)

    def sides_of_rows(self, split: str, rows: Tensor) -> tuple[Tensor, ...]:
        """Return both sides of these rows of `split` ("train", "test") as word indices [n w], no word hidden."""
        return tuple(side[rows].to(self.device) for side in self.sides[split])

    def epoch(self, *key: int | str | None) -> Callable[[Tensor, slice], tuple[Tensor, ...]]:
        """Draw which words are hidden at each place of one epoch, seeded by `key`.

        Returns a function f(rows, places) -> (first sentences, second sentences), to be called for each batch. `rows`
        are the training rows of the batch, `places` is the slice of the epoch's order in which they stand. The
        sentences are word indices [b w], with the unknown word in place of hidden ones.
        """
        # [side, place in the epoch's order, word]
        shape = (2, len(self.train_labels), self.settings.max_words)
        hidden = (
            torch.rand(shape, generator=seeding.generator(*key))
            < self.settings.augmentation.word_dropout
        )

        def views(rows: Tensor, places: slice) -> tuple[Tensor, ...]:
            """Return both sides of a batch's rows, with the unknown word in place of hidden ones."""
            sides = zip(
                self.sides_of_rows("train", rows), hidden[:, places].to(self.device), strict=True
            )
            return tuple(
                torch.where(is_hidden & (side != PADDING), UNKNOWN, side)
                for side, is_hidden in sides
            )

        return views


def text_model(settings: Settings, words: int, classes: int) -> Joint:
    """Build the network for `words` word indices, padding and the unknown word among them.

    It is initialised from torch's global generator.
    """
    encoder = settings.encoder.build(words)
    return Joint(
        encoder, settings, encoder.dim, classes, paired=True, latent_size=(settings.latent.size,)
    )
