"""A model in training: epochs over sampled groups, scores of a part, selection on the validation MAP."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasweep.errors import DataError
from trainables import checkpoint, diagnostics, optimisation, seeding
from trainables.review_helpfulness.batch import Batch, Corpus, Inputs, Output
from trainables.review_helpfulness.losses import helpfulness_bce, pairwise_ranking_loss
from trainables.review_helpfulness.metrics import PerProduct, per_product
from trainables.review_helpfulness.models import MODELS
from trainables.review_helpfulness.sampler import GroupSampler
from trainables.review_helpfulness.settings import Settings


class Plateau:
    """Lowers the learning rate after more than `patience` epochs in a row without a clearly better value (by 1e-4 of
    the best, as torch.optim's ReduceLROnPlateau in mode max)."""

    def __init__(self, lr: float, factor: float, patience: int) -> None:
        self.lr, self.factor, self.patience, self.best, self.waited = lr, factor, patience, -1.0, 0

    def step(self, value: float) -> None:
        """Take note of an epoch's `value` and set the next epoch's `lr`."""
        better = value > self.best * (1 + 1e-4) if self.best > 0 else value > self.best
        self.best, self.waited = (value, 0) if better else (self.best, self.waited + 1)
        if self.waited > self.patience:
            self.lr, self.waited = self.lr * self.factor, 0

    def state_dict(self) -> dict[str, Any]:
        return {"lr": self.lr, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.lr, self.best, self.waited = state["lr"], state["best"], state["waited"]


class Best:
    """The weights of the epoch with the highest validation MAP so far; the earlier one where two are equal."""

    def __init__(self) -> None:
        self.value, self.epoch, self.weights = -1.0, 0, dict[str, Tensor]()

    def offer(self, value: float, epoch: int, model: torch.nn.Module) -> None:
        if value > self.value:
            weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            self.value, self.epoch, self.weights = value, epoch, weights

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "epoch": self.epoch, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.value, self.epoch, self.weights = state["value"], state["epoch"], state["weights"]


class Fit:
    """Model, optimiser and sampler of one trial. Everything random follows from `key` (seed, fold) and the epoch."""

    def __init__(self, settings: Settings, inputs: Inputs, train: Corpus, key: tuple[int | None, ...]) -> None:
        self.settings, self.train, self.key = settings, train, key
        self.device = seeding.pick_device(settings.device)
        seeding.prepare(self.device, settings.threads)
        seeding.reseed(*key, "weights")
        self.model = MODELS[settings.model].model(settings.options(), inputs).to(self.device)  # type: ignore[call-arg]
        self.optimizer = optimisation.AdamW(self.model.parameters(), settings.learning_rate)  # no decay: Adam
        self.sampler = GroupSampler(
            train.label,
            train.product,
            interval=settings.interval,
            num_negatives=settings.num_negatives,
            max_groups=settings.max_groups,
        )
        if not len(self.sampler):
            raise DataError(
                f"no product of the training part has reviews whose labels are more than {settings.interval} "
                "levels apart: use a larger dataset or interval=0"
            )
        self.plateau, self.best = (
            Plateau(settings.learning_rate, settings.plateau_factor, settings.plateau_patience),
            Best(),
        )

    @property
    def parts(self) -> dict[str, checkpoint.Stateful]:
        """What a checkpoint holds."""
        return {"model": self.model, "optimizer": self.optimizer, "plateau": self.plateau, "best": self.best}  # type: ignore[dict-item]

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train epoch 1, 2, ...; its mean losses by name, their sum as `loss`, and the mean gradient norm."""
        seeding.reseed(*self.key, epoch)
        rng = np.random.default_rng(seeding.derive(*self.key, epoch, "augment"))
        self.model.train()
        self.optimizer.lr = self.plateau.lr
        sums, steps, skipped = defaultdict[str, float](float), 0, 0
        for groups in self.sampler.batches(seeding.derive(*self.key, epoch, "groups"), self.settings.groups):
            found = self._step(groups, rng)
            skipped += found is None
            for name, value in (found or {}).items():
                sums[name] += value
            steps += found is not None
        if not steps:
            raise FloatingPointError(
                f"every step of epoch {epoch} had a loss or gradient that is not finite: lower "
                f"learning_rate ({self.settings.learning_rate})"
            )
        return {name: value / steps for name, value in sums.items()} | {
            "learning_rate": self.optimizer.lr,
            "nonfinite_steps": float(skipped),
        }

    def _step(self, groups: NDArray[np.int64], rng: np.random.Generator) -> dict[str, float] | None:
        """One optimiser step; None where loss or gradient is not finite (then nothing moves)."""
        rows = groups.reshape(-1)
        batch = self.train.batch(rows, np.repeat(np.arange(len(groups)), groups.shape[1]))
        batch = self.model.augment(batch, self.train, rows, rng).to(self.device)
        output = self.model(batch)
        losses = {self.settings.loss: self._main_loss(output, batch, groups.shape[1]), **output.losses}
        loss = torch.stack(list(losses.values())).sum()
        gradients = optimisation.gradients_of(self.optimizer, loss)
        norm = diagnostics.gradient_norm(gradients)
        if not torch.isfinite(loss + norm):
            return None
        self.optimizer.step(gradients)
        return {
            "loss": loss.item(),
            "grad_norm": norm.item(),
            **output.log,
            **({f"{name}_loss": value.item() for name, value in losses.items()}),
        }

    def _main_loss(self, output: Output, batch: Batch, width: int) -> Tensor:
        s = self.settings
        if s.loss == "bce":
            return helpfulness_bce(output.score, batch.label, s.helpful_threshold)
        scores, labels = output.score.view(-1, width), batch.label.view(-1, width)
        beta = s.beta if s.margin == "fixed" else (labels[:, :1] - labels[:, 1:]).to(scores.dtype)
        return pairwise_ranking_loss(scores[:, 0], scores[:, 1:], beta=beta, reduction="mean")

    def outputs(self, corpus: Corpus) -> Iterator[tuple[NDArray[np.int64], Output, Batch]]:
        """The model's outputs for all rows of a part, in batches of similar length: (rows, output, batch)."""
        self.model.eval()
        order = np.argsort([len(tokens) for tokens in corpus.review_tokens], kind="stable")
        for start in range(0, len(order), self.settings.evaluation_rows):
            rows = order[start : start + self.settings.evaluation_rows]
            batch = corpus.batch(rows).to(self.device)
            with torch.no_grad():
                output = self.model(batch)
            yield rows, output, batch

    def score(self, corpus: Corpus) -> NDArray[np.float64]:
        """The score of every row of a part, in row order."""
        scores = np.zeros(len(corpus))
        for rows, output, _ in self.outputs(corpus):
            scores[rows] = output.score.double().cpu().numpy()
        return scores

    def evaluate(self, corpus: Corpus) -> PerProduct:
        """The metrics of a part, per product."""
        return per_product(
            labels=corpus.label,
            scores=self.score(corpus),
            products=corpus.product,
            threshold=self.settings.relevance_threshold,
        )

    def select(self, epoch: int, dev_map: float) -> None:
        """Take note of an epoch's validation MAP: keep the best weights, set the next epoch's learning rate."""
        self.best.offer(dev_map, epoch, self.model)
        self.plateau.step(dev_map)

    def stopped(self, epoch: int) -> bool:
        """Whether training ends after this epoch."""
        waited = epoch - self.best.epoch
        return epoch >= self.settings.epochs or 0 < self.settings.patience <= waited

    def load_best(self) -> None:
        """Bring back the weights of the best epoch."""
        self.model.load_state_dict(self.best.weights)
