"""A ranker in training, as the shared loop drives it: epochs over sampled groups, selection on the validation MAP."""

import copy
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasweep.data.column_files import Ints
from contrasweep.errors import DataError
from contrasweep.trainables import checkpoint, loop, optimisation, seeding
from contrasweep.trainables.review_helpfulness.batch import Batch, Corpus, Output
from contrasweep.trainables.review_helpfulness.corpora import PreparedParts
from contrasweep.trainables.review_helpfulness.metrics import (
    PerProduct,
    distance_metrics,
    per_product,
    with_floors,
)
from contrasweep.trainables.review_helpfulness.networks import build_model
from contrasweep.trainables.review_helpfulness.sampler import GroupSampler
from contrasweep.trainables.review_helpfulness.settings import USUAL_THRESHOLD, Settings

REVIEWS = "reviews.parquet"
"""The artifact with the score of each test review."""


class Trainer:
    """Model, optimiser and sampler of one trial. Everything random follows from `key` (seed, fold) and the epoch."""

    def __init__(
        self, settings: Settings, data: PreparedParts, key: tuple[int | None, ...]
    ) -> None:
        self.settings = settings
        self.data = data
        self.key = key
        self.guard = loop.Guard(settings.learning_rate)
        chosen = settings.relevance_threshold
        self.threshold = USUAL_THRESHOLD if chosen is None else chosen
        self.device = seeding.prepare_device(settings.device, settings.threads)
        # Seeded here, so that the initial weights depend on nothing that was drawn before.
        seeding.reseed(*key, "weights")
        self.model = build_model(settings, data.inputs).to(self.device)
        # Without weight decay, as here, AdamW is Adam.
        self.optimizer = optimisation.AdamW(self.model.parameters(), settings.learning_rate)
        sampler = settings.sampler
        self.train = data.corpora["train"]
        self.sampler = GroupSampler(
            self.train.label,
            self.train.product,
            interval=sampler.interval,
            num_negatives=sampler.num_negatives,
            max_groups=sampler.max_groups,
        )
        if not len(self.sampler):
            raise DataError(
                f"no product of the training part has reviews of {sampler.interval + 2} different labels, which "
                f"sampler.interval={sampler.interval} needs: use a larger dataset or sampler.interval=0"
            )
        self.plateau = PlateauSchedule(
            settings.learning_rate, settings.plateau.factor, settings.plateau.patience
        )
        self.best = BestWeights()

    @property
    def parts(self) -> dict[str, checkpoint.Stateful]:
        """Return what a checkpoint saves and restores: name -> object with a `state_dict`."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "plateau": self.plateau,
            "best": self.best,
        }  # type: ignore[dict-item]

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train epoch 1, 2, ... and validate it: keep the best weights, set the next epoch's learning rate."""
        metrics = self.train_epoch(epoch)
        dev = self.evaluate_part(self.data.corpora["dev"]).mean()
        self.select(epoch, dev["map"])
        return metrics | {f"dev_{name}": value for name, value in dev.items()}

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Train one epoch; return its mean losses by name, their sum as `loss`, and the mean gradient norm."""
        # Seeded anew, so that a resumed trial draws what an uninterrupted one does.
        seeding.reseed(*self.key, epoch)
        rng = np.random.default_rng(seeding.derive(*self.key, epoch, "augment"))
        self.model.train()
        self.optimizer.lr = self.plateau.lr
        # Sums over the steps that were taken, for their means.
        sums = defaultdict[str, float](float, loss=0.0, grad_norm=0.0)
        steps = 0
        for groups in self.sampler.batches(
            seeding.derive(*self.key, epoch, "groups"), self.settings.sampler.groups
        ):
            step_taken = self.guard.step(self.optimizer, partial(self._gradients, groups, rng))
            # None: the guard took no step, as loss or gradient is not finite.
            if step_taken is not None:
                norm, numbers = step_taken
                steps += 1
                for name, number in numbers.items():
                    sums[name] += float(number)
                sums["grad_norm"] += float(norm)
        self.guard.require_steps(steps, epoch)
        return {name: value / steps for name, value in sums.items()} | {
            "learning_rate": self.optimizer.lr
        }

    def _gradients(
        self, groups: Ints, rng: np.random.Generator
    ) -> tuple[Tensor, list[Tensor], dict[str, Tensor | float]]:
        """Return loss, gradients and numbers for the report of a batch of groups.

        `groups` [groups, 1 + negatives] are numbers of rows. The numbers are the loss, what the model logs, and the
        parts of the loss by name.
        """
        # The reviews of all groups as one batch, each with the number of its group.
        rows = groups.reshape(-1)
        batch = self.train.batch(rows, np.repeat(np.arange(len(groups)), groups.shape[1]))
        batch = self.model.augment(batch, self.train, rows, rng).to(self.device)
        output = self.model(batch)
        # The ranking loss compares reviews of one group; the model adds losses of its own.
        scores = output.score.view(groups.shape)
        labels = batch.label.view(groups.shape)
        ranking = self.settings.loss.build(scores, labels, self.settings.helpful_threshold)
        losses = {self.settings.loss.name: ranking, **output.losses}
        loss = torch.stack(list(losses.values())).sum()
        parts = {f"{name}_loss": value.detach() for name, value in losses.items()}
        numbers = {"loss": loss.detach(), **output.log, **parts}
        return loss, optimisation.gradients_of(self.optimizer, loss), numbers

    def outputs(self, corpus: Corpus) -> Iterator[tuple[Ints, Output, Batch]]:
        """Yield the model's outputs for all rows of a part, in batches of similar length: (rows, output, batch)."""
        self.model.eval()
        # By length, so that a batch has little padding.
        order = np.argsort([len(tokens) for tokens in corpus.review_tokens], kind="stable")
        for start in range(0, len(order), self.settings.evaluation_rows):
            rows = order[start : start + self.settings.evaluation_rows]
            batch = corpus.batch(rows).to(self.device)
            with torch.no_grad():
                output = self.model(batch)
            yield rows, output, batch

    def score(self, corpus: Corpus) -> NDArray[np.float64]:
        """Return the score of every row of a part, in row order."""
        scores = np.zeros(len(corpus))
        for rows, output, _ in self.outputs(corpus):
            scores[rows] = output.score.double().cpu().numpy()
        return scores

    def evaluate_part(self, corpus: Corpus) -> PerProduct:
        """Return the metrics of a part by the model's scores, per product."""
        return self._per_product(corpus, self.score(corpus))

    def _per_product(self, corpus: Corpus, scores: NDArray[np.float64]) -> PerProduct:
        """Return the metrics of a part by these scores of its rows, per product."""
        return per_product(
            labels=corpus.label, scores=scores, products=corpus.product, threshold=self.threshold
        )

    def select(self, epoch: int, dev_map: float) -> None:
        """Keep the weights of this epoch if its validation MAP is the best so far; tell the learning-rate schedule."""
        self.best.offer(dev_map, epoch, self.model)
        self.plateau.step(dev_map)

    def ends(self, epoch: int) -> bool:
        """Return whether training ends after this epoch, counted from 1.

        It does after the last of `epochs`, and after `patience` epochs without a better MAP on the development part.
        """
        # A patience of 0 waits for ever.
        out_of_patience = 0 < self.settings.patience <= epoch - self.best.epoch
        return epoch >= self.settings.epochs or out_of_patience

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Score the test part with the best epoch's weights; called once, at the end.

        The scores of its reviews are written to `folder`. As floors, there are also the metrics of a random order, and
        of an order with the longest review first.
        """
        self.model.load_state_dict(self.best.weights)
        corpus = self.data.corpora["test"]
        scores = self.score(corpus)
        metrics, items = with_floors(self._per_product(corpus, scores), corpus, self.threshold)
        # The network runs once more for these, since the features of all reviews would not fit into memory.
        if self.settings.distances:
            outputs = ((output, batch) for _, output, batch in self.outputs(corpus))
            metrics |= distance_metrics(outputs, self.settings.helpful_threshold)
        metrics |= {
            f"dropped_{part}_reviews": float(count) for part, count in self.data.dropped.items()
        }
        return loop.Evaluation(
            metrics
            | {"best_epoch": float(self.best.epoch), "test_products": float(len(items["map"]))},
            items,
            {REVIEWS: write_reviews(corpus, scores, folder)},
        )


def write_reviews(corpus: Corpus, scores: NDArray[np.float64], folder: Path) -> Path:
    """Write product_id, review_id, label and score of each review of a part, in row order; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "product_id": corpus.product_ids,
            "review_id": corpus.review_ids,
            "label": corpus.label,
            "score": scores,
        }
    )
    pq.write_table(table, folder / REVIEWS)
    return folder / REVIEWS


class PlateauSchedule(checkpoint.Attributes):
    """A learning rate that is multiplied by `factor` after more than `patience` epochs without a clearly better value.

    A value is clearly better if it is above 1 + 1e-4 times the best one, as in torch.optim's ReduceLROnPlateau in mode
    max.
    """

    def __init__(self, lr: float, factor: float, patience: int) -> None:
        self.lr = lr
        self.factor = factor
        self.patience = patience
        self.best = -1.0
        self.waited = 0

    def step(self, value: float) -> None:
        """Take note of an epoch's `value`, the larger the better, and set the next epoch's `lr`."""
        # A value counts as better where it is a ten-thousandth above the best one. A best value of 0 or less is
        # beaten by any larger value.
        limit = self.best * (1 + 1e-4) if self.best > 0 else self.best
        if value > limit:
            self.best = value
            self.waited = 0
        else:
            self.waited += 1
        # After each fall the wait begins anew.
        if self.waited > self.patience:
            self.lr = self.lr * self.factor
            self.waited = 0


class BestWeights(checkpoint.Attributes):
    """The weights of the epoch with the highest validation MAP so far; the earlier one where two are equal."""

    def __init__(self) -> None:
        self.value = -1.0
        self.epoch = 0
        self.weights = dict[str, Tensor]()

    def offer(self, value: float, epoch: int, model: torch.nn.Module) -> None:
        """Keep a copy of the model's weights if this epoch's `value` is the best so far."""
        if value > self.value:
            self.value = value
            self.epoch = epoch
            self.weights = copy.deepcopy(model.state_dict())
