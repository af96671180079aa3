"""MNIST and Fashion-MNIST: the published idx files (also gzipped), or the npz with x_train, y_train, x_test, y_test."""

import gzip
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasweep.data.content import Content, Importer, Published, published_images
from contrasweep.data.importers import labelled_images
from contrasweep.errors import DataError

IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
DIGITS = tuple("0123456789")
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array in an idx file of unsigned bytes, perhaps gzipped; `DataError` for other files and cut ones.

    Such a file begins with two zero bytes, the type (8) and the number of axes. Then come the size of each axis in four
    bytes (big-endian) and the bytes of the array.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read(labelled_images.MOST_BYTES)  # a small gzip may hold far more
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise DataError(f"{path} is not an idx file of unsigned bytes")
    axes = data[3]
    start = 4 + 4 * axes
    shape = struct.unpack_from(f">{axes}I", data, 4) if len(data) >= start else ()
    # Multiplied as Python's integers: the sizes of a forged header would overflow NumPy's.
    if not shape or len(data) - start != int(np.prod(shape, dtype=object)):
        raise DataError(
            f"{path} is truncated: its header announces {shape}, it holds {len(data) - start} bytes; fetch it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _find(folder: Path, name: str) -> Path:
    """Return the file `name`, or `name`.gz, in the folder or where torchvision puts it; `DataError` without one."""
    for place in (
        folder,
        folder / "raw",
        folder / "MNIST" / "raw",
        folder / "FashionMNIST" / "raw",
    ):
        for file in (place / name, place / f"{name}.gz"):
            if file.is_file():
                return file
    raise DataError(f"{folder} has no {name} (nor {name}.gz)")


def _read(classes: tuple[str, ...], look: str, source: Path, settings: Any) -> Content:
    """Return the images of an .npz or of the published idx files in the folder `source`.

    `classes` are names by label. `look`, `glyphs` or `photos`, tells augmentations which kind of images these are.
    """
    if source.suffix == ".npz":
        splits = labelled_images.splits_of_npz(source)
    else:
        splits = {
            split: (
                read_idx(_find(source, images)),
                read_idx(_find(source, labels)).astype(np.int64),
            )
            for split, (images, labels) in IDX_FILES.items()
        }
    content = labelled_images.content(splits, classes, str(source))
    return replace(content, source={"content": look})


def _fetch(name: str, folder: Path) -> Path:
    """Download torchvision's dataset `name`, checked by its digests, into the folder, and return the folder."""
    from torchvision import datasets

    getattr(datasets, name)(folder, download=True)
    return folder


def _published(settings: Any) -> Published:
    """Return the description of MNIST or Fashion-MNIST."""
    return published_images({"train": 60_000, "test": 10_000}, 10, (28, 28, 1))


_SOURCE = "the folder of the four idx files (gzipped or not), or an npz with x_train, y_train, x_test, y_test"
MNIST = Importer(
    partial(_read, DIGITS, "glyphs"),
    "handwritten digits 28x28, 60,000 + 10,000",
    "CC BY-SA 3.0 (LeCun et al. 1998)",
    _SOURCE,
    fetch=partial(_fetch, "MNIST"),
    published=_published,
)
FASHION_MNIST = Importer(
    partial(_read, FASHION, "photos"),
    "clothing articles 28x28, 60,000 + 10,000",
    "MIT (Xiao et al. 2017)",
    _SOURCE,
    fetch=partial(_fetch, "FashionMNIST"),
    published=_published,
)
