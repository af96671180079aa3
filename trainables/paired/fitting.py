"""A trial of the LOCAL family in training, for any modality that fills `Inputs`; its epochs are run by `loop`."""

import abc
import math
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrasweep.data.reading import Part
from contrasweep.rows import ItemColumns
from contrasweep.trainables import diagnostics, loop, optimisation, seeding
from contrasweep.trainables.losses.tiled import Counts
from contrasweep.trainables.paired import figures, metrics, tables
from contrasweep.trainables.paired.network import Joint
from contrasweep.trainables.paired.objective import Objective
from contrasweep.trainables.paired.settings import SAMPLERS, PairedSettings
from contrasweep.trainables.paired.tables import EmbeddedPart
from contrasweep.trainables.precision import widened
from contrasweep.trainables.pytorch import Int, Integers
from contrasweep.trial import Report, Trial

COLLAPSED_COSINE = 0.9
"""Mean cosine of the class centres of z above which the shift common to all pairs is all that z shows."""

EVAL_BATCH_ROWS = 256
"""Inputs of a forward pass in an evaluation, at most; four training batches where these are fewer.

So an evaluation needs less memory than training does."""


Views = Callable[[Tensor, slice], tuple[Tensor, ...]]
"""The sides of a batch's rows at their places in the epoch's order."""
Batch = tuple[list[Tensor], Tensor]
"""The sides of a batch, and its labels."""


class Inputs(abc.ABC):
    """The part of a training that depends on the modality: data on the device, views, network.

    `test_rows` are the numbers of the test items in the dataset. `test_grouping` is {"group": the group of each test
    item}; {} where items have no groups.
    """

    settings: Any
    """The trial's settings, resolved."""

    def __init__(self, trial: Trial, train: Part, test: Part, device: torch.device) -> None:
        self.device = device
        self.train_labels, self.test_labels = (torch.tensor(part.labels) for part in (train, test))
        self.test_rows = np.asarray(test.rows)
        self.test_grouping: ItemColumns = test.grouping
        self.class_names = tuple(trial.data.classes)
        # Without named classes, the largest label of both parts, counted from 0, says how many there are.
        self.classes = len(self.class_names) or 1 + int(
            max(self.train_labels.max(), self.test_labels.max())
        )

    @abc.abstractmethod
    def model(self) -> Joint:
        """Build the network, initialised from torch's global generator."""

    def train_mode(self, model: Joint) -> None:
        """Put `model` into training mode; a part may stay in evaluation mode, such as a frozen BatchNorm."""
        model.train()

    @abc.abstractmethod
    def sides_of_rows(self, split: str, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the sides of these rows of `split` ("train", "test") as the network takes them, not augmented."""

    @abc.abstractmethod
    def epoch(self, *key: int | str | None) -> Views:
        """Draw the random views of all places of one epoch, seeded by `key`.

        Returns a function f(rows, places) -> sides, to be called for each batch. `rows` are the training rows of the
        batch, `places` is the slice of the epoch's order in which they stand. The result has the augmented images or
        texts of each side.
        """


@dataclass(frozen=True)
class Step:
    """One training step, as the report on it needs it; `z` [n d] and `labels` [n] are those of its batch.

    `terms` is name -> a part of the loss, or under `loss` the loss itself. `negatives` is name of a metric -> its
    counts: negatives with a cosine below 0, and all negatives.
    """

    terms: dict[str, Tensor]
    z: Tensor
    labels: Tensor
    negatives: dict[str, Counts]


class PairedTraining(loop.Trained):
    """A trial of a paired method in training: network, objective, optimiser and epochs."""

    settings: PairedSettings
    model: Joint

    def __init__(self, trial: Trial, inputs: Inputs) -> None:
        self.trial = trial
        self.inputs = inputs
        self.key = (trial.seed, trial.fold)
        self.settings = settings = inputs.settings
        self.device = device = inputs.device
        settings.check_batch(len(inputs.train_labels))
        # Seeded here, so that the initial weights depend on nothing that was drawn before.
        seeding.reseed(*self.key, "weights")
        self.model = inputs.model().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.objective = Objective(settings, inputs.train_labels, inputs.classes, device)
        self.optimizer: optimisation.Optimizer = settings.optimizer.build(
            self.model.parameters(), settings.learning_rate
        )
        self.per_epoch = len(inputs.train_labels) // settings.batch_size
        self.schedule = optimisation.Schedule.of(
            settings, self.per_epoch, warmup_from=settings.learning_rate / 10
        )
        self.guard = loop.Guard(settings.learning_rate, settings.loss)
        self.evaluated_rows = min(EVAL_BATCH_ROWS, 4 * settings.batch_size)

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train epoch 1, 2, ... and return the means of the loss's parts over its steps, and diagnostics of z."""
        # Seeded anew, so that a resumed trial draws what an uninterrupted one does.
        seeding.reseed(*self.key, epoch)
        self.inputs.train_mode(self.model)
        settings = self.settings
        # The number of the epoch's first step in the whole training, and alpha_t of this epoch.
        first = (epoch - 1) * self.per_epoch
        weight = settings.alpha_in(epoch - 1)
        steps_taken: list[dict[str, Tensor]] = []
        negatives: dict[str, list[Counts]] = {}
        last: Step | None = None
        compute = partial(self._gradients, weight)
        for _, norm, last in self.steps(first, self._batches(epoch), compute):
            steps_taken.append(last.terms | {"grad_norm": norm})
            for name, counts in last.negatives.items():
                negatives.setdefault(name, []).append(counts)
        self.guard.require_steps(len(steps_taken), epoch)
        assert last is not None
        # The mean of each of the loss's parts over the steps that were taken.
        means = {}
        for name in steps_taken[0]:
            values = torch.stack([values_of_step[name] for values_of_step in steps_taken])
            means[name] = float(values.double().mean())
        diagnosed = self._diagnose(last, epoch)
        diagnosed |= self.negative_metrics(self.objective.contrast, negatives, epoch)
        progress = {
            "learning_rate": self.optimizer.lr,
            "steps": float(epoch * self.per_epoch),
            "alpha": weight,
        }
        return means | diagnosed | progress

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch as (sides, labels), on the device.

        `sides` has a tensor for each side of the pairs: the first views of all b rows, then their second views, and so
        on. `labels` [b x views] are in the same order.
        """
        order: Int[Tensor, "batches b"] = SAMPLERS[self.settings.sampler](
            self.inputs.train_labels,
            self.settings.batch_size,
            seeding.generator(*self.key, epoch, "order"),
        )
        views = [
            self.inputs.epoch(*self.key, epoch, f"view {i + 1}")
            for i in range(self.settings.n_views)
        ]
        for i, rows in enumerate(order):
            # Views are drawn for places in the epoch, so that a row that comes twice looks different each time.
            places = slice(i * len(rows), (i + 1) * len(rows))
            # A list of sides for each view becomes one list of sides, each with all views one below the other.
            sides_of_views = [view(rows, places) for view in views]
            sides = [torch.cat(same_side) for same_side in zip(*sides_of_views, strict=True)]
            labels = self.inputs.train_labels[rows].repeat(self.settings.n_views)
            yield sides, labels.to(self.inputs.device)

    def _gradients(self, weight: float, batch: Batch) -> tuple[Tensor, list[Tensor], Step]:
        """Return the loss of a batch, its gradient for each parameter, and its `Step`.

        `weight` is alpha_t, the weight of the contrastive part of the loss in this epoch.
        """
        sides, labels = batch
        with self.autocast():
            out = self.model(*sides)
        negatives: dict[str, Counts] = {}
        loss, terms = self.objective(out, labels, weight, negatives)
        gradients = optimisation.gradients_of(self.optimizer, loss)
        detached = {name: value.detach() for name, value in terms.items()} | {"loss": loss.detach()}
        return loss, gradients, Step(detached, widened(out.z.detach()), labels, negatives)

    def _diagnose(self, last: Step, epoch: int) -> dict[str, float]:
        """Return the finite metrics of `diagnostics.of_batch` for z in an epoch's last batch.

        A warning is logged the first time that all embeddings have collapsed. {} where z is 0 throughout, as it is
        where one side of a pair is fed twice. A batch without positive pairs has no `alignment`.
        """
        if not last.z.any():
            return {}
        diagnosed = diagnostics.of_batch(
            self.objective.contrast, last.terms["contrast_z"], last.z, last.labels
        )
        self.warn_if_stuck(diagnosed, epoch)
        return {name: value for name, value in diagnosed.items() if math.isfinite(value)}

    @torch.no_grad()
    def embed(self, split: str, rows: Integers, labels: Int[Tensor, " all"]) -> EmbeddedPart:
        """Return embeddings and predictions of these rows of `split` ("train", "test"), without augmentation.

        `labels` are those of the whole split.
        """
        self.model.eval()
        batches = []
        for chunk in torch.split(rows, self.evaluated_rows):
            with self.autocast():
                out = self.model(*self.inputs.sides_of_rows(split, chunk))
            batches.append((out.z, out.e_post, out.z_raw, out.logits.argmax(1)))
        # Each of the four outputs, joined over all batches.
        z, e_post, z_raw, predicted = (
            torch.cat(column).cpu() for column in zip(*batches, strict=True)
        )
        self.guard.require_finite(z_raw, "embeddings")
        return EmbeddedPart(widened(z), widened(e_post), widened(z_raw), predicted, labels[rows])

    def test(self) -> tuple[EmbeddedPart, dict[str, float]]:
        """Return the test part's embeddings, and its scores with the geometry of its classes."""
        part = self.embed(
            "test", torch.arange(len(self.inputs.test_labels)), self.inputs.test_labels
        )
        counts = torch.bincount(self.inputs.train_labels, minlength=self.inputs.classes)
        scores = metrics.scores(part.predicted, part.labels, counts)
        return part, scores | metrics.geometry(part.z, part.z_raw, part.labels, self.inputs.classes)

    def train_sample(self, limit: int = 2000) -> EmbeddedPart:
        """Return the embeddings of at most `limit` training rows, a random choice that is the same in every arm.

        The contrastive loss has shaped these embeddings directly, and those of test rows only indirectly.
        """
        rows = torch.randperm(
            len(self.inputs.train_labels), generator=seeding.generator(*self.key, "sample")
        )[:limit]
        return self.embed("train", rows.sort().values, self.inputs.train_labels)

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Return scores and geometry of the test part.

        With `final` also the geometry of training rows, values of single items, and artifacts in `folder`.
        """
        part, scores = self.test()
        if not final:
            return loop.Evaluation(scores)
        # Classes may lie apart on training rows and not on test rows.
        sample = self.train_sample()
        scores |= metrics.geometry(
            sample.z, sample.z_raw, sample.labels, self.inputs.classes, prefix="train_"
        )
        # `beta` weighs the loss of l: to lower it is advice only where it is above 0.
        if self.model.paired and scores.get("centre_cosine", 0.0) > COLLAPSED_COSINE:
            warnings.warn(
                f"the class centres of z have a mean cosine of {scores['centre_cosine']:.2f}: z shows little "
                f"but the shift common to all pairs: {self.guard.remedy}"
                f"{', or lower beta' if self.settings.beta > 0 else ''}",
                stacklevel=2,
            )
        right = (part.predicted == part.labels).long().tolist()
        items = {"accuracy": right, **self.inputs.test_grouping}
        return loop.Evaluation(scores, items, self._artifacts(folder, part, sample))

    def _artifacts(self, folder: Path, part: EmbeddedPart, sample: EmbeddedPart) -> dict[str, Path]:
        """Write embeddings, centres and figures as the settings ask for them; return name -> file."""
        if self.settings.artifacts == "none":
            return {}
        names = self.inputs.class_names or tuple(str(k) for k in range(self.inputs.classes))
        files = tables.write(folder, part, sample, self.inputs.test_rows, names)
        if self.settings.artifacts == "figures":
            files += figures.draw(folder, folder).values()
        return {file.name: file for file in files}


def fit(
    trial: Trial,
    modality: Callable[[Trial, Any, torch.device], Inputs],
    settings: PairedSettings,
    resume: Path | None,
) -> Generator[Report]:
    """Train `trial` on inputs of a modality, from the checkpoint folder `resume` if given; report each epoch, from 1.

    `modality` builds the inputs from the trial, its `settings` and the device.

    A report has the means over the epoch's steps. Where an evaluation was due it also has `accuracy`, `f1_macro`, F1
    per class and the geometry of z. The last one has, besides, the geometry on training rows, per-item values and
    artifacts. The scores are those of the last epoch, never of the best.
    """
    device = seeding.prepare_device(settings.device, settings.threads)
    yield from PairedTraining(trial, modality(trial, settings, device)).reports(resume)
