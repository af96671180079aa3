"""Contrastive training of an image encoder on two augmented views, with any loss and similarity.

    list(train(trial))

One report an epoch; the last one has the scores of the held-out part.
"""

import math
from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.images import (
    BATCHES_AHEAD,
    VALUES_AT_ONCE,
    resident_bytes,
    rows_to_train,
    view_shape,
)
from contrasweep.trainables.optimisation import optimizer_states
from contrasweep.trainables.pytorch import nn, torch
from contrasweep.trainables.step_counts import known_step
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "load_model", "memory", "train"]
FLOAT_BYTES = 4


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train `trial` and yield a report per epoch.

    Every report has `loss`, `grad_norm`, `learning_rate` and diagnostics of the embeddings. Reports of epochs with an
    evaluation have its scores (see `evaluation.evaluate`), and the last one has per-item values for paired tests.

    Args:
        trial: The trial; its config is that of `Settings`, its dataset holds images.
        resume: The checkpoint folder to continue from.

    Yields:
        Reports, whose `step` is the epoch, from 1.
    """
    from contrasweep.trainables import loop, process_group
    from contrasweep.trainables.contrastive.method import build

    # Further processes of the trial build the same method by its dotted path.
    settings = Settings(**trial.config)
    size = settings.resources.size
    path = f"{build.__module__}:build"
    with process_group.start_group(
        trial, resume, size=size, build=path, device=settings.device
    ) as group:
        method = group.method(build(trial))
        yield from loop.run(
            method,
            trial,
            resume,
            evaluate_every=settings.evaluate_every,
            checkpoint_every=settings.checkpoint_every,
        )


def load_model(folder: Path, trial: Trial) -> "nn.Module":
    """Return the network in a checkpoint of `trial`, in evaluation mode and on the CPU.

    It takes uint8 images [n c h w] and gives float32 [n d]: features or embeddings, whichever the trial was scored on
    (`evaluate_on`).
    """
    from contrasweep.trainables import checkpoint, images
    from contrasweep.trainables.contrastive.method import evaluated_network, network, parts_of
    from contrasweep.trainables.exporting import FromPixels

    # The training part has the images' shape, and the moments by which they are normalised.
    settings = Settings(**trial.config)
    train_part = images.open_images(
        parts_of(trial)[0], torch.device("cpu"), settings.resident_gib, settings.view_size
    )
    model = network(settings, train_part.shape)
    model.load_state_dict(checkpoint.part(folder, "average" if settings.ema else "model"))
    return FromPixels(
        evaluated_network(model, settings), *train_part.moments(), size=settings.view_size or None
    )


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory and the work of a trial with this config, for images of `data`.

    A step of the network has all views of a batch, or one chunk of them. The device holds the images as uint8 and
    the views that are drawn ahead, beside the network. It also holds the loss's own weights, with their gradients and
    the optimizer's state. Three things are not counted:

    - the loss's matrices [2B 2B], which with a ResNet stay below 3 % of the rest;
    - the networks of targets (BYOL, MoCo);
    - the second encoding of each chunk.
    """
    settings = Settings(**config)
    shape = view_shape(data, settings.view_size)
    pixels = math.prod(shape)
    processes = settings.resources.size
    # Rows of one forward pass: the views of this process's images, or one chunk of them.
    rows = settings.n_views * settings.batch_size // processes
    chunks = 1
    if settings.chunk_rows:
        chunks = math.ceil(rows / settings.chunk_rows)
        rows = min(rows, settings.chunk_rows)
    image_bytes = resident_bytes(data, shape, settings)
    # The views of some batches are drawn at once, in float32, beside a copy of the images that they are drawn from.
    images = min(
        data.rows("train", "test"), max(settings.batch_size, VALUES_AT_ONCE["cuda"] // pixels)
    )
    view_bytes = (settings.n_views + 1) * images * pixels * FLOAT_BYTES
    # Prefetched batches of streamed images wait too, and one is in use.
    if not image_bytes:
        views = (BATCHES_AHEAD + 1) * settings.n_views * settings.batch_size
        view_bytes += views * pixels * FLOAT_BYTES
    # Each weight of the loss counts for itself, for its gradient, and for each of the optimizer's states.
    states = optimizer_states(settings.optimizer)
    loss_bytes = int(settings.loss_weights(shape, len(data.classes)) * (2 + states) * FLOAT_BYTES)
    return Workload(
        architecture=f"{settings.encoder.name} {settings.precision}",
        shape=(shape, rows, settings.network_text),
        build=lambda: settings.build_network(shape),
        inputs=(rows, *shape),
        step=known_step(settings.network_text, shape, rows, settings.precision),
        optimizer_states=states,
        precision=settings.precision,
        resident_bytes=image_bytes + view_bytes + loss_bytes,
        device=settings.device,
        cpus=float(settings.threads * processes),
        gpus=max(1, settings.resources.gpus),
        steps=settings.epochs * max(1, rows_to_train(data) // settings.batch_size) * chunks,
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
# A trial that starts from another's checkpoint has its encoder.
train.start_settings = ("encoder",)  # type: ignore[attr-defined]
