"""Contrastive training of an image encoder on two augmented views, with any loss and similarity.

    list(train(trial))

One report an epoch; the last one has the scores of the held-out part.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.contrastive_memory import workload
from contrasweep.trainables.contrastive_settings import Settings
from contrasweep.trainables.pytorch import nn, torch
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "load_model", "memory", "train"]


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given. `step` is the epoch, from 1.

    Every report has `loss`, `grad_norm`, `learning_rate` and diagnostics of the embeddings; reports of epochs with
    an evaluation have its scores (see `evaluation.evaluate`), and the last one has per-item values for paired tests.
    """
    from contrasweep.trainables import loop, process_group
    from contrasweep.trainables.contrastive_method import build

    s = Settings(**trial.config)
    size, path = s.resources.size, f"{build.__module__}:build"
    with process_group.joined(trial, resume, size=size, build=path, device=s.device) as group:
        run = group.method(build(trial))
        yield from loop.run(run, trial, resume, evaluate_every=s.evaluate_every, checkpoint_every=s.checkpoint_every)


def load_model(folder: Path, trial: Trial) -> "nn.Module":
    """The network in a checkpoint of `trial`: uint8 images [n c h w] to the features or embeddings that the trial's
    scores are of, float32 [n d]."""
    from contrasweep.trainables import checkpoint, images
    from contrasweep.trainables.contrastive_method import evaluated, network, parts_of
    from contrasweep.trainables.exporting import FromPixels

    settings = Settings(**trial.config)
    train_part = images.open_images(parts_of(trial)[0], torch.device("cpu"), settings.resident_gib)
    model = network(settings, train_part.shape)
    model.load_state_dict(checkpoint.part(folder, "average" if settings.ema else "model"))
    return FromPixels(evaluated(model, settings), *train_part.moments())


def memory(config: Config, data: Manifest) -> Workload:
    """What a trial of this config takes; see `contrastive_memory`."""
    return workload(Settings(**config), data)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
train.lane = "contrasweep.trainables.fusing.cohorts.contrastive:ContrastiveCohorts"  # type: ignore[attr-defined]
