"""A trial of `trainables.texts` in training: sentences, the pairs that are alike, and Spearman's correlation."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from contrasweep.data import open_dataset
from contrasweep.data.reading import Part
from contrasweep.errors import DataError
from contrasweep.trainables import loop, seeding
from contrasweep.trainables.dual_encoder.method import DualEncoder, Sides
from contrasweep.trainables.pytorch import Float, Int, Integers, Matrix
from contrasweep.trainables.similarities import unit
from contrasweep.trainables.texts.encoders import reader_of
from contrasweep.trainables.texts.settings import Settings
from contrasweep.trial import Trial

Rows = dict[int, list[int]]
"""Number of a sentence -> numbers of other sentences."""
EVAL_BATCH_ROWS = 512
"""Texts of a forward pass in an evaluation, at most; four training batches where these are fewer."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of training sentences that are alike; a sentence is an index into `sentences`, which are distinct.

    `first` and `second` [n] are the two sides of the pairs. Pairs with equal `groups` [n] are alike, too.
    `contradictions[s]` are the sentences that contradict sentence s.
    """

    sentences: list[str]
    first: Integers
    second: Integers
    groups: Integers
    contradictions: Rows


def pairs_of(part: Part, settings: Settings, classes: Sequence[str]) -> Pairs:
    """Return the pairs of a part that `settings.positives` asks for; `DataError` where there is none.

    `classes` are the names of the labels, among which are those of entailment and contradiction.
    """
    premises, hypotheses = (part.column(name).to_pylist() for name in ("premise", "hypothesis"))
    pairs = zip(premises, hypotheses, strict=True)
    sentences = list(dict.fromkeys(text for pair in pairs for text in pair))
    # Each distinct sentence has a number; the two sides of the dataset's pairs are such numbers.
    number = {text: i for i, text in enumerate(sentences)}
    left = np.array([number[text] for text in premises], np.int64)
    right = np.array([number[text] for text in hypotheses], np.int64)
    # As a rule both sides of a pair are the same sentence, which dropout makes two views of. With `entailed` they are
    # the two sides of the dataset's pairs.
    first = np.arange(len(sentences))
    second = first
    if settings.positives == "views":
        # No two sentences are alike: each is a group of its own.
        groups = first
        contradictions: Rows = {}
    else:
        # Sentences that entailment links are alike.
        entailed = part.labels == classes.index(settings.positive_class)
        groups = _linked(left[entailed], right[entailed], len(sentences))
        contradictions = _contradictions(
            left, right, part.labels, classes.index(settings.negative_class), settings
        )
        if settings.positives == "entailed":
            first = left[entailed]
            second = right[entailed]
    if not len(first):
        raise DataError(
            f"{part.split.manifest.name} has no pair of class {settings.positive_class!r}"
        )
    return Pairs(
        sentences,
        torch.from_numpy(first),
        torch.from_numpy(second),
        torch.from_numpy(groups[first]),
        contradictions,
    )


def _linked(left: np.ndarray, right: np.ndarray, count: int) -> np.ndarray:
    """Return the number of the group of each of `count` sentences.

    `left` and `right` are the sentences of each pair. Sentences that a chain of pairs connects are in one group.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # The pairs as edges of a graph, whose components are the groups.
    links = coo_array((np.ones(len(left)), (left, right)), shape=(count, count))
    groups: np.ndarray = connected_components(links, directed=False)[1].astype(np.int64)
    return groups


def _contradictions(
    left: np.ndarray, right: np.ndarray, labels: np.ndarray, negative: int, settings: Settings
) -> Rows:
    """Return a mapping from each sentence that is contradicted to the list of sentences that contradict it.

    Sentences are indices. `left` and `right` are the sentences of each pair; those of a pair whose label is `negative`
    contradict each other. {} for settings without hard negatives.
    """
    contradictions: Rows = {}
    if settings.uses_hard_negatives:
        contradicts = labels == negative
        for a, b in zip(left[contradicts].tolist(), right[contradicts].tolist(), strict=True):
            # A contradiction is one either way round.
            contradictions.setdefault(a, []).append(b)
            contradictions.setdefault(b, []).append(a)
    return contradictions


class Batch(NamedTuple):
    """Indices of the sentences of both sides [b] and of the hard negatives [k], and the groups of the pairs [b]."""

    first: Int[Tensor, " b"]
    second: Int[Tensor, " b"]
    hard_negatives: Int[Tensor, " k"]
    groups: Int[Tensor, " b"]


class Texts(DualEncoder[Batch]):
    """A trial of `texts` in training: sentence pairs, network and optimizer on the device."""

    settings: Settings

    def __init__(self, trial: Trial, settings: Settings) -> None:
        self.settings = settings = settings.resolve(trial.data)
        device = seeding.prepare_device(settings.device, settings.threads)
        train, self.test = open_dataset(trial.data).parts(trial.fold)
        self.test_scores = _scores(self.test, settings.score)
        # Each distinct sentence is turned into word indices once. Pairs and batches hold numbers of sentences.
        self.pairs = pairs_of(train, settings, trial.data.classes)
        sentences = self.pairs.sentences
        self.reader = reader_of(settings.encoder, sentences, settings.min_count, settings.max_words)
        self.words = self.reader(sentences).to(device)
        super().__init__(trial, settings, len(self.pairs.first), device)

    def network(self) -> nn.Module:
        """Build encoder and head for the reader's vocabulary."""
        return self.settings.build_network(self.reader.size)

    def batches(self, order: Int[Tensor, "batches b"], *key: int | None) -> Iterator[Batch]:
        """Yield the batches of an epoch: one for each row of `order` [batches b], which has the pairs of the batch.

        For each first sentence that has contradictions, one of them is drawn by `key` (seed, fold, epoch) as a hard
        negative.
        """
        # A number from 0 to 1 for each place of the epoch, which picks one of however many contradictions there are.
        draw = torch.rand(order.shape, generator=seeding.generator(*key, "hard negatives"))
        pairs = self.pairs
        for rows, shares in zip(order, draw.tolist(), strict=True):
            first = pairs.first[rows]
            hard = []
            for sentence, share in zip(first.tolist(), shares, strict=True):
                candidates = pairs.contradictions.get(sentence, [])
                if candidates:
                    hard.append(candidates[int(share * len(candidates))])
            hard_negatives = torch.tensor(hard, dtype=torch.int64)
            yield Batch(first, pairs.second[rows], hard_negatives, pairs.groups[rows])

    def embed(self, batch: Batch) -> Sides:
        """Embed first sentences, second sentences and hard negatives of a batch in one pass through the network.

        A sentence that stands on both sides (`positives: views`) so gets two different dropout masks.
        """
        # First sides, second sides and hard negatives, one below the other.
        sentences = (batch.first, batch.second, batch.hard_negatives)
        z = self.model(self.words[torch.cat(sentences).to(self.device)])
        first, second, hard_negatives = torch.split(z, [len(part) for part in sentences])
        return Sides(first, second, batch.groups.to(self.device), hard_negatives)

    def features(self, texts: Sequence[str]) -> Matrix:
        """Return the encoder's features of texts, without the head, in evaluation mode and on the host."""
        # The network is a sequence of encoder (0) and head (1).
        encoder = self.model.eval().get_submodule("0")
        rows = min(EVAL_BATCH_ROWS, 4 * self.settings.batch_size)
        chunks = (words.to(self.device) for words in torch.split(self.reader(texts), rows))
        return self.outputs(encoder, chunks, "features").cpu()

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Return `spearman` and `pearson`: correlations of the test pairs' cosines with their scores, as for STS.

        Nothing is written to `folder`.
        """
        from scipy.stats import pearsonr, spearmanr

        first, second = (
            unit(self.features(self.test.column(name).to_pylist()))
            for name in ("premise", "hypothesis")
        )
        # Cosines of the two sides of each pair.
        cosines = (first * second).sum(1).double().numpy()
        return loop.Evaluation(
            {
                "spearman": float(spearmanr(cosines, self.test_scores).statistic),
                "pearson": float(pearsonr(cosines, self.test_scores).statistic),
            }
        )


def _scores(part: Part, column: str) -> Float[np.ndarray, " n"]:
    """Return the scores of a part's pairs in this column; `DataError` where one is not finite or all are the same."""
    values = part.column(column).to_pylist()
    is_number = all(isinstance(value, int | float) and math.isfinite(value) for value in values)
    if not is_number or len(set(values)) < 2:
        raise DataError(
            f"{part.split.manifest.name}: column {column!r} must hold scores that differ"
        )
    return np.asarray(values, np.float64)
