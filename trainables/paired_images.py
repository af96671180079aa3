"""LOCAL and its relatives on image pairs, and SCL and OCL on single images.

    list(train(trial))

Paper: LOCAL, Latent Orthonormal Contrastive Learning for Paired Images. The family stands in `trainables.paired`;
`Settings` says which key is which symbol and which settings make SCL, L-SCL, OCL-pair and LOCAL.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.paired.images.memory import workload
from contrasweep.trainables.paired.images.settings import Settings
from contrasweep.trainables.pytorch import nn, torch
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "load_model", "memory", "train"]


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given; see `fitting.fit` for what is reported."""
    from contrasweep.trainables import seeding
    from contrasweep.trainables.paired.fitting import fit
    from contrasweep.trainables.paired.images.inputs import ImageInputs

    settings = Settings(**trial.config)
    device = seeding.pick_device(settings.device)
    seeding.prepare(device, settings.threads)
    yield from fit(trial, ImageInputs(trial, settings, device), resume)


def load_model(folder: Path, trial: Trial) -> "nn.Module":
    """The network in a checkpoint of `trial`: (pre, post), or one batch of single images, uint8 [n c h w], to
    `Outputs`."""
    from contrasweep.trainables import checkpoint
    from contrasweep.trainables.exporting import FromPixels
    from contrasweep.trainables.paired.images.inputs import ImageInputs

    inputs = ImageInputs(trial, Settings(**trial.config), torch.device("cpu"))
    model = inputs.model().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.load_state_dict(checkpoint.part(folder, "model"))
    settings = inputs.settings
    return FromPixels(model, inputs.mean, inputs.std, settings.centre, settings.image_size, inputs.colours)


def memory(config: Config, data: Manifest) -> Workload:
    """Memory that a trial of this config takes; see `contrasweep.trainables.paired.images.memory`."""
    return workload(Settings(**config), data)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
train.lane = "contrasweep.trainables.fusing.cohorts.paired:PairedCohorts"  # type: ignore[attr-defined]
