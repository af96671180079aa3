"""What memory a contrastive trial takes, for the plan: `trainables.contrastive`'s network, views and data as a
Workload."""

import functools
import math

from contrasweep import canonical
from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.memory import GIB, Precision, Workload
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.contrastive_settings import Settings
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.optimisation import optimizer_states
from contrasweep.trainables.prefetching import AHEAD, CHUNK
from contrasweep.trainables.pytorch import nn
from contrasweep.trainables.step_counts import known_step

FLOAT = 4  # bytes


def image_shape(data: Manifest, column: str) -> Shape:
    """channels, height, width of a dataset's images as staged."""
    shape = data.columns[column].get("shape") if column in data.columns else None
    if shape is None:
        raise ClusterError(f"dataset {data.name} does not say how large its images are")
    height, width, channels = shape
    return channels, height, width


def rows_to_train(data: Manifest) -> int:
    """Rows that a trial trains on: of a dataset with folds without the one that is held out."""
    rows = data.rows("train")
    return rows if data.folds is None else rows - rows // data.folds.count


def network_text(settings: Settings) -> str:
    """Encoder and head with their parameters."""
    return " ".join(canonical.dumps(part.to_plain()) for part in (settings.encoder, settings.projection))


def build_network(settings: Settings, shape: Shape) -> "nn.Module":
    """Encoder and head for images of `shape`."""
    encoder = settings.encoder.build(shape)
    return nn.Sequential(encoder, settings.projection.build(encoder.dim))


def workload(settings: Settings, data: Manifest) -> Workload:
    """One step of both views of a batch (of one chunk where it is encoded in chunks), SGD's velocity or AdamW's two
    moments. On the device beside it: the images as uint8, and the views that are drawn ahead.

    The loss's own matrices [2B 2B] are left out: with a ResNet they stay below 3 % of the rest. Of the work, the
    networks of targets (BYOL, MoCo) are left out, and that chunks are encoded twice.
    """
    shape = image_shape(data, "image")
    pixels = shape[0] * shape[1] * shape[2]
    processes = settings.resources.size
    rows = 2 * settings.batch_size // processes
    chunks = math.ceil(rows / settings.chunk_rows) if settings.chunk_rows else 1
    rows = min(rows, settings.chunk_rows) if settings.chunk_rows else rows
    images = data.rows("train") + data.rows("test")
    ahead = min(images, max(settings.batch_size, CHUNK["cuda"] // pixels))
    resident = 0 if images * pixels > settings.resident_gib * GIB else images * pixels
    views = 3 * ahead * pixels * FLOAT
    if not resident:  # streamed: more of them wait, as prefetched batches
        views += (AHEAD + 1) * 2 * settings.batch_size * pixels * FLOAT
    precision: Precision = "bf16" if settings.autocast else "fp32"
    return Workload(
        architecture=f"{settings.encoder.name} {precision}",
        shape=(shape, rows, network_text(settings)),
        build=functools.partial(build_network, settings, shape),
        inputs=(rows, *shape),
        step=known_step(network_text(settings), shape, rows, precision),
        optimizer_states=optimizer_states(settings.optimizer),
        precision=precision,
        resident_bytes=resident + views,
        device=settings.device,
        cpus=float(settings.threads * processes),
        gpus=max(1, settings.resources.gpus),
        steps=settings.epochs * max(1, rows_to_train(data) // settings.batch_size) * chunks,
    )
