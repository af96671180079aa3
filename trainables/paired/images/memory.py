"""What memory a trial on images takes, for the plan."""

import functools

import torch

from cluster.memory import Workload
from contrasweep.data.manifest import Manifest
from trainables.contrastive_memory import image_shape
from trainables.paired.images import colours
from trainables.paired.images.inputs import COLUMNS
from trainables.paired.images.network import image_model
from trainables.paired.images.settings import Settings
from trainables.paired.memory import TYPICAL_CLASSES, network_output_sum, of_recipe, precision


def workload(settings: Settings, data: Manifest) -> Workload:
    """One step of a batch, both images of a pair in one pass (LOCAL, Table 1), and the whole dataset on the device."""
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
        build=functools.partial(image_model, settings, shape, len(data.classes) or TYPICAL_CLASSES),
        inputs=lambda: tuple(torch.empty(rows, *size) for size in sizes for _ in columns),
        loss=network_output_sum,
        **of_recipe(settings),
        resident_bytes=images * shape[0] * shape[1] * shape[2],
    )
