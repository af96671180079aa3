"""A trained network of the family as a module of its own."""

from pathlib import Path

import torch

from contrasweep.trial import Trial
from trainables import checkpoint
from trainables.exporting import FromPixels
from trainables.paired_images.inputs import ImageInputs
from trainables.paired_images.settings import Settings


def load_model(folder: Path, trial: Trial) -> FromPixels:
    """The network in a checkpoint of `trial`: (pre, post), or one batch of single images, uint8 [n c h w], to
    `Outputs`."""
    inputs = ImageInputs(trial, Settings(**trial.config), torch.device("cpu"))
    model = inputs.model().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.load_state_dict(checkpoint.part(folder, "model"))
    settings = inputs.settings
    return FromPixels(model, inputs.mean, inputs.std, settings.centre, settings.image_size, inputs.colours)
