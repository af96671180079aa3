"""LOCAL and its relatives on sentence pairs: premise and hypothesis take the places of pre and post.

    list(train(trial))

The encoder is small (word embeddings and three residual convolutions over positions); its stages' outputs,
resized to a common length, give l as the stages of a ResNet do; losses, weights and loop are those of image pairs.
Deviation from what inference models do: the sides meet only in z, l and the classifier, never word by word.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.paired.texts.memory import workload
from contrasweep.trainables.paired.texts.settings import Settings
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "memory", "train"]


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given; see `fitting.fit` for what is reported."""
    from contrasweep.trainables import seeding
    from contrasweep.trainables.paired.fitting import fit
    from contrasweep.trainables.paired.texts.inputs import TextInputs

    settings = Settings(**trial.config)
    device = seeding.pick_device(settings.device)
    seeding.prepare(device, settings.threads)
    yield from fit(trial, TextInputs(trial, settings, device), resume)


def memory(config: Config, data: Manifest) -> Workload:
    """Memory that a trial of this config takes; see `contrasweep.trainables.paired.texts.memory`."""
    return workload(Settings(**config), data)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
