"""Sentence pairs as one more modality of the LOCAL family: premise and hypothesis take the places of pre and post.

The encoder is small (word embeddings and three residual convolutions over positions); its stages' outputs,
resized to a common length, give l as the stages of a ResNet do; losses, weights and loop are those of image pairs.
Deviation from what inference models do: the sides meet only in z, l and the classifier, never word by word.
"""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from cluster.memory import Workload
from contrasweep.data import open_dataset
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.trial import Report, Trial
from trainables import seeding
from trainables.paired_images.fitting import fit
from trainables.paired_images.memory import of_recipe, precision, trained
from trainables.paired_images.model import Joint
from trainables.paired_images.settings import Count, Recipe, Share

PAD, UNKNOWN = 0, 1
WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")


@checked
class Settings(Recipe):
    """Settings of paired texts: those of `Recipe`; `width` features a word and a stage, at most `max_words` a
    sentence, words seen less than `min_count` times in the training part unknown; `lat_size` places of l;
    `word_dropout`, the share of words that a training view hides on each side, independently; `dropout` in stages."""

    batch_size: Annotated[int, pydantic.Field(ge=2)] = 32
    learning_rate: Annotated[float, pydantic.Field(gt=0)] = 1e-3
    epochs: Count = 15
    alpha_schedule: str = "inverse"
    width: Count = 96
    max_words: Count = 32
    min_count: Count = 2
    lat_size: Count = 16
    word_dropout: Share = 0.1
    dropout: Share = 0.2


class Encoder(nn.Module):
    """Words [n w] to the outputs of four stages [n width w]: embeddings, then three residual convolutions. Places of
    padding are 0 in all of them, and the last stage is scaled so that its mean over places is that over words."""

    def __init__(self, words: int, width: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Int[Tensor, "n w"]) -> list[Tensor]:
        there = (words != PAD).float()[:, None]
        x = self.embedding(words).transpose(1, 2)
        maps = [x]
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            normal = norm(x.transpose(1, 2)).transpose(1, 2) * there
            x = (x + F.relu(convolution(self.dropout(normal)))) * there
            maps.append(x)
        maps[-1] = maps[-1] * (words.shape[1] / there.sum(2, keepdim=True).clamp(min=1))
        return maps


class TextInputs:
    """The two parts of a trial's dataset as word indices [n w]; the vocabulary is the training part's."""

    def __init__(self, trial: Trial, settings: Settings, device: torch.device) -> None:
        if trial.data.kind != "text-pair":
            raise DataError(f"paired_texts trains on text pairs; {trial.data.name} is of kind {trial.data.kind!r}")
        self.settings, self.device = settings, device
        train, test = open_dataset(trial.data).parts(trial.fold)
        self.train_labels, self.test_labels = (torch.tensor(part.labels) for part in (train, test))
        self.test_rows, self.test_grouping = np.asarray(test.rows), test.grouping
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
        s = self.settings
        encoder = Encoder(len(self.vocabulary) + 2, s.width, s.dropout)
        return Joint(encoder, s, s.width, self.classes, paired=True, lat_size=(s.lat_size,))

    def train_mode(self, model: Joint) -> None:
        model.train()

    def plain(self, split: str, rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(side[rows].to(self.device) for side in self.sides[split])

    def epoch(self, *key: int | str | None) -> Callable[[Tensor, slice], tuple[Tensor, ...]]:
        """One epoch's views, which hide words: what is hidden at a place of the order follows from `key` alone."""
        shape = (2, len(self.train_labels), self.settings.max_words)
        hidden = torch.rand(shape, generator=seeding.generator(*key)) < self.settings.word_dropout

        def views(rows: Tensor, places: slice) -> tuple[Tensor, ...]:
            sides = zip(self.plain("train", rows), hidden[:, places].to(self.device), strict=True)
            return tuple(torch.where(gone & (side != PAD), UNKNOWN, side) for side, gone in sides)

        return views

    def _indices(self, texts: list[list[str]]) -> Int[Tensor, "n w"]:
        found = torch.full((len(texts), self.settings.max_words), PAD)
        for row, words in zip(found, texts, strict=True):
            known = [self.vocabulary.get(word, UNKNOWN) for word in words[: len(row)]]
            row[: len(known)] = torch.tensor(known, dtype=row.dtype)
        return found.to(self.device)


def tokens(text: str) -> list[str]:
    """Words, numbers and marks in lower case."""
    return WORD.findall(text.lower())


def vocabulary(texts: Iterable[list[str]], min_count: int) -> dict[str, int]:
    """Word -> index from 2, the most frequent first, ties by the alphabet."""
    counts = Counter(word for text in texts for word in text)
    kept = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    return {word: i for i, word in enumerate(kept, start=2)}


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given; see `fitting.fit` for what is reported."""
    settings = Settings(**trial.config)
    device = seeding.pick_device(settings.device)
    seeding.prepare(device, settings.threads)
    yield from fit(trial, settings, TextInputs(trial, settings, device), resume)


def memory(config: Mapping[str, Any], data: Manifest) -> Workload:
    """One step of a batch of pairs. The vocabulary is not known before the data is read: as many words as rows."""
    s, words = Settings(**config), data.rows("train")
    classes = len(data.classes) or 3

    def build() -> Joint:
        return Joint(Encoder(words, s.width, s.dropout), s, s.width, classes, paired=True, lat_size=(s.lat_size,))

    return Workload(
        architecture=f"paired_texts {precision(s)}",
        shape=(words, classes, s.batch_size, s.n_views, s.max_words, s.width, s.lat_size, s.projection_dim, s.beta > 0),
        build=build,
        inputs=lambda: tuple(torch.ones(s.batch_size * s.n_views, s.max_words, dtype=torch.long) for _ in range(2)),
        loss=trained,
        resident_bytes=8 * 2 * s.max_words * (words + data.rows("test")),
        **of_recipe(s),
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
