"""Contrastive training of an image encoder on two augmented views, with any loss and similarity.

    list(train(trial))

One report an epoch; the last one has the scores of the held-out part.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cluster.memory import Workload
from contrasweep.data import open_dataset
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError
from contrasweep.trial import Report, Trial
from trainables import augmentations, checkpoint, diagnostics, evaluation, images, loop, optimisation, seeding
from trainables.contrastive_memory import workload
from trainables.contrastive_settings import Settings
from trainables.evaluation import target_noise
from trainables.exporting import FromPixels
from trainables.gradcache import chunked_step


@dataclass(frozen=True)
class Step:
    """What a step leaves for the report: its loss and its batch; `chunks` says whether it was encoded in chunks."""

    loss: Tensor
    embeddings: Tensor
    labels: Tensor
    rows: Tensor
    chunks: dict[str, float]


class Contrastive:
    """A trial in training: data, network and optimizer on the device, and one method for each half of an epoch."""

    def __init__(self, trial: Trial, settings: Settings) -> None:
        settings = settings.resolve(trial.data)
        self.settings, self.key = settings, (trial.seed, trial.fold)
        self.order_key = (trial.seed if settings.order_seed is None else settings.order_seed, trial.fold)
        self.device = seeding.pick_device(settings.device)
        seeding.prepare(self.device, settings.threads)
        self.train, self.test = self._open(trial)
        self.classes = len(trial.data.classes) or int(max(self.train.labels.max(), self.test.labels.max())) + 1
        self.normalise = images.Normalise(self.train)
        self.policy: augmentations.Policy = settings.augmentation.settings
        seeding.reseed(*self.key, "weights")
        self.model = network(settings, self.train.shape).to(self.device)
        self.optimizer: optimisation.Optimizer = settings.optimizer.build(
            self.model.parameters(), settings.learning_rate
        )
        self.schedule = self._schedule()
        self.loss = settings.build_loss()
        self.guard, self.trial = loop.Guard(), trial

    def _open(self, trial: Trial) -> tuple[images.Images, images.Images]:
        if trial.data.kind != "image":
            raise DataError(f"dataset {trial.data.name} is of kind {trial.data.kind!r}; contrastive trains on images")
        train, test = open_dataset(trial.data).parts(trial.fold)
        return images.Images(train, self.device), images.Images(test, self.device)

    def _schedule(self) -> optimisation.Schedule:
        s = self.settings
        per_epoch = max(1, len(self.train) // s.batch_size)
        warmup = (s.warmup_epochs or 0) * per_epoch
        return optimisation.Schedule(s.learning_rate, s.epochs * per_epoch, warmup, constant=s.schedule == "constant")

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """What a checkpoint saves and restores."""
        return {"model": self.model, "optimizer": self.optimizer}

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train epoch 1, 2, ... and return its metrics."""
        seeding.reseed(*self.key, epoch)
        self.model.train()
        order = images.epoch_order(
            self.train.labels, self.settings.sampling, seeding.generator(*self.order_key, epoch, "order")
        )
        stream = images.batches(
            self.train, self.normalise, self.policy, order, self.settings.batch_size, *self.key, epoch
        )
        first = (epoch - 1) * max(1, len(order) // self.settings.batch_size)
        measured: list[Tensor] = []
        last: Step | None = None
        for i, (views, rows) in enumerate(stream):
            self.optimizer.lr = self.schedule.at(first + i)
            taken = self.guard.step(self.optimizer, partial(self._gradients, views, rows))
            if taken is not None:
                norm, last = taken
                measured.append(torch.stack([last.loss, norm]))
        self.guard.require_steps(len(measured), epoch, f"{self._lower_rate} or raise the temperature")
        assert last is not None
        loss, grad_norm = torch.stack(measured).double().mean(0).tolist()
        metrics = {"loss": loss, "grad_norm": grad_norm, "learning_rate": self.optimizer.lr}
        return metrics | last.chunks | self._diagnose(last, epoch)

    def ends(self, epoch: int) -> bool:
        """Whether training ends after this epoch."""
        return epoch >= self.settings.epochs

    @property
    def _lower_rate(self) -> str:
        return f"lower learning_rate ({self.settings.learning_rate})"

    def _diagnose(self, last: Step, epoch: int) -> dict[str, float]:
        """Diagnostics of an epoch's last batch, and a warning the first time that the trial is stuck."""
        metrics = diagnostics.of_batch(self.loss, last.loss, last.embeddings, last.labels, last.rows)
        if not self.guard.warned:
            name = f"{self.trial.arm} (trial {self.trial.id})"
            self.guard.warned = diagnostics.warn_if_stuck(metrics, epoch, name)
        return metrics

    def _gradients(self, views: Tensor, rows: Tensor) -> tuple[Tensor, list[Tensor], Step]:
        """Loss and gradients of a batch: both views of each image, one view after the other, and the images' rows."""
        rows = rows.to(self.device)
        labels, rows = self.train.labels[rows].repeat(2), rows.repeat(2)

        def objective(embeddings: Tensor) -> Tensor:
            with torch.autocast(self.device.type, enabled=False):
                value: Tensor = self.loss(embeddings.float(), labels, rows)
            return value

        chunk = self.settings.chunk_rows
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.autocast):
            if 0 < chunk < len(views):
                done = chunked_step(self.model, views, objective, self.optimizer.parameters, chunk)
                return done.loss, done.gradients, Step(done.loss, done.embeddings, labels, rows, done.metrics)
            embeddings = self.model(views)
        loss = objective(embeddings)
        gradients = optimisation.gradients_of(self.optimizer, loss)
        return loss, gradients, Step(loss.detach(), embeddings.detach(), labels, rows, {})

    @torch.no_grad()
    def embed(self, part: images.Images) -> Tensor:
        """Features or embeddings (`evaluate_on`) of the un-augmented images of a part, float32 [n d]; at most four
        batches of them at a time, so that an evaluation needs less memory than training does."""
        self.model.eval()
        network = evaluated(self.model, self.settings)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.autocast):
            chunks = [
                network(self.normalise(pixels.float() / 255))
                for pixels in torch.split(part.pixels, min(1024, 4 * self.settings.batch_size))
            ]
        embeddings = torch.cat(chunks).float()
        self.guard.require_finite(embeddings, "values", self._lower_rate)
        return embeddings

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Scores of the held-out part; the costlier ones (probe, retrieval), items and figures at the end only."""
        scores = evaluation.evaluate(
            self.embed(self.train),
            self.train.labels,
            self.embed(self.test),
            self.test.labels,
            self.classes,
            classifier=self.settings.classifier,
            retrieval=final and self.settings.retrieval,
            probe=final,
        )
        if not final:
            return loop.Evaluation(scores.metrics)
        figures = _figures(scores, self.trial, folder) if self.settings.figures else {}
        return loop.Evaluation(scores.metrics, {**scores.items, **self.test.grouping}, figures)


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given. `step` is the epoch, from 1.

    Every report has `loss`, `grad_norm`, `learning_rate` and diagnostics of the embeddings; reports of epochs with
    an evaluation have its scores (see `evaluation.evaluate`), and the last one has per-item values for paired tests.
    """
    s = Settings(**trial.config)
    run = Contrastive(trial, s)
    yield from loop.run(run, trial, resume, evaluate_every=s.evaluate_every, checkpoint_every=s.checkpoint_every)


def network(settings: Settings, shape: tuple[int, int, int]) -> nn.Sequential:
    """Encoder and projection head for images of `shape` (channels, height, width)."""
    encoder = settings.encoder.build(shape)
    model = nn.Sequential(encoder, settings.projection.build(encoder.dim))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]  # faster, on CPUs by a quarter


def evaluated(model: nn.Sequential, settings: Settings) -> nn.Module:
    """What a trial's scores are of: the encoder, or the encoder with its head (`evaluate_on`)."""
    return model[0] if settings.evaluate_on == "features" else model


def load_model(folder: Path, trial: Trial) -> FromPixels:
    """The network in a checkpoint of `trial`: uint8 images [n c h w] to the features or embeddings that the trial's
    scores are of, float32 [n d]."""
    settings = Settings(**trial.config)
    train_part = images.Images(open_dataset(trial.data).parts(trial.fold)[0], torch.device("cpu"))
    model = network(settings, train_part.shape)
    model.load_state_dict(checkpoint.part(folder, "model"))
    return FromPixels(evaluated(model, settings), *train_part.moments())


def _figures(scored: evaluation.Evaluation, trial: Trial, folder: Path) -> dict[str, Path]:
    """Histograms of target and noise similarities, as cosine and as arc length: `similarities_<name>.png`."""
    cosine = scored.items["target_similarity"], scored.items["noise_similarity"]
    series = {"cosine": cosine, "neg_arc_length": tuple(target_noise.arc_length(values) for values in cosine)}
    folder.mkdir(parents=True, exist_ok=True)
    title = f"{trial.arm} on {trial.data.name}, seed {trial.seed}"
    return {
        f"similarities_{name}.png": target_noise.figure(
            target_noise.histogram(*values), folder / f"{name}.png", title=title, axis=f"{name} similarity"
        )
        for name, values in series.items()
    }


def memory(config: Mapping[str, Any], data: Manifest) -> Workload:
    """What a trial of this config takes; see `contrastive_memory`."""
    return workload(Settings(**config), data)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
