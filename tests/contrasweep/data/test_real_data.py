"""The real datasets beside the checkout: staged, verified, and what is known of them holds."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from contrasweep.data import inspecting, open_dataset, resolve, stage

ROOT = Path(__file__).resolve().parents[3]


def test_cifar10_lt(shared: Path, tmp_path: Path) -> None:
    manifest = stage("cifar10-lt", str(tmp_path / "c"), source=shared / "data" / "cifar10_lt" / "cifar10_lt_if100.npz")
    assert manifest.counts["train"]["classes"] == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert manifest.counts["test"]["classes"] == [1000] * 10
    assert inspecting.verify(manifest) == []


def test_mnist(shared: Path, tmp_path: Path) -> None:
    source = shared / "data" / "mnist" / "mnist.npz"
    manifest = stage("mnist", str(tmp_path / "m"), source=source)
    train, test = open_dataset(manifest).parts(None)
    with np.load(source) as published:
        assert np.array_equal(train.array("image")[..., 0], published["x_train"])
        assert np.array_equal(test.labels, published["y_test"])


def test_sick(shared: Path, tmp_path: Path) -> None:
    manifest = stage("sick", str(tmp_path / "s"), source=shared / "data" / "sick")
    assert {split: manifest.rows(split) for split in manifest.splits} == {"train": 4439, "dev": 495, "test": 4906}
    assert inspecting.verify(manifest) == []


def test_clothing_reviews(shared: Path, tmp_path: Path) -> None:
    source = shared / "data" / "reviews" / "womens_clothing_reviews.csv.zip"
    manifest = stage("clothing-reviews", str(tmp_path / "r"), source=source)
    labels = np.sum([manifest.counts[split]["classes"] for split in ("train", "dev", "test")], axis=0)
    assert labels.tolist() == [4043, 3626, 2494, 1446, 701]
    assert manifest.rows("products") == 853
    assert inspecting.verify(manifest) == []


@pytest.mark.parametrize(
    ("classes", "shares"), [(5, [45, 21, 17, 11, 6]), pytest.param(4, [63, 12, 16, 8], marks=pytest.mark.slow)]
)
def test_ombria(classes: int, shares: list[int], shared: Path, tmp_path: Path) -> None:
    manifest = stage("ombria", str(tmp_path / "o"), source=shared / "data" / "ombria", settings={"classes": classes})
    counts = np.array(manifest.counts["train"]["classes"])
    assert np.round(100 * counts / counts.sum()).astype(int).tolist() == shares
    dataset = open_dataset(resolve(manifest.uri, folds=5, storage="unused"))
    for fold in range(5):
        train, test = dataset.parts(fold)
        assert not set(train.column("group").to_pylist()) & set(test.column("group").to_pylist())
        assert set(test.column("fold").to_pylist()) == {fold}


@pytest.mark.slow
def test_the_newcomers_script_stages_and_verifies_all_of_it(shared: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "stage_real_data.py"),
        "--shared",
        str(shared),
        "--storage",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("verified") == 7
