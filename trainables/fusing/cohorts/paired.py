"""Cohorts of `contrasweep.trainables.paired_images`: the `lane` of its trials, and their networks as one."""

import functools
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.fusing.cohorts import probing
from contrasweep.trainables.fusing.cohorts.method import (
    MethodCohorts,
    Recent,
    structure_of_loss,
    structure_of_optimizer,
    without_memory,
)
from contrasweep.trainables.fusing.cohorts.network import Batch, CohortNetwork, batch_buffer
from contrasweep.trainables.fusing.folding import FoldedLoss, Judged, Slots, Step, Unfoldable, fold, fold_optimizer
from contrasweep.trainables.fusing.folding.layers import FoldedBatchNorm
from contrasweep.trainables.fusing.folding.rules import PerMember
from contrasweep.trainables.fusing.protocol import CannotFuse
from contrasweep.trainables.images import image_shape
from contrasweep.trainables.losses import ComposedLoss
from contrasweep.trainables.losses.negatives import has_signed_scores
from contrasweep.trainables.paired import fitting
from contrasweep.trainables.paired.fitting import EVAL_BATCH_ROWS, Epoch, PairedTraining
from contrasweep.trainables.paired.network import Outputs
from contrasweep.trainables.paired.objective import Objective
from contrasweep.trainables.paired_images.inputs import ImageInputs
from contrasweep.trainables.paired_images.network import image_model
from contrasweep.trainables.paired_images.settings import COLUMNS, Settings
from contrasweep.trainables.precision import widened
from contrasweep.trainables.pytorch import Float, Int
from contrasweep.trial import Trial

_opened: Recent[ImageInputs] = Recent(lambda images: images.resident_bytes)


class PairedCohorts(MethodCohorts):
    """The `lane` of `trainables.paired_images:train`."""

    settings = Settings
    evaluated_rows = EVAL_BATCH_ROWS

    def structure(self, settings: Settings, data: Manifest) -> dict[str, object]:
        """Return what trials of one cohort have in common; `CannotFuse` where something cannot be folded.

        Left out is what may differ between members: the hyperparameters of loss and optimizer, learning rate and its
        schedule, alpha with its schedule, beta above 0, class weights, epochs, seeds, fold, sampler, augmentation,
        clipping, which colour is subtracted, and when and how scores are computed.
        """
        if not data.classes:
            raise CannotFuse(f"dataset {data.name} does not say what its classes are")
        shape, text = _shape(settings, data), _network_text(settings)
        if reason := _unfoldable(text, shape, len(data.classes)):
            raise CannotFuse(reason)
        return {
            "method": "paired images",
            "network": text,
            "shape": list(shape),
            "classes": len(data.classes),
            "loss": structure_of_loss(settings.build_loss()),
            "cross-entropy": settings.wce.reduction,
            "optimizer": structure_of_optimizer(settings.optimizer),
            "batch_size": settings.batch_size,
            "n_views": settings.n_views,
            "autocast": settings.autocast,
            "device": settings.device,
            "threads": settings.threads,
        }

    def network(self, settings: Settings, trial: Trial, slots: Slots, engine: str) -> "PairedNetwork":
        """Return the folded network of a trial and all of its key."""
        return PairedNetwork(settings, trial.data, slots, engine)

    def method(self, settings: Settings, trial: Trial, device: torch.device) -> PairedTraining:
        """Return a trial as `paired_images.train` starts it.

        Its images are opened once for all members of this process's cohorts with the same dataset, fold and size.
        """
        colours = settings.colour_units > 0
        key = (trial.data.digest, trial.fold, str(device), settings.input, settings.image_size, colours)
        images = _opened.get(key, lambda: ImageInputs(trial, settings, device))
        return PairedTraining(trial, images.shared_with(settings))

    def subject(self, settings: Settings, trial: Trial, device: torch.device) -> probing.Subject:
        """Return what a probe times: all views of all sides."""
        inputs = ImageInputs(trial, settings, device)
        sides = 2 if settings.paired else 1
        return probing.Subject(
            of_batches=lambda size: PairedTraining(trial, inputs.shared_with(replace(settings, batch_size=size))),
            device=device,
            images=settings.batch_size,
            rows=sides * settings.n_views * settings.batch_size,
            epochs=settings.epochs,
            evaluate_every=settings.evaluate_every,
        )


def _shape(settings: Settings, data: Manifest) -> Shape:
    """Return channels, height, width of an image as the network's sides have them; settings are resolved."""
    column = COLUMNS[settings.input][0]
    if "shape" not in data.columns.get(column, {}):
        raise CannotFuse(f"dataset {data.name} does not say how large its images are")
    return (image_shape(data, column)[0], settings.image_size, settings.image_size)


def _inputs(settings: Settings) -> int:
    """Return how many tensors the network takes: its sides, and the colour statistics of each."""
    return len(COLUMNS[settings.input]) * (2 if settings.colour_units else 1)


def _network_text(settings: Settings) -> str:
    """Return the settings that define the network, as text from which the same network can be built."""
    chosen = {
        "encoder": settings.encoder.to_plain(),
        "projection": settings.projection.to_plain(),
        "classifier": {"hidden": settings.classifier.hidden},
        "latent": {"blocks": "1-2-3-4", "weighting": "channel", "size": 0},
        "colour_units": settings.colour_units,
        "centre": "both" if settings.centre == "both" else "dataset",
        "input": "pair" if settings.paired else "pre_single",
        "image_size": settings.image_size,
        "z_norm": settings.z_norm,
        "beta": 1.0 if settings.beta > 0 else 0.0,
    }
    if settings.beta > 0:
        made = settings.latent
        chosen["latent"] = {"blocks": made.blocks, "weighting": made.weighting, "size": made.size}
    return canonical.dumps(chosen)


@functools.lru_cache(maxsize=256)
def _unfoldable(text: str, shape: Shape, classes: int) -> str:
    """Return why the network of these settings, given as text, cannot be folded; "" where it can.

    Plans ask for many trials of one network.
    """
    settings = Settings(**json.loads(text))
    with without_memory():
        try:
            fold(image_model(settings, shape, classes), 1, inputs=_inputs(settings))
        except Unfoldable as error:
            return error.reason
    return ""


class PairedNetwork(CohortNetwork[PairedTraining]):
    """A step of `paired.fitting.PairedTraining`, for all members."""

    def __init__(self, settings: Settings, data: Manifest, slots: Slots, engine: str) -> None:
        classes, device = len(data.classes), slots.active.device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each member says so itself
            model = image_model(settings, _shape(settings, data), classes)
            objective = Objective(settings, torch.arange(classes), classes, device)
        model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        network = fold(model.train(), slots, engine, inputs=_inputs(settings))
        if settings.encoder.parameters.get("bn") == "frozen":  # it stays on its running statistics
            for module in network.tree.modules():
                if isinstance(module, FoldedBatchNorm):
                    module.eval()
        self.objective = FoldedObjective(objective, slots)
        self.clip = torch.zeros(slots.count, dtype=torch.float64, device=device)
        decay_on = settings.optimizer.parameters.get("decay_on", "all")
        chosen = settings.optimizer.entry
        optimizer = fold_optimizer(chosen, network.parameters(), slots, network.templates, decay_on=decay_on)
        contrast = objective.contrast
        counted = contrast if isinstance(contrast, ComposedLoss) and has_signed_scores(contrast) else None
        step = Step(network, self.objective, optimizer, clip=self.clip, counted=counted)
        compared = 2 if self.objective.with_latent else 1
        super().__init__(step, autocast=settings.autocast, terms=len(self.objective.names), compared=compared)
        self.sides: list[Tensor] = []
        self.labels = torch.zeros(slots.count, settings.n_views * settings.batch_size, dtype=torch.int64, device=device)

    def put(self, slot: int, method: PairedTraining) -> None:
        """Copy weights, optimizer and hyperparameters of a member into a slot."""
        self.network.put(slot, method.model.state_dict())
        self.optimizer.put(slot, method.settings.optimizer.parameters, method.optimizer.state_dict())
        self.objective.put(slot, method.objective)
        self.clip[slot] = method.settings.clip

    def begin(self, slot: int, method: PairedTraining, running: Epoch) -> None:
        """Begin an epoch of a slot, with the alpha of this epoch."""
        super().begin(slot, method, running)
        self.objective.begin(slot, running.alpha)

    def step(self, batches: Mapping[int, Batch[PairedTraining]]) -> None:
        """Train the slots of `batches`, each on its own sides and labels; the other slots do not change."""
        for slot, batch in batches.items():
            sides, labels = batch.values
            if not self.sides:
                self.sides = [batch_buffer(self.network, side.shape) for side in sides]
            for kept, side in zip(self.sides, sides, strict=True):
                kept[slot].copy_(side)
            self.labels[slot].copy_(labels)
        inputs = self.sides if len(self.sides) > 1 else self.sides[0]
        outcome = self.train(batches, inputs, self.labels, self.labels)
        self.sums.add(outcome, [outcome.terms, outcome.embeddings, self.labels])

    def finish(self, slot: int, method: PairedTraining, running: Epoch) -> dict[str, float]:
        """Return the metrics of a slot's epoch."""
        taken, means, kept, counts = self.sums.of(slot)
        method.guard.nonfinite_steps += running.count - taken
        if means is None:
            return method.finish(running, {}, None, {})
        names = self.objective.names
        terms, z, labels = kept
        last = fitting.Step(dict(zip(names, terms, strict=True)), z, labels, {})
        negatives = {}
        if has_signed_scores(method.objective.contrast):
            each = zip(("negative_cosines", "negative_cosines_l"), counts, strict=False)
            negatives = {name: [of_epoch] for name, of_epoch in each}
        return method.finish(running, dict(zip([*names, "grad_norm"], means, strict=True)), last, negatives)


class FoldedObjective:
    """The objective of `objective.Objective` for K members: L = alpha_t [C(z) + beta C(l)] + (1 - alpha_t) WCE.

    Losses and terms are tensors [K], with each member's hyperparameters. Satisfies `folding.losses.StepLoss`.
    """

    def __init__(self, of_trial: Objective, slots: Slots) -> None:
        self.contrast = FoldedLoss(of_trial.contrast, slots)
        self.with_latent, self.reduction = of_trial.settings.beta > 0, of_trial.settings.wce.reduction
        self.structure = (*self.contrast.structure, str(self.with_latent), self.reduction)
        device = slots.active.device
        self.hyperparameters: dict[str, Tensor] = {
            f"contrast.{name}": value for name, value in self.contrast.hyperparameters.items()
        }
        for name in ("alpha", "beta"):
            self.hyperparameters[name] = torch.zeros(slots.count, dtype=torch.float64, device=device)
        self.hyperparameters["class_weights"] = torch.ones(slots.count, len(of_trial.weights), device=device)

    @property
    def names(self) -> list[str]:
        """Return the names of the terms, in order: those of `Objective`, and the loss."""
        return ["contrast_z", *(["contrast_l"] if self.with_latent else []), "wce", "anchors", "loss"]

    def put(self, slot: int, objective: Objective) -> None:
        """Give a slot the hyperparameters of its member's objective; alpha is set by `begin`."""
        self.contrast.put(slot, objective.contrast)
        self.hyperparameters["beta"][slot] = objective.settings.beta
        self.hyperparameters["class_weights"][slot] = objective.weights

    def begin(self, slot: int, alpha: float) -> None:
        """Begin an epoch of a slot, with this weight of its contrastive part."""
        self.hyperparameters["alpha"][slot] = alpha

    def pairing(self, labels: Int[Tensor, "k n"], instance_ids: Int[Tensor, "k n"]) -> tuple[Int[Tensor, "k n"], ...]:
        """Return the labels."""
        return (labels,)

    def can_compile(self, rows: int) -> bool:
        """Return whether the contrastive part of batches of so many rows can be part of a compiled step."""
        return self.contrast.can_compile(rows)

    def judge(
        self,
        outputs: Outputs,
        hyperparameters: Mapping[str, Tensor],
        pairing: tuple[Tensor, ...],
        scale: PerMember | None = None,
    ) -> Judged:
        """Return the losses with all their terms; z is compared, and l where there is one."""
        (labels,) = pairing
        own = {name: hyperparameters[f"contrast.{name}"] for name in self.contrast.hyperparameters}
        compared = [outputs.z] if outputs.latent is None else [outputs.z, outputs.latent]
        contrasts = [self.contrast.values(rows, own, pairing) for rows in compared]
        alpha, beta = (hyperparameters[name].to(contrasts[0].dtype) for name in ("alpha", "beta"))
        contrast = contrasts[0] if len(contrasts) == 1 else contrasts[0] + beta * contrasts[1]
        wce = self.wce(widened(outputs.logits), labels, hyperparameters["class_weights"])
        losses = alpha * contrast + (1 - alpha) * wce
        anchors = ((labels[:, :, None] == labels[:, None, :]).sum(2) > 1).float().mean(1).to(losses.dtype)
        return Judged(losses, compared, torch.stack([*contrasts, wce, anchors, losses], 1))

    def wce(
        self, logits: Float[Tensor, "k n c"], labels: Int[Tensor, "k n"], weights: Float[Tensor, "k c"]
    ) -> PerMember:
        """Return each member's cross-entropy weighted by class: over its batch's summed weights, or over its size."""
        of_rows = weights.to(logits.dtype).gather(1, labels)
        values = -logits.log_softmax(2).gather(2, labels[:, :, None])[:, :, 0] * of_rows
        return values.sum(1) / of_rows.sum(1) if self.reduction == "torch_mean" else values.mean(1)
