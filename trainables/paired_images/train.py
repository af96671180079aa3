"""LOCAL and its relatives on image pairs, and SCL and OCL on single images.

    list(train(trial))

Paper: LOCAL, Latent Orthonormal Contrastive Learning for Paired Images. `Settings` says which key is which symbol
and which settings make SCL, L-SCL, OCL-pair and LOCAL.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.trial import Report, Trial
from trainables import seeding
from trainables.paired_images.fitting import fit
from trainables.paired_images.inputs import ImageInputs
from trainables.paired_images.memory import memory
from trainables.paired_images.settings import Settings


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given; see `fitting.fit` for what is reported."""
    settings = Settings(**trial.config)
    device = seeding.pick_device(settings.device)
    seeding.prepare(device, settings.threads)
    yield from fit(trial, settings, ImageInputs(trial, settings, device), resume)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
