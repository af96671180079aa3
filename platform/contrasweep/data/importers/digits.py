"""Handwritten digits that come with scikit-learn: real and small, and no network is needed.

They are 1,797 images of 8x8 pixels by 13 writers: the test set of Alpaydin & Kaynak's Optical Recognition of
Handwritten Digits (UCI, 1998). A published value is the number of black pixels in a 4x4 block, 0 to 16. It is stored as
round(value * 255 / 16). The first 40 images of each class, in the published order, are the balanced test split.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import labelled_images
from contrasweep.schema import checked

TEST_PER_CLASS = 40
CLASSES = tuple("0123456789")


@checked
class LongTailedDigits:
    """Settings of the long-tailed digits."""

    imbalance_factor: labelled_images.ImbalanceFactor = 10.0
    """Number of training images in the largest class, divided by that in the smallest."""


def _read(source: Path, settings: Any) -> Content:
    """Return scikit-learn's digits as uint8 [n 8 8 1]; the first `TEST_PER_CLASS` of each class are the test split.

    `source` is not used, because they come with scikit-learn. The training split is long-tailed where the settings are
    `LongTailedDigits`.
    """
    values, digits = _values_and_labels()
    images = np.round(values * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = digits.astype(np.int64)
    test_of_class = [np.flatnonzero(labels == label)[:TEST_PER_CLASS] for label in range(10)]
    test = np.sort(np.concatenate(test_of_class))
    train = np.setdiff1d(np.arange(len(labels)), test)
    if isinstance(settings, LongTailedDigits):
        train = train[labelled_images.long_tailed(labels[train], 10, settings.imbalance_factor)]
    splits = {"train": (images[train], labels[train]), "test": (images[test], labels[test])}
    return labelled_images.content(splits, CLASSES, "scikit-learn's digits")


def _values_and_labels() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values [n 64], 0 to 16, and labels [n] from scikit-learn's file."""
    # To import scikit-learn takes a second, so it is imported only where the file is not in its usual place.
    package = importlib.util.find_spec("sklearn")
    origin = (package and package.origin) or ""
    file = Path(origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        rows = np.loadtxt(file, delimiter=",")
        return rows[:, :-1], rows[:, -1]
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    return values, labels


LICENCE = "CC BY 4.0 (UCI Machine Learning Repository, Alpaydin & Kaynak 1998)"
DIGITS = Importer(
    _read, "handwritten digits 8x8, 1,397 training and 400 balanced test images", LICENCE
)
DIGITS_LT = Importer(
    _read, "digits with a long-tailed training split", LICENCE, settings=LongTailedDigits
)
