"""The contrastive trainable with queues, momentum encoders, losses of two views, and other datasets than its own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from refusals import refused
from to_the_bit import trained_and_resumed

from contrasweep.data import resolve, stage
from contrasweep.errors import DataError, SpecError
from contrasweep.trainables.contrastive import timed, train, transfer
from contrasweep.trainables.contrastive.method import parts_of
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trial import Trial

QUICK = {
    "encoder": {"name": "mlp", "width": 32},
    "epochs": 2,
    "batch_size": 128,
    "checkpoint_every": 1,
}
COMPARED: dict[str, dict[str, Any]] = {
    "moco": {"loss": "infonce", "targets": {"name": "moco", "size": 300}},
    "moco with labels": {
        "loss": "supcon",
        "targets": {"name": "moco", "size": 300, "momentum": 0.9},
    },
    "xbm": {"loss": "margin_contrastive", "targets": {"name": "xbm", "size": 300, "start": 2}},
    "byol": {"targets": {"name": "byol", "momentum": 0.9, "width": 32}},
    "nnclr": {"loss": "infonce", "targets": {"name": "nnclr", "size": 300, "width": 32}},
    "dino": {"targets": {"name": "dino", "prototypes": 64, "momentum": 0.9}, "n_views": 4},
    "swav": {"targets": {"name": "swav", "prototypes": 32}, "n_views": 3},
    "views": {
        "loss": "supcon",
        "n_views": 3,
        "view_augmentations": ["none", {"name": "photos", "flip": 0}],
    },
    "one view": {"loss": "supcon", "n_views": 1},
    "barlow_twins": {"loss": "barlow_twins", "learning_rate": 0.01},
    "vicreg": {"loss": "vicreg", "learning_rate": 0.01},
    "learnable temperature": {"loss": "sincere", "learnable_temperature": True},
    "siglip": {
        "loss": {"name": "siglip", "bias": -5.0},
        "learning_rate": 0.02,
        "loss_learning_rate": 1e-4,
    },
    "proxy_anchor": {
        "loss": "proxy_anchor",
        "loss_learning_rate": 1.0,
        "optimizer": "adamw",
        "learning_rate": 0.003,
    },
    "theirs": {"loss": "pytorch_metric_learning.losses:SoftTripleLoss"},
}


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def digits(storage):
    return resolve("digits-lt", folds=5, storage=str(storage), write=True)


def trial(data, fold=0, **config):
    return Trial(
        "study", "arm", "contrasweep.trainables.contrastive:train", QUICK | config, data, fold, 0
    )


def test_a_loss_that_is_not_used_is_not_told_of(digits, caplog):
    (report,) = train(trial(digits, loss="ocl", targets="byol", epochs=1))
    assert "ocl_equals_scl" not in report.metrics and "OCL equals SCL" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_each_trains_and_resumes_to_the_bit(digits, tmp_path, name):
    _, last = trained_and_resumed(train, trial(digits, **COMPARED[name]), tmp_path)
    assert last.metrics["knn1"] > 0.6 and np.isfinite(last.metrics["loss"])


def test_a_clock_changes_no_other_number_and_goes_on(digits):
    one_view = trial(digits, **COMPARED["one view"])
    plain, clocked = (list(method(one_view)) for method in (train, timed.train))
    seconds = [dict(report.metrics).pop("processor_seconds") for report in clocked]
    assert 0 < seconds[0] < seconds[1]
    for report, other in zip(plain, clocked, strict=True):
        assert report.metrics == {
            k: v for k, v in other.metrics.items() if k != "processor_seconds"
        }
    running = timed.train(one_view)
    first = next(running)
    [after] = timed.train(one_view, first.checkpoint)
    assert after.metrics["processor_seconds"] > first.metrics["processor_seconds"], (
        "those before count"
    )


@pytest.mark.slow
def test_frozen_features_are_scored_on_another_dataset(digits, storage):
    others = {"transfer": ["digits", "digits-lt?imbalance_factor=10"]}
    settings = Settings(**QUICK, **others).resolve(digits)
    with_others, without = (
        list(train(trial(digits, **config)))
        for config in ({"transfer": list(settings.transfer)}, {})
    )
    last = dict(with_others[-1].metrics)
    elsewhere = {key: last.pop(key) for key in list(last) if "_on_" in key}
    assert last == without[-1].metrics, "training is what it was"
    assert set(elsewhere) == {
        f"{score}_on_{name}"
        for score in ("knn1", "knn5", "probe")
        for name in ("digits", "digits-lt-imbalance_factor-10")
    }
    assert min(elsewhere.values()) > 0.7
    assert not any("_on_" in key for key in with_others[0].metrics)


def test_another_dataset_must_be_there_with_the_content_of_the_plan(digits):
    with refused(DataError, match=r"there is no dataset 'digitz'; .*digits"):
        Settings(transfer=["digitz"]).resolve(digits)
    with refused(DataError, r"'mnist' is not staged; stage it with: contrasweep data stage mnist"):
        Settings(transfer=["mnist"]).resolve(digits)
    with refused(
        DataError, match=r"transfer: dataset 'digits' has digest .* had 000000000000 when"
    ):
        list(train(trial(digits, transfer=["digits#000000000000"], epochs=1)))


def test_another_dataset_that_cannot_be_scored_is_refused_before_the_training(
    digits, storage, tmp_path
):
    for i, image in enumerate(np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), np.uint8)):
        file = tmp_path / f"class {i % 2}/{i}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(file)
    stage("image-folder", str(storage / "datasets/whole"), source=tmp_path)
    assert transfer.with_digests(("whole",), digits)[0].startswith("whole#")
    with refused(SpecError, "'whole' has no test split of its own"):
        Settings(transfer=["whole"]).resolve(digits.with_folds(None))
    with refused(SpecError, "two datasets of one name give scores of one name"):
        Settings(transfer=["whole", f"{storage}/datasets/whole"]).resolve(digits)
    of_four = replace(digits, columns={"image": {"dtype": "uint8", "shape": [8, 8, 4]}})
    with refused(DataError, "images with 3 channels cannot become those with 4"):
        transfer.with_digests(("whole",), of_four)


@pytest.fixture(scope="module")
def unlabelled(storage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for i in range(40):
        name = folder / f"day {i % 3}/{i}.png"
        name.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(name)
    return stage("images", str(storage / "datasets/photos"), source=folder)


def test_images_without_labels_are_trained_on_and_scored_elsewhere(unlabelled, storage):
    whole = resolve(unlabelled.uri, folds=None, storage=str(storage))
    assert whole.classes == () and whole.rows() == 40
    (report,) = train(
        trial(whole, None, loss="infonce", transfer=["digits"], batch_size=16, epochs=1)
    )
    assert 0 < report.metrics["probe_on_digits"] <= 1
    assert not {"knn1", "accuracy"} & set(report.metrics)
    folds = resolve(unlabelled.uri, folds=2, storage=str(storage))
    of_fold = trial(folds, 1, targets="byol", batch_size=16, epochs=1)
    assert [len(part) for part in parts_of(of_fold)] == [20, 20]
    (report,) = train(of_fold)
    assert np.isfinite(report.metrics["loss"])
