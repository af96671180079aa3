"""Raw labelled images, [n h w c] uint8 with one label each: what most small image datasets come down to."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import columns
from contrasweep.data.content import Content, in_slices
from contrasweep.data.manifest import ColumnSpec
from contrasweep.errors import DataError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
BATCH = 4096


def content(splits: Mapping[str, tuple[Images, Labels]], classes: tuple[str, ...], origin: str) -> Content:
    """Columns `image` (raw uint8) and `label` (int32). `DataError`, naming `origin`, on arrays that do not fit."""
    shape: tuple[int, ...] | None = None
    shaped = {}
    for split, (images, labels) in splits.items():
        images = images[..., None] if images.ndim == 3 else images
        if images.ndim != 4 or images.dtype != np.uint8 or len(images) != len(labels):
            raise DataError(
                f"{origin}: {split} must be uint8 images [n h w] or [n h w c] with n labels, "
                f"got {images.dtype} {list(images.shape)} and {len(labels)} labels"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise DataError(
                f"{origin}: {split} has a label outside 0 to {len(classes) - 1}: {labels.min()} to {labels.max()}"
            )
        shape = shape or images.shape[1:]
        if images.shape[1:] != shape:
            raise DataError(f"{origin}: {split} images are {images.shape[1:]}, those before {shape}")
        shaped[split] = (images, labels)
    if shape is None:
        raise DataError(f"{origin} holds no images")
    specs = {"image": columns.spec("uint8", shape)}
    return Content("image", {split: _tables(*data, specs) for split, data in shaped.items()}, classes, specs)


def _tables(images: Images, labels: Labels, specs: Mapping[str, ColumnSpec]) -> Iterator[pa.Table]:
    for rows in in_slices(len(labels), BATCH):
        yield columns.table({"image": columns.from_array(images[rows]), "label": labels[rows].astype(np.int32)}, specs)
