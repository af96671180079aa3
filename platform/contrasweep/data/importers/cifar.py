"""CIFAR-10 and CIFAR-100: the published archive or its folder ("python version"), or an npz.

The published files are pickles. They are read by an unpickler that builds nothing but arrays, numbers, bytes, text,
lists and dicts, so that a forged file raises an error and runs no code (`data.safety`).
"""

import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasweep.data import safety
from contrasweep.data.content import (
    Content,
    Importer,
    NoSettings,
    Published,
    published_images,
)
from contrasweep.data.importers import labelled_images
from contrasweep.errors import DataError
from contrasweep.schema import checked

CLASSES10 = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
# Number of classes -> split -> names of its published files.
PUBLISHED_FILES = {
    10: {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]},
    100: {"train": ["train"], "test": ["test"]},
}
FOLDERS = {10: "cifar-10-batches-py", 100: "cifar-100-python"}
Split = tuple[NDArray[np.uint8], NDArray[np.int64]]


@checked
class LongTailedCifar:
    """Settings of a long-tailed CIFAR."""

    imbalance_factor: labelled_images.ImbalanceFactor = 100.0
    """Number of training images in the largest class, divided by that in the smallest."""


def _read(classes: int, source: Path, settings: Any) -> Content:
    """Return the images of CIFAR-10 or CIFAR-100, from an .npz or from the published pickles.

    `classes` is 10 or 100. The training split is made long-tailed where the settings are `LongTailedCifar`. An .npz has
    no names of classes: those of CIFAR-100 are then "0" to "99".
    """
    if source.suffix == ".npz":
        splits = labelled_images.splits_of_npz(source)
        names = CLASSES10 if classes == 10 else tuple(map(str, range(100)))
    else:
        splits, names = _pickled(source, classes)
    if isinstance(settings, LongTailedCifar):
        images, labels = splits["train"]
        drawn = labelled_images.long_tailed(labels, classes, settings.imbalance_factor)
        splits["train"] = images[drawn], labels[drawn]
    return labelled_images.content(splits, names, str(source))


def _pickled(source: Path, classes: int) -> tuple[dict[str, Split], tuple[str, ...]]:
    """Return images [n 32 32 3] and labels of each split from the published pickles, and the names of the classes.

    `source` is the archive or its folder, `classes` the number of classes. `DataError` where a file is missing or has
    other content.
    """
    read = partial(_read_file, source, FOLDERS[classes])
    splits = {}
    for split, names_of_files in PUBLISHED_FILES[classes].items():
        batches = [safety.unpickle(read(name), f"{source}: {name}") for name in names_of_files]
        key = b"labels" if classes == 10 else b"fine_labels"
        try:
            rows = np.concatenate([batch[b"data"] for batch in batches])
            labels = np.concatenate([batch[key] for batch in batches]).astype(np.int64)
            # A published row has all red values, then all green, then all blue ones.
            splits[split] = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{source}: {split} is not in CIFAR's published layout ({error!r})"
            ) from None
    if classes == 10:
        return splits, CLASSES10
    names = safety.unpickle(read("meta"), f"{source}: meta")[b"fine_label_names"]
    return splits, tuple(name.decode() for name in names)


def _read_file(source: Path, folder: str, name: str) -> bytes:
    """Return the bytes of the file `name` in `source`: the published tar, the unpacked `folder`, or its parent.

    Nothing is unpacked to disk. `DataError` where a folder has no such file.
    """
    if source.is_file():
        with tarfile.open(source) as archive:
            return archive.extractfile(f"{folder}/{name}").read()  # type: ignore[union-attr]
    for place in (source, source / folder):
        if (place / name).is_file():
            return (place / name).read_bytes()
    raise DataError(f"{source} has no {name} (nor {folder}/{name})")


def _fetch(name: str, folder: Path) -> Path:
    """Download the archive of torchvision's dataset `name`, checked by its digest, to the folder; return its path."""
    # The class of torchvision is not instantiated, because it would unpack the archive and load its pickles.
    from torchvision import datasets
    from torchvision.datasets.utils import download_url

    dataset = getattr(datasets, name)
    download_url(dataset.url, str(folder), dataset.filename, dataset.tgz_md5)
    return folder / str(dataset.filename)


def _published(classes: int, settings: Any) -> Published:
    """Return the description of CIFAR-10 or CIFAR-100 (`classes`), without reading any file.

    The training split has fewer rows where the settings are `LongTailedCifar`.
    """
    train = 50_000
    if isinstance(settings, LongTailedCifar):
        counts = labelled_images.long_tail(train // classes, classes, settings.imbalance_factor)
        train = sum(counts)
    return published_images({"train": train, "test": 10_000}, classes, (32, 32, 3))


_LICENCE = "free for research, cite Krizhevsky 2009"


def _importer(classes: int, settings: Any, about: str) -> Importer:
    """Return the importer of CIFAR-10 or CIFAR-100 (`classes`).

    `settings` is the class of its settings, and `about` a line on the dataset.
    """
    source = f"{FOLDERS[classes]} (folder or the published tar.gz), or an npz with x_train, y_train, x_test, y_test"
    return Importer(
        partial(_read, classes),
        about,
        licence=_LICENCE,
        source=source,
        settings=settings,
        fetch=partial(_fetch, f"CIFAR{classes}"),
        published=partial(_published, classes),
    )


CIFAR10 = _importer(10, NoSettings, "colour photographs 32x32 of 10 classes, 50,000 + 10,000")
CIFAR100 = _importer(100, NoSettings, "colour photographs 32x32 of 100 classes, 50,000 + 10,000")
CIFAR10_LT = _importer(
    10, LongTailedCifar, "CIFAR-10 with a long-tailed training split (LDAM-DRW profile)"
)
CIFAR100_LT = _importer(
    100, LongTailedCifar, "CIFAR-100 with a long-tailed training split (LDAM-DRW profile)"
)
