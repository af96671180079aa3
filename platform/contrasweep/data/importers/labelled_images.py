"""Raw labelled images, [n h w c] uint8 with one label each: what most small image datasets come down to.

They are read from arrays or from a NumPy archive, and long-tailed subsets of them are drawn.
"""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
from numpy.typing import NDArray

from contrasweep.data import columns, safety
from contrasweep.data.content import Content
from contrasweep.data.manifest import ColumnSpec
from contrasweep.errors import DataError, SpecError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
BATCH = 4096
MOST_BYTES = 2**31
"""Of an array, packed or not."""
ImbalanceFactor = Annotated[float, pydantic.Field(ge=1)]
"""The largest class over the smallest."""
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def content(
    splits: Mapping[str, tuple[Images, Labels]], classes: tuple[str, ...], origin: str
) -> Content:
    """Return the columns `image` (raw uint8) and `label` (int32) of images and labels by split.

    Images are [n h w] or [n h w c]; `classes` are names by label. `DataError` names `origin` where arrays do not fit
    together.
    """
    shape: tuple[int, ...] | None = None
    shaped = {}
    for split, (images, labels) in splits.items():
        images = images[..., None] if images.ndim == 3 else images  # grey images have one channel
        if images.ndim != 4 or images.dtype != np.uint8 or len(images) != len(labels):
            raise DataError(
                f"{origin}: {split} must be uint8 images [n h w] or [n h w c] with n labels, "
                f"got {images.dtype} {list(images.shape)} and {len(labels)} labels"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise DataError(
                f"{origin}: {split} has a label outside 0 to {len(classes) - 1}: {labels.min()} to {labels.max()}"
            )
        # All splits have the shape of the first.
        shape = shape or images.shape[1:]
        if images.shape[1:] != shape:
            raise DataError(
                f"{origin}: {split} images are {images.shape[1:]}, those before {shape}"
            )
        shaped[split] = (images, labels)
    if shape is None:
        raise DataError(f"{origin} holds no images")
    specs = {"image": columns.spec("uint8", shape)}
    return Content(
        "image", {split: _tables(*data, specs) for split, data in shaped.items()}, classes, specs
    )


def _tables(images: Images, labels: Labels, specs: Mapping[str, ColumnSpec]) -> Iterator[Any]:
    """Yield tables of the images with their labels, `BATCH` rows each at most."""
    for start in range(0, len(labels), BATCH):
        rows = slice(start, start + BATCH)
        yield columns.table(
            {"image": columns.from_array(images[rows]), "label": labels[rows].astype(np.int32)},
            specs,
        )


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return name -> array of a NumPy archive; pickled objects in it are refused, never loaded.

    `DataError` for these, for what is no archive, and for an array beyond `MOST_BYTES`.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with safety.open_member(archive, name, MOST_BYTES) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                arrays[name.removesuffix(".npy")] = array
        return arrays
    # A header is Python's text: of a forged one NumPy raises nearly anything.
    except Exception as error:
        problem = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"{path} cannot be read as a NumPy archive of plain arrays ({problem})"
        ) from None


def splits_of_npz(path: Path) -> dict[str, tuple[Images, Labels]]:
    """Return images and labels of `train` and `test` from an archive with x_train, y_train, x_test and y_test.

    Other arrays are passed over; `DataError` where one of these is missing, or has no numbers.
    """
    arrays = read_npz(path)
    if missing := [name for name in ARRAYS if name not in arrays]:
        raise DataError(f"{path} has no {', '.join(missing)}; it holds {', '.join(arrays)}")
    for name in ARRAYS:
        if arrays[name].dtype.kind not in "buif":
            raise DataError(f"{path}: {name} must be an array of numbers, got {arrays[name].dtype}")
    return {
        split: (arrays[f"x_{split}"], arrays[f"y_{split}"].reshape(-1).astype(np.int64))
        for split in ("train", "test")
    }


def long_tail(n_max: int, classes: int, imbalance_factor: float) -> list[int]:
    """Return the number of images of each class by the long-tailed profile that the field reports on.

    Cao et al. 2019 (LDAM-DRW): class i of C has n_i = int(n_max * (1/IF)^(i/(C-1))), so that the last class has
    `n_max / imbalance_factor`.
    """
    return [
        int(n_max * (1 / imbalance_factor) ** (i / max(1, classes - 1))) for i in range(classes)
    ]


def long_tailed(labels: Labels, classes: int, imbalance_factor: float) -> Labels:
    """Return the indices of the long-tailed subset of `labels` [n], class by class as the reference code has them.

    Of each class the first n_i (see `long_tail`) remain after the classes are shuffled one after another from numpy's
    legacy seed 0. `SpecError` where a class has fewer.
    n_max is the smallest class of a (nearly) balanced source, and the largest class of one that is already long-tailed,
    which is kept whole and in its order if it has this very profile.
    """
    counts = np.bincount(labels, minlength=classes)
    # Nearly balanced: no class is twice as large as another.
    balanced = counts.min() * 2 > counts.max()
    targets = long_tail(int(counts.min() if balanced else counts.max()), classes, imbalance_factor)
    if targets == counts.tolist():
        return np.arange(len(labels))
    for i, (present_count, want) in enumerate(zip(counts, targets, strict=True)):
        if present_count < want:
            raise SpecError(
                "the source has too few images for this imbalance_factor",
                place="imbalance_factor",
                value=imbalance_factor,
                hint=f"class {i} has {present_count} of {want}; stage from the balanced dataset",
            )
    random = np.random.RandomState(0)
    rows_kept = []
    for label, n in enumerate(targets):
        members = np.flatnonzero(labels == label)
        random.shuffle(members)
        rows_kept.append(members[:n])
    return np.concatenate(rows_kept)
