"""Cohorts of `contrasweep.trainables.contrastive`: the `lane` of its trials."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from contrasweep.trainables import images as prefetching
from contrasweep.trainables import loop, seeding
from contrasweep.trainables.contrastive.method import EVAL_BATCH_ROWS, Contrastive
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.fusing.cohorts import probing
from contrasweep.trainables.fusing.cohorts.cohort import FusedCohort
from contrasweep.trainables.fusing.cohorts.contrastive_network import ContrastiveNetwork
from contrasweep.trainables.fusing.cohorts.keys import form_of, key_of
from contrasweep.trainables.fusing.cohorts.shared_data import shared_data
from contrasweep.trainables.fusing.folding import Unfoldable
from contrasweep.trainables.fusing.protocol import AUTO, CannotFuse, Fusible, Timing
from contrasweep.trainables.images import image_shape
from contrasweep.trial import Trial


class ContrastiveCohorts(Fusible):
    """The `lane` of `trainables.contrastive:train`; satisfies `contrasweep.trainables.fusing.protocol.Probing`."""

    def key(self, trial: Trial) -> str:
        """The cohort key of a trial; `CannotFuse` with the reason where it cannot be fused."""
        return key_of(trial)

    def open(self, trial: Trial, slots: int, engine: str = AUTO) -> FusedCohort[Contrastive]:
        """A cohort of `slots` free slots for trials of the key of `trial`; `CannotFuse` where they cannot be folded."""
        settings = Settings(**trial.config).resolve(trial.data)
        device = seeding.pick_device(settings.device)
        seeding.prepare(device, settings.threads)
        shape, engine = image_shape(trial.data, "image"), "grouped" if engine == AUTO else engine
        try:
            network = ContrastiveNetwork(settings, shape, device, slots, engine)
        except Unfoldable as error:
            raise CannotFuse(error.reason) from None
        start = partial(_start, form_of(settings, shape), slots)
        return FusedCohort(network, slots, engine, start)

    def probe(self, trial: Trial, slots: Sequence[int]) -> Sequence[Timing]:
        """Time a trial alone, and the engines with so many slots each, on this process's device."""
        settings = Settings(**trial.config).resolve(trial.data)
        device = seeding.pick_device(settings.device)
        pixels = settings.batch_size * math.prod(image_shape(trial.data, "image"))
        subject = probing.Subject(
            of_batches=lambda size: Contrastive(trial, replace(settings, batch_size=size)),
            device=device,
            images=settings.batch_size,
            rows=2 * settings.batch_size,
            epochs=settings.epochs,
            evaluate_every=settings.evaluate_every,
            together=prefetching.CHUNK[device.type] // pixels,
        )
        return probing.probe(trial, slots, subject, partial(self.open, trial))


def _start(form: dict[str, object], slots: int, trial: Trial, resume: Path | None) -> tuple[Contrastive, loop.Training]:
    """A trial as `contrastive.train` starts it; `CannotFuse` where it is of another form than the cohort."""
    settings = Settings(**trial.config)
    own = form_of(settings.resolve(trial.data), image_shape(trial.data, "image"))
    if own != form:
        other = ", ".join(name for name in form if own[name] != form[name])
        raise CannotFuse(f"it differs from its cohort in {other}")
    method = Contrastive(trial, settings, shared_data)
    if len(method.train) < settings.batch_size:
        raise CannotFuse(
            f"its training part has {len(method.train)} images, fewer than a batch of {settings.batch_size}"
        )
    method.evaluated_rows = min(EVAL_BATCH_ROWS, slots * method.evaluated_rows)  # training takes that much memory
    every = {"evaluate_every": settings.evaluate_every, "checkpoint_every": settings.checkpoint_every}
    return method, loop.Training(method, trial, resume, **every)
