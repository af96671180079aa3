"""A trial of `finetune` in training; `loop` runs its epochs."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrasweep.data import open_dataset
from contrasweep.trainables import augmentations, checkpoint, images, loop, optimisation, seeding
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.evaluation.scores import classification
from contrasweep.trainables.finetune.settings import Settings
from contrasweep.trainables.pytorch import ImageBatch, Int, Integers, Matrix
from contrasweep.trial import Trial


class Finetune(loop.Trained):
    """A trial in training: labelled images, encoder and classifier on the device."""

    settings: Settings
    model: nn.Sequential

    def __init__(self, trial: Trial, settings: Settings) -> None:
        self.trial = trial
        self.settings = settings = settings.resolve(trial.data)
        self.key = (trial.seed, trial.fold)
        self.classes = len(trial.data.classes)
        self.device = seeding.prepare_device(settings.device, settings.threads)
        self.train, self.test = (
            images.open_images(part, self.device, settings.resident_gib, settings.view_size)
            for part in open_dataset(trial.data).parts(trial.fold)
        )
        self.normalise = images.Normalise(self.train)
        self.policy = augmentations.policy_of(settings.augmentation)
        # Which labels are used follows from seed and fold, so that all arms of a cell have the same.
        label_generator = seeding.generator(*self.key, "labels")
        self.rows = labelled_rows(self.train.labels.cpu(), settings.label_fraction, label_generator)
        self.size = min(settings.batch_size, len(self.rows))
        # Seeded again, so that the initial weights depend on nothing that was drawn before.
        seeding.reseed(*self.key, "weights")
        self.model = network(settings, self.train.shape, self.classes)
        if trial.start_folder is not None:
            checkpoint.load_encoder(trial.start_folder, self.model[0])
        self.model.to(self.device)
        self.optimizer = self._optimizer()
        self.schedule = optimisation.Schedule.of(
            settings, self.per_epoch, constant=settings.schedule == "constant"
        )
        self.guard = loop.Guard(settings.learning_rate)

    def _optimizer(self) -> optimisation.Optimizer:
        """Return the optimizer; with `layer_decay` each layer's rate is that of the layer above times the decay."""
        s = self.settings
        if s.layer_decay == 1:
            full_optimizer: optimisation.Optimizer = s.optimizer.build(
                self.model.parameters(), s.learning_rate
            )
            return full_optimizer
        # From the classifier down to the first layer of the encoder; each depth multiplies the rate by the decay.
        groups = [list(self.model[1].parameters()), *reversed(layers(self.model[0]))]
        rates = [s.layer_decay**depth for depth in range(len(groups))]
        optimizers = [
            s.optimizer.build(group, s.learning_rate * rate)
            for group, rate in zip(groups, rates, strict=True)
        ]
        return optimisation.WithOwnRates(optimizers, rates)

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch: whole batches of the labelled rows."""
        return len(self.rows) // self.size

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train epoch 1, 2, ... and return the means of loss and gradient norm over its steps."""
        # Seeded anew, so that a resumed trial draws what an uninterrupted one does.
        key = (*self.key, epoch)
        seeding.reseed(*key)
        self.model.train()
        # A frozen encoder keeps its running statistics.
        if self.settings.frozen:
            self.model[0].eval()
        order = self.rows[
            torch.randperm(len(self.rows), generator=seeding.generator(*key, "order"))
        ]
        measured: list[Tensor] = []
        batches = self._batches(order, *key)
        for _, norm, loss in self.steps((epoch - 1) * self.per_epoch, batches, self._gradients):
            measured.append(torch.stack([loss, norm]))
        return self.guard.means(measured, epoch) | {"learning_rate": self.optimizer.lr}

    def _batches(
        self, order: Int[Tensor, " m"], *key: int | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (inputs, rows) for each step of an epoch; rows [b] are the numbers of the images in the training part.

        Inputs are augmented images [b c h w], or their features [b d] where the encoder is frozen. `order` has the rows
        of the epoch. `key` (seed, fold, epoch) seeds the augmentation.
        """
        # Images that never change have the same features in every epoch, which are computed once.
        if self.settings.frozen and self.settings.augmentation.name == "none":
            for rows in torch.split(order[: self.per_epoch * self.size], self.size):
                yield self._features[rows], rows
            return
        for views, rows in images.batches(
            self.train, self.normalise, [self.policy], order, self.size, *key
        ):
            inputs = self._encoded(views) if self.settings.frozen else views
            yield inputs, rows

    @cached_property
    def _features(self) -> Matrix:
        """The features of all training images from a frozen encoder; they are the same in every epoch."""
        return self.outputs(self._encoded, self._chunks(self.train))

    @torch.no_grad()
    def _encoded(self, normal: ImageBatch) -> Matrix:
        """Return the features of normalised images, without gradient."""
        with self.autocast():
            features: Tensor = self.model[0].eval()(normal.to(self.device))
        return features.float()

    def _gradients(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, list[Tensor], Tensor]:
        """Return the loss of a batch of `_batches`, its gradient for each parameter, and the loss without graph.

        The last is for the report.
        """
        inputs, rows = batch
        # The classifier (1) takes the features of a frozen encoder.
        trained = self.model[1] if self.settings.frozen else self.model
        with self.autocast():
            logits = trained(inputs.to(self.device))
        loss = F.cross_entropy(logits.float(), self.train.labels[rows.to(self.device)])
        return loss, optimisation.gradients_of(self.optimizer, loss), loss.detach()

    def _chunks(self, part: images.Images) -> Iterator[Tensor]:
        """Yield the images of a part, normalised but not augmented, some at a time."""
        return self.normalise.chunks(part.blocks(), self.settings.evaluated_rows)

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Return the scores of the classifier on the held-out part; with `final` also whether each item is right.

        Nothing is written to `folder`.
        """
        predicted = self.outputs(self.model.eval(), self._chunks(self.test)).argmax(1)
        metrics = classification(predicted, self.test.labels, self.classes)
        if not final:
            return loop.Evaluation(metrics)
        right = (predicted == self.test.labels).cpu().numpy().astype(np.uint8)
        return loop.Evaluation(metrics, {"accuracy": right, **self.test.grouping})


def network(settings: Settings, shape: Shape, classes: int) -> nn.Sequential:
    """Return encoder and classifier for images of `shape` (channels, height, width), in the faster memory layout."""
    model = settings.build_network(shape, classes)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def labelled_rows(
    labels: Integers, fraction: float, generator: torch.Generator
) -> Int[Tensor, " k"]:
    """Return the rows whose labels are used, in their order: of each class this `fraction`, and at least one row."""
    if fraction == 1:
        return torch.arange(len(labels))
    # A random choice from each class.
    chosen = []
    for label in torch.unique(labels):
        rows = (labels == label).nonzero().flatten()
        count = max(1, round(fraction * len(rows)))
        chosen.append(rows[torch.randperm(len(rows), generator=generator)[:count]])
    return torch.cat(chosen).sort().values


def layers(encoder: nn.Module) -> list[list[nn.Parameter]]:
    """Return the parameters of each layer of an encoder, the first layer first.

    A layer is a child module of the encoder with weights of two dimensions or more. Sequences of modules count as their
    members where they have no parameters of their own, and an encoder that is a wrapper of one module counts as that
    module. Biases, normalisation and other parameters without such a layer (tokens of a transformer) join the layer
    before them, or else the first.
    """
    # Parameters that come before the first layer; they join it at the end.
    before = list(encoder.parameters(recurse=False))
    # Through wrappers that have one child, to the module whose children are layers.
    children = list(encoder.children())
    while len(children) == 1:
        encoder = children[0]
        before += encoder.parameters(recurse=False)
        children = list(encoder.children())
    by_layer: list[list[nn.Parameter]] = []
    for module in _blocks(encoder):
        parameters = list(module.parameters())
        if any(parameter.ndim > 1 for parameter in parameters):
            by_layer.append(parameters)
        elif by_layer:
            by_layer[-1] += parameters
        else:
            before += parameters
    if not by_layer:
        return [before]
    return [before + by_layer[0], *by_layer[1:]]


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children of a module in their order.

    In place of a sequence of modules that has no parameters of its own, its children are yielded.
    """
    for child in module.children():
        is_sequence = isinstance(child, nn.Sequential | nn.ModuleList)
        if is_sequence and not list(child.parameters(recurse=False)):
            yield from _blocks(child)
        else:
            yield child
