"""Datasets of raw labelled images, [n h w c] uint8 with a label for each image, from arrays or a NumPy archive.

Long-tailed subsets of them can be drawn.
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
"""The most bytes of an array, or of a file before it is unpacked."""
ImbalanceFactor = Annotated[float, pydantic.Field(ge=1)]
"""Number of images in the largest class, divided by that in the smallest."""
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def content(
    splits: Mapping[str, tuple[Images, Labels]], classes: tuple[str, ...], origin: str
) -> Content:
    """Return a dataset with the columns `image` (raw uint8) and `label` (int32), from images and labels by split.

    Images are [n h w] or [n h w c]; `classes` are names by label. `DataError` where arrays do not fit together; it
    names their `origin`.
    """
    shape: tuple[int, ...] = ()
    shaped = {}
    for split, (images, labels) in splits.items():
        if images.ndim == 3:
            images = images[..., None]  # grey images have one channel
        if images.ndim != 4 or images.dtype != np.uint8 or len(images) != len(labels):
            raise DataError(
                f"{origin}: {split} must be uint8 images [n h w] or [n h w c] with n labels, "
                f"got {images.dtype} {list(images.shape)} and {len(labels)} labels"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise DataError(
                f"{origin}: {split} has a label outside 0 to {len(classes) - 1}: {labels.min()} to {labels.max()}"
            )
        # The images of all splits have the shape of the first.
        shape = shape or images.shape[1:]
        if images.shape[1:] != shape:
            raise DataError(
                f"{origin}: {split} images are {images.shape[1:]}, those before {shape}"
            )
        shaped[split] = (images, labels)
    specs = {"image": columns.spec("uint8", shape)}
    return Content(
        "image", {split: _tables(*data, specs) for split, data in shaped.items()}, classes, specs
    )


def _tables(images: Images, labels: Labels, specs: Mapping[str, ColumnSpec]) -> Iterator[Any]:
    """Yield tables of the images with their labels, with at most `BATCH` rows each."""
    for start in range(0, len(labels), BATCH):
        rows = slice(start, start + BATCH)
        yield columns.table(
            {"image": columns.from_array(images[rows]), "label": labels[rows].astype(np.int32)},
            specs,
        )


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return name -> array of a NumPy archive. Pickled objects in it are never loaded.

    `DataError` for a pickled object, for a file that is no archive, and for an array of more than `MOST_BYTES`.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with safety.open_member(archive, name, MOST_BYTES) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                arrays[name.removesuffix(".npy")] = array
        return arrays
    # For a forged header, which is Python text, NumPy may raise any error.
    except Exception as error:
        problem = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"{path} cannot be read as a NumPy archive of plain arrays ({problem})"
        ) from None


def splits_of_npz(path: Path) -> dict[str, tuple[Images, Labels]]:
    """Return images and labels of `train` and `test` from an archive with x_train, y_train, x_test and y_test.

    Other arrays are ignored. `DataError` where one of these four is missing or is not of numbers, or where labels are
    not whole.
    """
    arrays = read_npz(path)
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise DataError(f"{path} has no {', '.join(missing)}; it holds {', '.join(arrays)}")
    for name in ARRAYS:
        # Truth values, unsigned and signed integers, and floats.
        if arrays[name].dtype.kind not in "buif":
            raise DataError(f"{path}: {name} must be an array of numbers, got {arrays[name].dtype}")
        # As an integer, 1.7 would be class 1.
        if name.startswith("y") and (arrays[name] % 1).any():
            raise DataError(f"{path}: {name} must be class numbers, and some are not whole")
    return {
        split: (arrays[f"x_{split}"], arrays[f"y_{split}"].reshape(-1).astype(np.int64))
        for split in ("train", "test")
    }


def long_tail(n_max: int, classes: int, imbalance_factor: float) -> list[int]:
    """Return the number of images of each class in the long-tailed profile of Cao et al. 2019 (LDAM-DRW).

    Class i of C has n_i = int(n_max * (1/IF)^(i/(C-1))), where IF is `imbalance_factor`, so that the first class has
    `n_max` and the last one `n_max / imbalance_factor`.
    """
    return [
        int(n_max * (1 / imbalance_factor) ** (i / max(1, classes - 1))) for i in range(classes)
    ]


def long_tailed(labels: Labels, classes: int, imbalance_factor: float) -> Labels:
    """Return the indices of the rows in the long-tailed subset of `labels` [n], class by class.

    They are drawn as the reference code does. Each class is shuffled, one after another, with NumPy's legacy generator
    from seed 0, and its first n_i rows are taken (see `long_tail`). n_max is the size of the smallest class if the
    source is (nearly) balanced. It is that of the largest class if the source is long-tailed already.

    All indices are returned for a source that has this profile already. `SpecError` where a class has fewer than n_i
    images.
    """
    counts = np.bincount(labels, minlength=classes)
    # In a nearly balanced source no class is twice as large as another.
    is_balanced = counts.min() * 2 > counts.max()
    n_max = int(counts.min() if is_balanced else counts.max())
    targets = long_tail(n_max, classes, imbalance_factor)
    if targets == counts.tolist():
        return np.arange(len(labels))
    for i, (count, target) in enumerate(zip(counts, targets, strict=True)):
        if count < target:
            raise SpecError(
                "the source has too few images for this imbalance_factor",
                place="imbalance_factor",
                value=imbalance_factor,
                hint=f"class {i} has {count} of {target}; stage from the balanced dataset",
            )
    random = np.random.RandomState(0)
    drawn = []
    for label, target in enumerate(targets):
        members = np.flatnonzero(labels == label)
        random.shuffle(members)
        drawn.append(members[:target])
    return np.concatenate(drawn)
