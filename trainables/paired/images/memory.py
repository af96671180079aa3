"""What memory a trial on images takes, for the plan."""

import json

from contrasweep.cluster.memory import Workload
from contrasweep.data.manifest import Manifest
from contrasweep.schema import plain
from contrasweep.trainables.images import image_shape
from contrasweep.trainables.paired.images.settings import COLUMNS, Settings
from contrasweep.trainables.paired.memory import TYPICAL_CLASSES, network_output_sum, of_recipe, precision
from contrasweep.trainables.pytorch import Tensor, nn, torch


def workload(settings: Settings, data: Manifest) -> Workload:
    """One step of a batch, both images of a pair in one pass (LOCAL, Table 1), and the whole dataset on the device."""
    s, columns = settings.resolve(data), COLUMNS[settings.input]
    channels = image_shape(data, columns[0])[0]
    shape = channels, s.image_size, s.image_size
    sides = (s.copies * channels, s.image_size, s.image_size)
    rows = s.batch_size * s.n_views
    images = (data.rows("train") + data.rows("test")) * len(set(columns))  # one side fed twice lies there once
    network = [plain(part) for part in (s.encoder, s.projection, s.classifier, s.colour_units)]

    def build() -> "nn.Module":
        from contrasweep.trainables.paired.images.network import image_model

        return image_model(s, shape, len(data.classes) or TYPICAL_CLASSES)

    def inputs() -> tuple[Tensor, ...]:
        from contrasweep.trainables.paired.images import colours

        sizes = [sides, (colours.count(channels),)] if s.colour_units else [sides]
        return tuple(torch.empty(rows, *size) for size in sizes for _ in columns)

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
        build=build,
        inputs=inputs,
        loss=network_output_sum,
        **of_recipe(s, data),
        resident_bytes=images * channels * s.image_size**2,
    )
