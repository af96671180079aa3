"""LOCAL and its relatives on image pairs, and SCL and OCL on single images.

    list(train(trial))

Paper: LOCAL, Latent Orthonormal Contrastive Learning for Paired Images. The family stands in `trainables.paired`;
`Settings` says which key is which symbol and which settings make SCL, L-SCL, OCL-pair and LOCAL.
"""

import json
from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.schema import plain
from contrasweep.trainables.images import image_shape, rows_to_train
from contrasweep.trainables.paired.settings import (
    TYPICAL_CLASSES,
    network_output_sum,
)
from contrasweep.trainables.paired_images.settings import COLUMNS, Settings
from contrasweep.trainables.pytorch import Tensor, nn, torch
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "load_model", "memory", "train"]


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train `trial`, from the checkpoint folder `resume` if given; see `fitting.fit` for what is reported."""
    from contrasweep.trainables.paired.fitting import fit
    from contrasweep.trainables.paired_images.inputs import ImageInputs

    yield from fit(trial, ImageInputs, Settings(**trial.config), resume)


def load_model(folder: Path, trial: Trial) -> "nn.Module":
    """Return the network in a checkpoint of `trial`.

    It takes (pre, post), or one batch of single images, uint8 [n c h w], to `Outputs`.
    """
    from contrasweep.trainables import checkpoint
    from contrasweep.trainables.exporting import FromPixels
    from contrasweep.trainables.paired_images.inputs import ImageInputs

    inputs = ImageInputs(trial, Settings(**trial.config), torch.device("cpu"))
    model = inputs.model().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.load_state_dict(checkpoint.part(folder, "model"))
    settings = inputs.settings
    return FromPixels(
        model, inputs.mean, inputs.std, settings.centre, settings.image_size, inputs.colours
    )


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory and the work of a trial with this config: one step of a batch, and the dataset on the device.

    Both images of a pair go through the network in one pass (LOCAL, Table 1).
    """
    settings = Settings(**config).resolve(data)
    # The dataset's columns that are the sides.
    columns = COLUMNS[settings.input]
    channels = image_shape(data, columns[0])[0]
    stored_shape = (channels, settings.image_size, settings.image_size)
    # One side as the network takes it.
    side_shape = (settings.copies * channels, settings.image_size, settings.image_size)
    rows = settings.batch_size * settings.n_views
    # One side that is fed twice lies on the device once.
    images = data.rows("train", "test") * len(set(columns))
    network = [
        plain(part)
        for part in (
            settings.encoder,
            settings.projection,
            settings.classifier,
            settings.colour_units,
        )
    ]

    def build() -> "nn.Module":
        """Build the network, where a plan counts what it takes."""
        from contrasweep.trainables.paired_images.network import image_model

        return image_model(settings, stored_shape, len(data.classes) or TYPICAL_CLASSES)

    def inputs() -> tuple[Tensor, ...]:
        """Return empty tensors of a batch's shape, one for each side.

        If the network reads colour statistics, tensors of those follow, one for each side.
        """
        from contrasweep.trainables.paired_images import colours

        shapes: list[tuple[int, ...]] = [side_shape]
        if settings.colour_units:
            shapes.append((colours.count(channels),))
        return tuple(torch.empty(rows, *shape) for shape in shapes for _ in columns)

    # What l is made of; None where there is no l.
    latent = (settings.latent.blocks, settings.latent.size) if settings.beta > 0 else None
    return Workload(
        architecture=f"{settings.encoder.name} {settings.precision}",
        shape=(
            side_shape,
            rows,
            settings.paired,
            json.dumps(network, sort_keys=True),
            latent,
            len(data.classes),
        ),
        build=build,
        inputs=inputs,
        loss=network_output_sum,
        **settings.workload(rows_to_train(data)),
        resident_bytes=images * channels * settings.image_size**2,
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
