"""What memory a trial of the LOCAL family takes, for the plan."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cluster.memory import Workload
from contrasweep.data.manifest import Manifest
from trainables.contrastive_memory import image_shape
from trainables.paired_images import colours
from trainables.paired_images.inputs import COLUMNS
from trainables.paired_images.model import Outputs, image_model
from trainables.paired_images.settings import Recipe, Settings

USUAL_CLASSES = 10  # where the dataset names none; the classifier's last layer hardly counts


def memory(config: Mapping[str, Any], data: Manifest) -> Workload:
    """One step of a batch, both images of a pair in one pass (LOCAL, Table 1), and the whole dataset on the device."""
    settings = Settings(**config)
    columns = COLUMNS[settings.input]
    channels, *sides = image_shape(data, columns[0])
    side = settings.image_size or min(sides)
    shape = channels, side, side
    seen = (settings.copies * shape[0], *shape[1:])
    sizes = [seen, (colours.count(shape[0]),)] if settings.colour_units else [seen]
    rows = settings.batch_size * settings.n_views
    images = (data.rows("train") + data.rows("test")) * len(set(columns))  # one side fed twice lies there once
    network = (
        settings.width,
        settings.stem,
        settings.bn,
        settings.projection_dim,
        settings.classifier_hidden,
        settings.colour_units,
    )
    return Workload(
        architecture=f"{settings.backbone} {precision(settings)}",
        shape=(
            seen,
            rows,
            settings.paired,
            network,
            settings.beta > 0 and (settings.blocks, settings.lat_size),
            len(data.classes),
        ),
        build=functools.partial(image_model, settings, shape, len(data.classes) or USUAL_CLASSES),
        inputs=lambda: tuple(torch.empty(rows, *size) for size in sizes for _ in columns),
        loss=trained,
        **of_recipe(settings),
        resident_bytes=images * shape[0] * shape[1] * shape[2],
    )


def precision(recipe: Recipe) -> str:
    return "bf16" if recipe.autocast else "fp32"


def of_recipe(recipe: Recipe) -> dict[str, Any]:
    """The fields of a `Workload` that every modality takes from its recipe."""
    return {
        "optimizer_states": 1.0 if recipe.optimizer == "sgd" else 2.0,
        "precision": precision(recipe),
        "device": recipe.device,
        "cpus": float(recipe.threads),
    }


def trained(out: Outputs) -> Tensor:
    """The outputs that a loss reads, joined, so that what leads to them is kept; the loss's own [B B] matrices are
    left out."""
    return out.z.sum() + out.logits.sum() + (0.0 if out.latent is None else out.latent.sum())
