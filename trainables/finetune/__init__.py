"""Supervised training of an image encoder and a classifier on it: fine-tuning and linear probing of a trained encoder.

    list(train(trial))

An arm's `start` says whose encoder it is; without it, all is trained from new weights. One report an epoch; the last
has the scores of the held-out part.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.finetune.settings import Settings
from contrasweep.trainables.images import resident_bytes, rows_to_train, view_shape
from contrasweep.trainables.pytorch import nn, torch
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "load_model", "memory", "train"]


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train `trial` and yield a report per epoch.

    Every report has `loss`, `grad_norm` and `learning_rate`. Reports of epochs with an evaluation have `accuracy`,
    `f1_macro` and the F1 of each class. The last report has `accuracy` of each test item, for paired tests.

    Args:
        trial: The trial; its config is that of `Settings`, its dataset holds images with labels.
        resume: The checkpoint folder to continue from.

    Yields:
        Reports, whose `step` is the epoch, from 1.
    """
    from contrasweep.trainables.finetune.method import Finetune

    yield from Finetune(trial, Settings(**trial.config)).reports(resume)


def load_model(folder: Path, trial: Trial) -> "nn.Module":
    """Return the encoder in a checkpoint of `trial`, without its classifier.

    The encoder maps uint8 images [n c h w] to features, float32 [n d].
    """
    from contrasweep.data import open_dataset
    from contrasweep.trainables import checkpoint, images
    from contrasweep.trainables.exporting import FromPixels
    from contrasweep.trainables.finetune.method import network

    # The training part has the images' shape, and the moments by which they are normalised.
    settings = Settings(**trial.config)
    part = open_dataset(trial.data).parts(trial.fold)[0]
    train_part = images.open_images(
        part, torch.device("cpu"), settings.resident_gib, settings.view_size
    )
    model = network(settings, train_part.shape, len(trial.data.classes))
    model.load_state_dict(checkpoint.part(folder, "model"))
    return FromPixels(model[0], *train_part.moments(), size=settings.view_size or None)


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory and the work of a trial with this config: a step of a batch, and the images as uint8.

    A step has gradients of the encoder where the encoder is trained. Images above `resident_gib` are not counted.
    """
    settings = Settings(**config)
    image_shape = view_shape(data, settings.view_size)
    classes = len(data.classes)
    return Workload(
        architecture=f"{settings.encoder.name} {settings.precision}",
        # All that the count of a step depends on: trials for which it is equal are counted once.
        shape=(image_shape, settings.batch_size, classes, settings.network_text),
        build=lambda: settings.build_network(image_shape, classes),
        inputs=(settings.batch_size, *image_shape),
        resident_bytes=resident_bytes(data, image_shape, settings),
        **settings.workload(int(rows_to_train(data) * settings.label_fraction)),
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
# A trial that starts from another's checkpoint has its encoder.
train.start_settings = ("encoder",)  # type: ignore[attr-defined]
