"""Sentences of a trial on the device as word indices, and their views batch by batch."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from contrasweep.data import open_dataset
from contrasweep.rows import ItemColumns
from contrasweep.trainables import seeding
from contrasweep.trainables.paired.network import Joint
from contrasweep.trainables.paired_texts.convolutions import PADDING, UNKNOWN
from contrasweep.trainables.paired_texts.settings import Settings
from contrasweep.trial import Trial

WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")


class TextInputs:
    """The two parts of a trial's dataset as word indices [n w]; the vocabulary is the training part's."""

    def __init__(self, trial: Trial, settings: Settings, device: torch.device) -> None:
        self.settings, self.device = settings.resolve(trial.data), device
        train, test = open_dataset(trial.data).parts(trial.fold)
        self.train_labels, self.test_labels = (torch.tensor(part.labels) for part in (train, test))
        self.test_rows = np.asarray(test.rows)
        self.test_grouping: ItemColumns = test.grouping
        self.class_names = tuple(trial.data.classes)
        self.classes = len(self.class_names) or 1 + int(max(self.train_labels.max(), self.test_labels.max()))
        texts = {
            (split, side): [tokens(text) for text in part.column(side).to_pylist()]
            for split, part in (("train", train), ("test", test))
            for side in ("premise", "hypothesis")
        }
        self.vocabulary = vocabulary((*texts["train", "premise"], *texts["train", "hypothesis"]), settings.min_count)
        self.sides = {
            split: tuple(self._indices(texts[split, side]) for side in ("premise", "hypothesis"))
            for split in ("train", "test")
        }

    def model(self) -> Joint:
        """The network for this vocabulary."""
        return text_model(self.settings, len(self.vocabulary) + 2, self.classes)

    def train_mode(self, model: Joint) -> None:
        """Training mode."""
        model.train()

    def plain(self, split: str, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows of `split` ("train", "test") with every word."""
        return tuple(side[rows].to(self.device) for side in self.sides[split])

    def epoch(self, *key: int | str | None) -> Callable[[Tensor, slice], tuple[Tensor, ...]]:
        """One epoch's views, which hide words: what is hidden at a place of the order follows from `key` alone."""
        shape = (2, len(self.train_labels), self.settings.max_words)
        hidden = torch.rand(shape, generator=seeding.generator(*key)) < self.settings.augmentation.word_dropout

        def views(rows: Tensor, places: slice) -> tuple[Tensor, ...]:
            sides = zip(self.plain("train", rows), hidden[:, places].to(self.device), strict=True)
            return tuple(torch.where(gone & (side != PADDING), UNKNOWN, side) for side, gone in sides)

        return views

    def _indices(self, texts: list[list[str]]) -> Int[Tensor, "n w"]:
        indices = torch.full((len(texts), self.settings.max_words), PADDING)
        for row, words in zip(indices, texts, strict=True):
            known = [self.vocabulary.get(word, UNKNOWN) for word in words[: len(row)]]
            row[: len(known)] = torch.tensor(known, dtype=row.dtype)
        return indices.to(self.device)


def tokens(text: str) -> list[str]:
    """Words, numbers and marks in lower case."""
    return WORD.findall(text.lower())


def vocabulary(texts: Iterable[list[str]], min_count: int) -> dict[str, int]:
    """Word -> index from 2, the most frequent first, ties by the alphabet."""
    counts = Counter(word for text in texts for word in text)
    kept = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    return {word: i for i, word in enumerate(kept, start=2)}


def text_model(settings: Settings, words: int, classes: int) -> Joint:
    """The network for `words` word indices, padding and the unknown word among them, initialised from torch's global
    generator."""
    encoder = settings.encoder.build(words)
    return Joint(encoder, settings, encoder.dim, classes, paired=True, lat_size=(settings.latent.size,))
