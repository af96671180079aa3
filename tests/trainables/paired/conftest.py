"""Pairs to train on without any download: real handwritten digits, paired, as the platform stages pairs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from contrasweep.data import columns, resolve, stage
from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import DATASETS
from contrasweep.data.manifest import Folds
from contrasweep.study import dotted
from contrasweep.trial import Trial

torch.set_num_threads(1)

QUICK: dict[str, Any] = {
    "encoder": {"name": "resnet10", "width": 8, "stem": "small"},
    "epochs": 2,
    "batch_size": 16,
    "classifier": {"hidden": 32},
    "projection": {"dim": 16},
    "learning_rate": 1e-3,
    "image_size": 16,
    "evaluate_every": 1,
    "artifacts": "none",
}


def digit_pairs(source: Path, settings: Any) -> Content:
    """240 pairs of digits: class 0 the same digit twice (two writers), 1 the second one larger, 2 smaller; three
    rows in five are of class 0. The group is the first digit."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    pixels = np.repeat((digits.images * 15.9).astype(np.uint8)[..., None], 3, axis=-1)
    rows = []
    for wanted in (0, 0, 0, 1, 2) * 48:
        first, second = rng.integers(len(pixels), size=2)
        while np.sign(digits.target[second] - digits.target[first]) % 3 != wanted:
            first, second = rng.integers(len(pixels), size=2)
        rows.append((first, second, wanted))
    pre, post, label = (np.array(column) for column in zip(*rows, strict=True))
    specs = {name: columns.spec("uint8", (8, 8, 3)) for name in ("pre", "post")}
    table = columns.table(
        {
            "pre": columns.from_array(pixels[pre]),
            "post": columns.from_array(pixels[post]),
            "label": label.astype(np.int64),
            "group": [f"g{d}" for d in digits.target[pre]],
        },
        specs,
    )
    return Content(
        "image-pair",
        {"train": [table]},
        ("same", "larger", "smaller"),
        specs,
        Folds(5, "grouped", 0),
    )


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "digit-pairs", Importer(digit_pairs, "digits in pairs", "BSD"))
        place = str(tmp_path_factory.mktemp("pairs"))
        stage("digit-pairs", place)
        return resolve(place, folds=5, storage=place)


@pytest.fixture(scope="session")
def make_trial(pairs):
    def make(fold=0, seed=0, data=pairs, **config):
        return Trial(
            "study",
            "arm",
            "contrasweep.trainables.paired_images:train",
            dotted.merge(QUICK, dotted.expand(config)),
            data,
            fold,
            seed,
        )

    return make
