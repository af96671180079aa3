"""Cohorts of `contrasweep.trainables.contrastive`: the `lane` of its trials, and their networks as one."""

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.trainables import images
from contrasweep.trainables.contrastive import method as contrastive_method
from contrasweep.trainables.contrastive.method import EVAL_BATCH_ROWS, Contrastive, Data, Epoch, open_data
from contrasweep.trainables.contrastive.settings import Settings
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
from contrasweep.trainables.fusing.folding import (
    FoldedAverage,
    FoldedLoss,
    FoldedTemperature,
    Slots,
    Step,
    Unfoldable,
    fold,
    fold_optimizer,
)
from contrasweep.trainables.fusing.protocol import CannotFuse
from contrasweep.trainables.images import image_shape
from contrasweep.trainables.losses import ComposedLoss
from contrasweep.trainables.losses.negatives import has_signed_scores
from contrasweep.trial import Trial

MARGIN = 0.8
"""A fold's training part is taken to have at least this share of its fair number of rows."""
_opened: Recent[Data] = Recent(lambda data: sum(part.resident_bytes for part in {data.train, data.test}))


class ContrastiveCohorts(MethodCohorts):
    """The `lane` of `trainables.contrastive:train`."""

    settings = Settings
    evaluated_rows = EVAL_BATCH_ROWS

    def structure(self, settings: Settings, data: Manifest) -> dict[str, object]:
        """Return what trials of one cohort have in common; `CannotFuse` where something cannot be folded.

        Left out is what may differ between members: the hyperparameters of loss and optimizer, learning rate and its
        schedule, epochs, seeds, fold, sampling, augmentation, clipping, and when and how scores are computed.
        """
        _check(settings, data)
        shape = image_shape(data, "image")
        text = canonical.dumps([settings.encoder.to_plain(), settings.projection.to_plain()])
        if reason := _unfoldable(text, shape):
            raise CannotFuse(reason)
        return {
            "method": "contrastive",
            "network": text,
            "shape": list(shape),
            "loss": structure_of_loss(settings.build_loss()),
            "optimizer": structure_of_optimizer(settings.optimizer),
            "batch_size": settings.batch_size,
            "n_views": settings.n_views,
            "learnable_temperature": settings.learnable_temperature,
            "ema": settings.ema > 0,
            "autocast": settings.autocast,
            "device": settings.device,
            "threads": settings.threads,
        }

    def network(self, settings: Settings, trial: Trial, slots: Slots, engine: str) -> "ContrastiveNetwork":
        """Return the folded network of a trial and all of its key."""
        return ContrastiveNetwork(settings, image_shape(trial.data, "image"), slots, engine)

    def method(self, settings: Settings, trial: Trial, device: torch.device) -> Contrastive:
        """Return a trial as `contrastive.train` starts it; `CannotFuse` where it has no whole batch."""
        method = Contrastive(trial, settings, _shared_data)
        if len(method.train) < settings.batch_size:
            raise CannotFuse(
                f"its training part has {len(method.train)} images, fewer than a batch of {settings.batch_size}"
            )
        return method

    def subject(self, settings: Settings, trial: Trial, device: torch.device) -> probing.Subject:
        """Return what a probe times: two views of each image."""
        pixels = settings.batch_size * math.prod(image_shape(trial.data, "image"))
        return probing.Subject(
            of_batches=lambda size: Contrastive(trial, replace(settings, batch_size=size)),
            device=device,
            images=settings.batch_size,
            rows=settings.n_views * settings.batch_size,
            epochs=settings.epochs,
            evaluate_every=settings.evaluate_every,
            together=images.CHUNK[device.type] // pixels,
        )


def _check(settings: Settings, data: Manifest) -> None:
    if settings.targets.name != "batch":
        raise CannotFuse(f"targets: {settings.targets.name} keeps a state from step to step that is not folded")
    if settings.resources.size > 1:
        raise CannotFuse("it has several processes of its own (resources)")
    if 0 < settings.chunk_rows < settings.n_views * settings.batch_size:
        raise CannotFuse(f"its batch is encoded in chunks (chunk_rows: {settings.chunk_rows})")
    if settings.view_size:
        raise CannotFuse("its views are cut from whole images (view_size)")
    if "shape" not in data.columns.get("image", {}):
        raise CannotFuse(f"dataset {data.name} does not say how large its images are")
    share = 1.0 if data.folds is None else MARGIN * (data.folds.count - 1) / data.folds.count
    if settings.batch_size > data.rows("train") * share:
        raise CannotFuse(f"a batch of {settings.batch_size} images may be larger than its training part")


@functools.lru_cache(maxsize=256)
def _unfoldable(text: str, shape: Shape) -> str:
    """Return why encoder and head, given as text, cannot be folded; "" where they can.

    Plans ask for many trials of one network.
    """
    encoder, projection = json.loads(text)
    with without_memory():
        try:
            fold(Settings(encoder=encoder, projection=projection).build_network(shape), 1)
        except Unfoldable as error:
            return error.reason
    return ""


def _shared_data(trial: Trial, settings: Settings, device: torch.device) -> Data:
    """Open the images of `trial` as `open_data` does, once for all members with the same dataset and fold."""
    key = (trial.data.digest, trial.fold, str(device), settings.resident_gib)
    return _opened.get(key, lambda: open_data(trial, settings, device))


class ContrastiveNetwork(CohortNetwork[Contrastive]):
    """A step of `contrastive.method.Contrastive`, for all members."""

    def __init__(self, settings: Settings, shape: Shape, slots: Slots, engine: str) -> None:
        device, self.n_views = slots.active.device, settings.n_views
        network = fold(settings.build_network(shape).to(device).train(), slots, engine)
        loss, learned = settings.build_loss(), settings.learnable_temperature
        self.loss = FoldedLoss(loss, slots, learnable_temperature=learned)
        self.temperature = FoldedTemperature(slots) if learned else None
        self.average = FoldedAverage(network) if settings.ema else None
        self.clip = torch.zeros(slots.count, dtype=torch.float64, device=device)
        stacked: list[Tensor] = [*network.parameters()]
        plain = network.templates
        if self.temperature is not None:
            stacked.append(self.temperature.log_scale)
            plain.append(torch.zeros((), device="meta"))
        decay_on = settings.optimizer.parameters.get("decay_on", "all")
        optimizer = fold_optimizer(settings.optimizer.entry, stacked, slots, plain, decay_on=decay_on)
        counted = loss if isinstance(loss, ComposedLoss) and has_signed_scores(loss) else None
        step = Step(network, self.loss, optimizer, self.temperature, self.average, self.clip, counted)
        super().__init__(step, autocast=settings.autocast)
        rows = settings.n_views * settings.batch_size
        self.views = batch_buffer(network, (rows, *shape))
        self.labels = torch.zeros(slots.count, rows, dtype=torch.int64, device=device)
        self.rows = torch.zeros(slots.count, rows, dtype=torch.int64, device=device)

    def put(self, slot: int, method: Contrastive) -> None:
        """Copy weights, optimizer and hyperparameters of a member into a slot."""
        self.network.put(slot, method.model.state_dict())
        self.optimizer.put(slot, method.settings.optimizer.parameters, method.optimizer.state_dict())
        self.loss.put(slot, method.loss)
        self.clip[slot] = method.settings.clip
        if self.temperature is not None and method.temperature is not None:
            self.temperature.put(slot, method.temperature)
        if self.average is not None and method.average is not None:
            self.average.put(slot, method.average.decay, method.average.state_dict())

    def take(self, slot: int, method: Contrastive) -> None:
        """Copy weights and optimizer of a slot into its member."""
        super().take(slot, method)
        if self.average is not None and method.average is not None:
            method.average.load_state_dict(self.average.take(slot))
        self._take_temperature(slot, method)

    def step(self, batches: Mapping[int, Batch[Contrastive]]) -> None:
        """Train the slots of `batches`, each on its own views and rows; the other slots do not change."""
        for slot, batch in batches.items():
            views, rows = batch.values
            here = rows.to(self.device)
            self.views[slot].copy_(views)
            self.rows[slot].view(self.n_views, -1).copy_(here)
            self.labels[slot].view(self.n_views, -1).copy_(batch.method.train.labels[here])
        outcome = self.train(batches, self.views, self.labels, self.rows)
        self.sums.add(outcome, [outcome.losses, outcome.embeddings, self.labels, self.rows])

    def finish(self, slot: int, method: Contrastive, running: Epoch) -> dict[str, float]:
        """Return the metrics of a slot's epoch."""
        taken, means, kept, negatives = self.sums.of(slot)
        method.guard.nonfinite_steps += running.count - taken
        last = None
        if kept:
            loss, embeddings, labels, rows = kept
            last = contrastive_method.Step(loss, embeddings, labels, rows, {})
        self._take_temperature(slot, method)
        return method.finish(running, means, last, negatives)

    def _take_temperature(self, slot: int, method: Contrastive) -> None:
        if self.temperature is not None and method.temperature is not None:
            method.temperature.load_state_dict(self.temperature.take(slot))
