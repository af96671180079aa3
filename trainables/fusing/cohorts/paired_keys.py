"""Cohort keys of trials on image pairs: which of them can be trained as one network, and why one cannot."""

import functools
import json
import warnings

import torch

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.fusing.cohorts.forms import form_of_loss, form_of_optimizer
from contrasweep.trainables.fusing.folding import Unfoldable, fold
from contrasweep.trainables.fusing.protocol import CannotFuse
from contrasweep.trainables.images import image_shape
from contrasweep.trainables.paired.images.network import image_model
from contrasweep.trainables.paired.images.settings import COLUMNS, Settings
from contrasweep.trainables.paired.network import Joint
from contrasweep.trial import Trial


def key_of(trial: Trial) -> str:
    """The digest of all that changes the shapes or the graph of a step; `CannotFuse` where the trial cannot be fused.

    Left out is what may differ between members: the numbers of loss and optimizer, learning rate and its schedule,
    alpha with its schedule, beta above 0, class weights, epochs, seeds, fold, sampler, augmentation, clipping, which
    colour is subtracted, and when and how scores are computed.
    """
    return canonical.digest(form_of(Settings(**trial.config).resolve(trial.data), trial.data), 16)


def form_of(settings: Settings, data: Manifest) -> dict[str, object]:
    """What the trials of one cohort have in common, of whose `settings` everything is resolved for `data`. Raises
    `CannotFuse` where something cannot be folded."""
    if not data.classes:
        raise CannotFuse(f"dataset {data.name} does not say what its classes are")
    shape = shape_of(settings, data)
    return {
        "method": "paired images",
        "network": _network_text(settings, shape, len(data.classes)),
        "shape": list(shape),
        "classes": len(data.classes),
        "loss": form_of_loss(settings.build_loss()),
        "cross-entropy": settings.wce.reduction,
        "optimizer": form_of_optimizer(settings.optimizer),
        "batch_size": settings.batch_size,
        "n_views": settings.n_views,
        "autocast": settings.autocast,
        "device": settings.device,
        "threads": settings.threads,
    }


def shape_of(settings: Settings, data: Manifest) -> Shape:
    """channels, height, width of an image as the network's sides have them; settings are resolved."""
    column = COLUMNS[settings.input][0]
    if "shape" not in data.columns.get(column, {}):
        raise CannotFuse(f"dataset {data.name} does not say how large its images are")
    return (image_shape(data, column)[0], settings.image_size, settings.image_size)


def inputs_of(settings: Settings) -> int:
    """How many tensors the network takes: its sides, and the colour statistics of each."""
    return len(COLUMNS[settings.input]) * (2 if settings.colour_units else 1)


def quiet_model(settings: Settings, shape: Shape, classes: int) -> Joint:
    """The network without what it says to a trial alone, which each member says for itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return image_model(settings, shape, classes)


def _network_text(settings: Settings, shape: Shape, classes: int) -> str:
    """All that the network is made of, as settings that another one is made of."""
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
    text = canonical.dumps(chosen)
    if reason := _unfoldable(text, shape, classes):
        raise CannotFuse(reason)
    return text


@functools.lru_cache(maxsize=256)
def _unfoldable(text: str, shape: Shape, classes: int) -> str:
    """Why the network of these settings, given as text, cannot be folded; "" where it can. Plans ask for many trials of
    one."""
    settings = Settings(**json.loads(text))
    with torch.device("meta"):
        try:
            fold(quiet_model(settings, shape, classes), 1, inputs=inputs_of(settings))
        except Unfoldable as error:
            return error.reason
    return ""
