"""Cohort keys of contrastive trials: which of them can be trained as one network, and why one cannot."""

import functools
import json
import warnings

import torch

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.fusing.cohorts.forms import form_of_loss, form_of_optimizer
from contrasweep.trainables.fusing.folding import Unfoldable, fold
from contrasweep.trainables.fusing.protocol import CannotFuse
from contrasweep.trainables.images import image_shape
from contrasweep.trial import Trial

MARGIN = 0.8
"""A fold's training part is taken to have at least this share of its fair number of rows."""


def key_of(trial: Trial) -> str:
    """The digest of all that changes the shapes or the graph of a step; `CannotFuse` where the trial cannot be fused.

    Left out is what may differ between members: the numbers of loss and optimizer, learning rate and its schedule,
    epochs, seeds, fold, sampling, augmentation, clipping, and when and how scores are computed.
    """
    settings = Settings(**trial.config).resolve(trial.data)
    _check(settings, trial.data)
    return canonical.digest(form_of(settings, image_shape(trial.data, "image")), 16)


def form_of(settings: Settings, shape: Shape) -> dict[str, object]:
    """What the trials of one cohort have in common, for images of `shape`. Raises `CannotFuse` where something cannot
    be folded."""
    return {
        "method": "contrastive",
        "network": _network_text(settings, shape),
        "shape": list(shape),
        "loss": form_of_loss(settings.build_loss()),
        "optimizer": form_of_optimizer(settings.optimizer),
        "batch_size": settings.batch_size,
        "learnable_temperature": settings.learnable_temperature,
        "ema": settings.ema > 0,
        "autocast": settings.autocast,
        "device": settings.device,
        "threads": settings.threads,
    }


def _check(settings: Settings, data: Manifest) -> None:
    if settings.targets.name != "batch":
        raise CannotFuse(f"targets: {settings.targets.name} keeps a state from step to step that is not folded")
    if settings.resources.size > 1:
        raise CannotFuse("it has several processes of its own (resources)")
    if 0 < settings.chunk_rows < 2 * settings.batch_size:
        raise CannotFuse(f"its batch is encoded in chunks (chunk_rows: {settings.chunk_rows})")
    if "shape" not in data.columns.get("image", {}):
        raise CannotFuse(f"dataset {data.name} does not say how large its images are")
    share = 1.0 if data.folds is None else MARGIN * (data.folds.count - 1) / data.folds.count
    if settings.batch_size > data.rows("train") * share:
        raise CannotFuse(f"a batch of {settings.batch_size} images may be larger than its training part")


def _network_text(settings: Settings, shape: Shape) -> str:
    text = canonical.dumps([settings.encoder.to_plain(), settings.projection.to_plain()])
    if reason := _unfoldable(text, shape):
        raise CannotFuse(reason)
    return text


@functools.lru_cache(maxsize=256)
def _unfoldable(text: str, shape: Shape) -> str:
    """Why encoder and head, given as text, cannot be folded; "" where they can. Plans ask for many trials of one."""
    encoder, projection = json.loads(text)
    with torch.device("meta"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter")  # of files of weights
        model = Settings(encoder=encoder, projection=projection).build_network(shape)
        try:
            fold(model, 1)
        except Unfoldable as error:
            return error.reason
    return ""
