"""What memory a trial on images takes, for the plan."""

import functools
import json

import torch

from cluster.memory import Workload
from contrasweep.data.manifest import Manifest
from contrasweep.schema import plain
from trainables.contrastive_memory import image_shape
from trainables.paired.images import colours
from trainables.paired.images.network import image_model
from trainables.paired.images.settings import COLUMNS, Settings
from trainables.paired.memory import TYPICAL_CLASSES, network_output_sum, of_recipe, precision


def workload(settings: Settings, data: Manifest) -> Workload:
    """One step of a batch, both images of a pair in one pass (LOCAL, Table 1), and the whole dataset on the device."""
    s, columns = settings.resolve(data), COLUMNS[settings.input]
    channels = image_shape(data, columns[0])[0]
    shape = channels, s.image_size, s.image_size
    sides = (s.copies * channels, s.image_size, s.image_size)
    sizes = [sides, (colours.count(channels),)] if s.colour_units else [sides]
    rows = s.batch_size * s.n_views
    images = (data.rows("train") + data.rows("test")) * len(set(columns))  # one side fed twice lies there once
    network = [plain(part) for part in (s.encoder, s.projection, s.classifier, s.colour_units)]
    return Workload(
        architecture=f"{s.encoder.name} {precision(s)}",
        shape=(
            sides,
            rows,
            s.paired,
            json.dumps(network, sort_keys=True),
            s.beta > 0 and (s.latent.blocks, s.latent.size),
            len(data.classes),
        ),
        build=functools.partial(image_model, s, shape, len(data.classes) or TYPICAL_CLASSES),
        inputs=lambda: tuple(torch.empty(rows, *size) for size in sizes for _ in columns),
        loss=network_output_sum,
        **of_recipe(s, data),
        resident_bytes=images * channels * s.image_size**2,
    )
