"""A dual encoder in training, for any modality that defines its batches; `loop` runs its epochs."""

import abc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from contrasweep.trainables import checkpoint, diagnostics, loop, optimisation, seeding
from contrasweep.trainables.contrastive.temperature import LOWEST
from contrasweep.trainables.dual_encoder.settings import DualEncoderSettings
from contrasweep.trainables.losses import compose
from contrasweep.trainables.losses.batch import check_batch
from contrasweep.trainables.losses.weights import LearnedNumbers
from contrasweep.trainables.precision import widened
from contrasweep.trainables.pytorch import Float, Int, Integers, Matrix
from contrasweep.trainables.similarities import cosine
from contrasweep.trainables.texts.encoders import load_pretrained
from contrasweep.trial import Trial

B = TypeVar("B")


@dataclass(frozen=True)
class Sides:
    """Embeddings of a batch of pairs.

    Row i of `first` [n d] and row i of `second` [n d] are a pair. `labels` [n] group the pairs, for losses of labels.
    `hard_negatives` [k d] are further negatives of the first side, of which a batch may have none (k = 0). None: a
    method without hard negatives.
    """

    first: Matrix
    second: Matrix
    labels: Integers
    hard_negatives: Float[Tensor, "k d"] | None = None

    @property
    def stacked(self) -> Float[Tensor, "n2 d"]:
        """Return the embeddings of both sides, one after the other."""
        return torch.cat([self.first, self.second])


class DualEncoder(loop.Trained, abc.ABC, Generic[B]):
    """A trial of a dual encoder in training, with network and optimizer on `device`; each modality derives from it.

    `rows` is the number of rows of the training part: pairs of texts, or images with captions. The type `B` is that of
    a batch before its two sides are embedded, such as images with word indices.
    """

    settings: DualEncoderSettings

    def __init__(
        self, trial: Trial, settings: DualEncoderSettings, rows: int, device: torch.device
    ) -> None:
        settings.check_batch(rows)
        self.trial = trial
        self.settings = settings
        self.rows = rows
        self.device = device
        self.key = (trial.seed, trial.fold)
        seeding.reseed(*self.key, "weights")
        self.model = self.network()
        load_pretrained(self.model)
        self.model.to(device)
        # A learned temperature (and bias) is trained with the network, by the same optimizer.
        self.learned = (
            LearnedNumbers(settings.loss.parameters, ("temperature",)).to(device)
            if settings.learnable_temperature
            else None
        )
        self.loss_of_rows = None if settings.of_two_sides else compose(settings.loss)
        trained = nn.ModuleList(
            [self.model] if self.learned is None else [self.model, self.learned]
        )
        self.optimizer: optimisation.Optimizer = settings.optimizer.build(
            trained.parameters(), settings.learning_rate
        )
        self.per_epoch = rows // settings.batch_size
        self.schedule = optimisation.Schedule.of(
            settings, self.per_epoch, warmup_from=settings.learning_rate / 10
        )
        self.guard = loop.Guard(settings.learning_rate, settings.loss)

    @abc.abstractmethod
    def network(self) -> nn.Module:
        """Build the network of both sides, initialised from torch's global generator."""

    @abc.abstractmethod
    def batches(self, order: Int[Tensor, "batches b"], *key: int | None) -> Iterator[B]:
        """Yield the batches of an epoch: one for each row of `order` [batches b], which has the rows of the batch.

        All random choices in the batches, such as augmentation, are seeded by `key` (seed, fold, epoch).
        """

    @abc.abstractmethod
    def embed(self, batch: B) -> Sides:
        """Embed a batch, with gradients."""

    @abc.abstractmethod
    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Return the scores of the held-out part; after the last epoch (`final`) also files, written to `folder`."""

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves and restores: name -> object with a `state_dict`."""
        learned = {} if self.learned is None else {"logits": self.learned}
        return {**super().parts, **learned}

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train epoch 1, 2, ... and return the means over its steps, and diagnostics of its last batch."""
        # Seeded anew, so that a resumed trial draws what an uninterrupted one does.
        key = (*self.key, epoch)
        seeding.reseed(*key)
        self.model.train()
        size = self.settings.batch_size
        # The number of the epoch's first step in the whole training; rows that make no whole batch are left out.
        first = (epoch - 1) * self.per_epoch
        order = torch.randperm(self.rows, generator=seeding.generator(*key, "order"))
        order = order[: self.per_epoch * size].reshape(-1, size)
        measured: list[Tensor] = []
        last: Sides | None = None
        batches = self.batches(order, *key)
        for _, norm, kept in self.steps(first, batches, self._gradients):
            loss, last = kept
            measured.append(torch.stack([loss, norm]))
            if self.learned is not None:
                clamp(self.learned)
        metrics = self.guard.means(measured, epoch) | {"learning_rate": self.optimizer.lr}
        assert last is not None
        # Diagnostics see both sides stacked, where the two rows of a pair belong together. They get no loss (None), so
        # that there is no collapse value.
        pairs = torch.arange(size, device=self.device).repeat(2)
        learned = {} if self.learned is None else self.learned.metrics()
        return metrics | learned | diagnostics.of_batch(None, metrics["loss"], last.stacked, pairs)

    def _gradients(self, batch: B) -> tuple[Tensor, list[Tensor], tuple[Tensor, Sides]]:
        """Return the loss of a batch, its gradient for each parameter, and what the report needs of the batch.

        The last is a pair: the loss and the embeddings, both without graph.
        """
        with self.autocast():
            sides = self.embed(batch)
        loss = self.loss(sides)
        gradients = optimisation.gradients_of(self.optimizer, loss)
        detached = Sides(sides.first.detach(), sides.second.detach(), sides.labels)
        return loss, gradients, (loss.detach(), detached)

    def loss(self, sides: Sides) -> Float[Tensor, ""]:
        """Return the loss of a batch, in float32 or float64; `NotFiniteError` where embeddings are not finite."""
        first = widened(sides.first)
        second = widened(sides.second)
        # A loss of all rows sees both sides stacked, with the pair of each row as its instance.
        if self.loss_of_rows is not None:
            stacked = torch.cat([first, second])
            labels = sides.labels.repeat(2)
            pairs = torch.arange(len(first), device=first.device).repeat(2)
            return self.loss_of_rows(stacked, labels, pairs)
        # A loss of two sides sees the cosines of the first with the second, and with further negatives after it.
        candidates = second
        if sides.hard_negatives is not None:
            candidates = torch.cat([second, widened(sides.hard_negatives)])
        # Only the embeddings are to be checked: the labels, which `check_batch` needs too, are mere numbers.
        check_batch(
            torch.cat([first, candidates]), torch.arange(len(first) + len(candidates)), None
        )
        learned = {} if self.learned is None else self.learned.values()
        parameters = {**self.settings.loss.parameters, **learned}
        value: Tensor = self.settings.loss.entry(cosine(first, candidates), **parameters)
        return value


@torch.no_grad()
def clamp(learned: LearnedNumbers) -> None:
    """Raise a learned temperature that a step has brought below its bound, to that bound.

    The bound is .01, as in CLIP, or the temperature at which training starts where that is lower.
    """
    # t0 e^x >= LOWEST where x >= log(LOWEST / t0); x may always be 0.
    learned.offsets["temperature"].clamp_(
        min=min(0.0, math.log(LOWEST / learned.initial["temperature"]))
    )
