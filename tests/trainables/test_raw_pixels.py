"""The floor of raw pixels: the vote of the nearest neighbour by hand, one report like a network's, and the errors."""

import numpy as np
import pytest

from contrasweep.data import open_dataset, resolve
from contrasweep.trainables import paired_images, raw_pixels
from contrasweep.trial import Trial


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return resolve(
        "digits-lt", folds=None, storage=str(tmp_path_factory.mktemp("data")), write=True
    )


def trial(data, fold=None, **config):
    return Trial("study", "arm", "contrasweep.trainables.raw_pixels:train", config, data, fold, 0)


def test_the_nearest_training_image_votes(digits):
    (report,) = raw_pixels.train(trial(digits))
    fit, test = open_dataset(digits).parts(None)
    pixels, others = (
        np.asarray(part.array("image"), float).reshape(len(part.labels), -1) for part in (fit, test)
    )
    mean = pixels.mean(0)
    pixels, others = (
        (p - mean) / np.linalg.norm(p - mean, axis=1, keepdims=True) for p in (pixels, others)
    )
    nearest = np.asarray(fit.labels)[(others @ pixels.T).argmax(1)]
    assert report.items["accuracy"] == (nearest == np.asarray(test.labels)).tolist()
    assert report.metrics["accuracy"] == pytest.approx(np.mean(report.items["accuracy"]))
    assert report.step == 1
    assert 0.85 < report.metrics["f1_macro"] < 1


def test_it_reports_what_a_network_reports(digits):
    (floor,) = raw_pixels.train(trial(digits, neighbours=5))
    settings = {
        "input": "single",
        "beta": 0.0,
        "epochs": 1,
        "encoder": {"name": "resnet10", "width": 8},
    }
    (network,) = paired_images.train(
        Trial("s", "a", "t", settings | {"batch_size": 64, "artifacts": "none"}, digits, None, 0)
    )
    assert set(floor.metrics) <= set(network.metrics) and set(floor.items) == set(network.items)
    assert len(floor.items["accuracy"]) == len(network.items["accuracy"])
