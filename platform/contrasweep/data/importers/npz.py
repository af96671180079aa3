"""NumPy archives in the layout that Keras made common: x_train, y_train, x_test, y_test, perhaps classes."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasweep.errors import DataError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def load(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz; pickled objects in it are refused, never loaded."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as a NumPy archive of plain arrays ({error})") from None


def splits(path: Path) -> dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """The train and test images and labels of the archive at `path`."""
    arrays = load(path)
    if missing := [name for name in ARRAYS if name not in arrays]:
        raise DataError(f"{path} has no {', '.join(missing)}; it holds {', '.join(arrays)}")
    return {
        split: (arrays[f"x_{split}"], arrays[f"y_{split}"].reshape(-1).astype(np.int64)) for split in ("train", "test")
    }
