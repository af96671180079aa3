"""Cohorts of `contrasweep.trainables.paired_images`: the `lane` of its trials."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from contrasweep.trainables import loop, seeding
from contrasweep.trainables.fusing.cohorts import probing
from contrasweep.trainables.fusing.cohorts.cohort import FusedCohort
from contrasweep.trainables.fusing.cohorts.paired_keys import form_of, inputs_of, key_of, quiet_model, shape_of
from contrasweep.trainables.fusing.cohorts.paired_network import PairedNetwork
from contrasweep.trainables.fusing.cohorts.recent import Recent
from contrasweep.trainables.fusing.folding import Slots, Unfoldable
from contrasweep.trainables.fusing.protocol import AUTO, CannotFuse, Fusible, Timing
from contrasweep.trainables.paired.fitting import EVAL_BATCH_ROWS, Fit
from contrasweep.trainables.paired.objective import Objective
from contrasweep.trainables.paired_images.inputs import ImageInputs
from contrasweep.trainables.paired_images.settings import Settings
from contrasweep.trial import Trial

_opened: Recent[ImageInputs] = Recent(lambda images: images.resident_bytes)


class PairedCohorts(Fusible):
    """The `lane` of `trainables.paired_images:train`; satisfies `contrasweep.trainables.fusing.protocol.Probing`."""

    def key(self, trial: Trial) -> str:
        """The cohort key of a trial; `CannotFuse` with the reason where it cannot be fused."""
        return key_of(trial)

    def open(self, trial: Trial, slots: int, engine: str = AUTO) -> FusedCohort[Fit]:
        """A cohort of `slots` free slots for trials of the key of `trial`; `CannotFuse` where they cannot be folded."""
        settings = Settings(**trial.config).resolve(trial.data)
        form = form_of(settings, trial.data)
        device = seeding.pick_device(settings.device)
        seeding.prepare(device, settings.threads)
        engine = "grouped" if engine == AUTO else engine
        try:
            network = _network(settings, trial, Slots(slots, device), engine)
        except Unfoldable as error:
            raise CannotFuse(error.reason) from None
        start = partial(_start, form, device, slots)
        return FusedCohort(network, slots, engine, start)

    def probe(self, trial: Trial, slots: Sequence[int]) -> Sequence[Timing]:
        """Time a trial alone, and the engines with so many slots each, on this process's device."""
        settings = Settings(**trial.config).resolve(trial.data)
        device = seeding.pick_device(settings.device)
        inputs = ImageInputs(trial, settings, device)
        sides = 2 if settings.paired else 1
        subject = probing.Subject(
            of_batches=lambda size: Fit(trial, inputs.shared_with(replace(settings, batch_size=size))),
            device=device,
            images=settings.batch_size,
            rows=sides * settings.n_views * settings.batch_size,
            epochs=settings.epochs,
            evaluate_every=settings.evaluate_every,
        )
        return probing.probe(trial, slots, subject, partial(self.open, trial))


def _shared_inputs(trial: Trial, settings: Settings, device: torch.device) -> ImageInputs:
    """The images of `trial`, whose resolved `settings` these are: opened as by a trial alone, once for all members of
    this process's cohorts with the same dataset, fold and size."""
    key = (trial.data.digest, trial.fold, str(device), settings.input, settings.image_size, settings.colour_units > 0)
    return _opened.get(key, lambda: ImageInputs(trial, settings, device)).shared_with(settings)


def _network(settings: Settings, trial: Trial, slots: Slots, engine: str) -> PairedNetwork:
    """The folded network of a trial and all of its key."""
    classes, device = len(trial.data.classes), slots.active.device
    model = quiet_model(settings, shape_of(settings, trial.data), classes)
    model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each member says so itself
        objective = Objective(settings, torch.arange(classes), classes, device)
    frozen = settings.encoder.parameters.get("bn") == "frozen"
    inputs = inputs_of(settings)
    return PairedNetwork(model, objective, settings, slots=slots, engine=engine, inputs=inputs, frozen=frozen)


def _start(
    form: dict[str, object], device: torch.device, slots: int, trial: Trial, resume: Path | None
) -> tuple[Fit, loop.Training]:
    """A trial as `paired_images.train` starts it; `CannotFuse` where it is of another form than the cohort."""
    settings = Settings(**trial.config).resolve(trial.data)
    own = form_of(settings, trial.data)
    if own != form:
        other = ", ".join(name for name in form if own[name] != form[name])
        raise CannotFuse(f"it differs from its cohort in {other}")
    method = Fit(trial, _shared_inputs(trial, settings, device))
    method.evaluated_rows = min(EVAL_BATCH_ROWS, slots * method.evaluated_rows)  # training takes that much memory
    every = {"evaluate_every": settings.evaluate_every, "checkpoint_every": settings.checkpoint_every}
    return method, loop.Training(method, trial, resume, **every)
