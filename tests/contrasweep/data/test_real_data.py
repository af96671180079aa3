"""The real datasets beside the checkout: staged, verified, and what is known of them holds."""

import subprocess
import sys

import numpy as np
import pytest
from benchmarks.stage_real_data import SOURCES
from places import ROOT

from contrasweep.data import open_dataset, resolve
from contrasweep.data.importers.labelled_images import long_tail
from contrasweep.data.resolving import find


def read(place, folds=None):
    return resolve(place, folds=folds, storage="unused")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SOURCES if "?" not in name])
def test_what_a_newcomer_stages_is_verified(name, staged):
    manifest = find(staged(name), storage="unused")
    assert manifest.splits and all(manifest.rows(split) for split in manifest.splits)


def test_cifar10_lt(staged):
    manifest = read(staged("cifar10-lt"))
    assert manifest.counts["train"]["classes"] == long_tail(5000, 10, 100)
    assert manifest.counts["test"]["classes"] == [1000] * 10


def test_mnist(shared, staged):
    train, test = open_dataset(read(staged("mnist"))).parts(None)
    with np.load(shared / "data/mnist/mnist.npz") as published:
        assert np.array_equal(train.array("image")[..., 0], published["x_train"])
        assert np.array_equal(test.labels, published["y_test"])


def test_sick(staged):
    manifest = read(staged("sick"))
    assert {split: manifest.rows(split) for split in manifest.splits} == {
        "train": 4439,
        "dev": 495,
        "test": 4906,
    }


@pytest.mark.slow
def test_ombria(staged):
    manifest = read(staged("ombria"), folds=5)
    counts = np.array(manifest.counts["train"]["classes"])
    assert np.round(100 * counts / counts.sum()).astype(int).tolist() == [45, 21, 17, 11, 6]
    dataset = open_dataset(manifest)
    for fold in range(5):
        train, test = dataset.parts(fold)
        assert not set(train.column("group").to_pylist()) & set(test.column("group").to_pylist())
        assert set(test.column("fold").to_pylist()) == {fold}


@pytest.mark.slow
def test_the_newcomers_script_stages_what_is_there_and_skips_the_rest(tmp_path, runs):
    script = [sys.executable, str(ROOT / "benchmarks/stage_real_data.py")]
    command = [*script, "--shared", str(tmp_path / "nothing"), "--storage", runs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == [
        "verified",
        *["skipped:"] * (len(SOURCES) - 1),
    ]
    assert read(str(tmp_path / "runs/datasets/digits")).name == "digits"
