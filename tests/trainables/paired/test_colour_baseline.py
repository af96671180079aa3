"""The colour baseline: its statistics against NumPy, one report like a network's, and the errors."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

from contrasweep.data import columns, open_dataset, stage
from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import DATASETS
from contrasweep.errors import SpecError
from contrasweep.trainables.paired import colour_baseline


def baseline_of(trial, **config):
    return replace(
        trial, trainable="contrasweep.trainables.paired.colour_baseline:train", config=config
    )


def test_colours_are_moments_and_quantiles_of_each_channel():
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 2), dtype=np.uint8)
    statistics = colour_baseline.colours(images)
    assert statistics.shape == (3, 14)
    green = images[1, ..., 1].astype(float)
    expected = [green.mean(), green.std(), *np.quantile(green, colour_baseline.QUANTILES)]
    np.testing.assert_allclose(statistics[1, 1::2], expected, rtol=1e-5)


@pytest.mark.slow
def test_it_reports_once_what_a_network_reports(make_trial):
    trial = baseline_of(make_trial(), rounds=20)
    (report,) = colour_baseline.train(trial)
    (again,) = colour_baseline.train(trial)
    assert report == again
    _, test = open_dataset(trial.data).parts(0)
    assert len(report.items["accuracy"]) == len(test.labels)
    assert report.items["group"] == test.column("group").to_pylist() == test.grouping["group"]
    assert report.metrics["accuracy"] == pytest.approx(np.mean(report.items["accuracy"]))
    assert {"f1_macro", "f1_class_2", "accuracy_medium"} <= set(report.metrics)


def test_hue_saturation_and_value_are_read_too_where_asked(make_trial, monkeypatch):
    seen = []
    colours = colour_baseline.colours
    monkeypatch.setattr(
        colour_baseline, "colours", lambda images: seen.append(colours(images)) or colours(images)
    )
    trial = baseline_of(make_trial(), rounds=3, hue=True)
    next(colour_baseline.train(trial))
    plain, hue = seen[:2]
    assert len(seen) == 8 and hue.shape == plain.shape
    np.testing.assert_allclose(
        hue[:, 2], plain[:, 0] / 255, atol=1e-6, err_msg="the value of a grey image is its light"
    )
    assert not hue[:, :2].any(), "it has neither hue nor saturation"
    grey = {name: {**spec, "shape": [8, 8, 1]} for name, spec in trial.data.columns.items()}
    with refused(SpecError, "hue: only RGB images have a hue"):
        next(colour_baseline.train(replace(trial, data=replace(trial.data, columns=grey))))


@pytest.mark.slow
def test_it_asks_for_no_gpu(make_trial):
    data = make_trial().data
    pair, pre = (colour_baseline.memory({"input": side}, data) for side in ("pair", "pre"))
    assert pair.device == pre.device == "cpu"
    assert pair.count().resident - pre.count().resident == 240 * 8 * 8 * 3  # the other side, uint8
    tested = replace(data, splits=data.splits | {"test": data.splits["train"]})
    assert colour_baseline.memory({}, tested).resident_bytes == 2 * pair.resident_bytes


@pytest.mark.slow
def test_many_rows_are_all_fitted_and_a_class_may_have_one(make_trial, tmp_path, monkeypatch):
    """By default the trees of scikit-learn hold rows out from 10,000 on, some of each class, drawn by the seed."""
    labels = np.r_[np.arange(10_100) % 2, 2]
    pixels = np.repeat(100 * labels.astype(np.uint8), 3).reshape(-1, 1, 1, 3)
    specs = {side: columns.spec("uint8", (1, 1, 3)) for side in ("pre", "post")}
    side = columns.from_array(pixels)
    table = columns.table({"pre": side, "post": side, "label": labels}, specs)
    content = Content(
        "image-pair", {split: [table] for split in ("train", "test")}, tuple("abc"), specs
    )
    monkeypatch.setitem(DATASETS, "many", Importer(lambda *_: content, "many pairs", "none"))
    data = stage("many", str(tmp_path / "many"))
    trial = replace(baseline_of(make_trial(), rounds=3), data=data, fold=None)
    first, second = (next(colour_baseline.train(replace(trial, seed=seed))) for seed in (0, 1))
    assert first == second
