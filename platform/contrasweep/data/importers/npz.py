"""NumPy archives in the layout that Keras made common: x_train, y_train, x_test, y_test, perhaps classes."""

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasweep.errors import DataError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError, OverflowError),
    *(SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What a forged or damaged archive has NumPy raise, of which headers are Python's text."""


def load(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz; pickled objects in it are refused, never loaded."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        problem = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path} cannot be read as a NumPy archive of plain arrays ({problem})") from None


def splits(path: Path) -> dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """The train and test images and labels of the archive at `path`."""
    arrays = load(path)
    if missing := [name for name in ARRAYS if name not in arrays]:
        raise DataError(f"{path} has no {', '.join(missing)}; it holds {', '.join(arrays)}")
    for name in ARRAYS:
        if arrays[name].dtype.kind not in "buif":
            raise DataError(f"{path}: {name} must be an array of numbers, got {arrays[name].dtype}")
    return {
        split: (arrays[f"x_{split}"], arrays[f"y_{split}"].reshape(-1).astype(np.int64)) for split in ("train", "test")
    }
