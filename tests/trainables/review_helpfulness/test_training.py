"""The trainable from a staged dataset to its last report, on the synthetic set with a planted signal."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from to_the_bit import trained_and_resumed

from contrasweep.data import open_dataset, resolve, stage
from contrasweep.errors import DataError, SpecError
from contrasweep.trainables.review_helpfulness import Settings, train
from contrasweep.trainables.review_helpfulness.corpora import (
    Products,
    Reviews,
    hold_out,
    load,
    prepare,
)
from contrasweep.trainables.review_helpfulness.metrics import per_product
from contrasweep.trial import Trial

TINY: dict[str, Any] = {
    "word_dim": 8,
    "min_word_count": 1,
    "epochs": 3,
    "sampler": {"groups": 8, "max_groups": 24, "num_negatives": 3},
    "device": "cpu",
    "learning_rate": 5e-3,
}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRASWEEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return stage(
        "contrasweep.trainables.review_helpfulness.datasets:SYNTHETIC_REVIEWS?products=30&roi_dim=8",
        str(tmp_path_factory.mktemp("planted")),
    )


def trial(data, fold=None, seed=0, **config):
    return Trial(
        "study",
        "arm",
        "contrasweep.trainables.review_helpfulness:train",
        TINY | config,
        data,
        fold,
        seed,
    )


@pytest.mark.slow
def test_reports_and_items(planted):
    reports = []
    for report in train(trial(planted, model={"name": "prh_net", "dim": 8})):
        reports.append(report)
        if report.artifacts:
            scored = pd.read_parquet(report.artifacts["reviews.parquet"])
    assert [report.step for report in reports] == [1, 2, 3]
    assert all(
        {"loss", "hinge_loss", "grad_norm", "learning_rate", "dev_map"} <= set(report.metrics)
        for report in reports
    )
    assert not any(
        {"map", "random_map"} & set(report.metrics) for report in reports[:-1]
    )  # the test part is read once
    last = reports[-1]
    test = open_dataset(planted).split("test")
    products = len(set(test.column("product_id").to_pylist()))
    for name in ("map", "ndcg@3", "ndcg@5", "mrr", "random_map"):
        assert len(last.items[name]) == products == last.metrics["test_products"]
        assert last.metrics[name] == pytest.approx(np.mean(last.items[name]))
    assert scored["review_id"].tolist() == test.column("review_id").to_pylist()
    names = {"labels": "label", "scores": "score", "products": "product_id"}
    values = per_product(**{name: scored[column] for name, column in names.items()}, threshold=1)
    assert values.mean()["map"] == last.metrics["map"]


@pytest.mark.slow
# With seed 4 the best epoch of sse_cross is the same on all processors; with seed 0 it is not.
@pytest.mark.parametrize(("model", "seed"), [("proposed", 0), ("sse_cross", 4)])
def test_resumed_after_any_report_it_gives_the_same_to_the_bit(model, seed, planted, tmp_path):
    """Dropout, swaps, the learning rate's course and the best epoch's weights all survive."""
    small = {"depth": 1, "region_layers": 1} if model == "proposed" else {}
    config = {"model": {"name": model, "dim": 8, **small}, "plateau": {"patience": 0}}
    one = trial(planted, seed=seed, **config)
    assert len(trained_and_resumed(train, one, tmp_path, steps=(1, 2, 3))) == 3


@pytest.mark.slow
def test_training_stops_when_nothing_gets_better(planted):
    config = {
        "model": {"name": "prh_net", "dim": 4},
        "learning_rate": 1e-9,
        "patience": 2,
        "epochs": 20,
    }
    reports = list(train(trial(planted, **config)))
    assert len(reports) == 3 and reports[-1].metrics["best_epoch"] == 1
    assert "map" in reports[-1].metrics


def test_hidden_modalities(planted):
    base = load(trial(planted), Settings(**TINY)).corpora["test"]
    blind = load(trial(planted), Settings(**TINY, use_images=False)).corpora["test"]
    deaf = load(trial(planted), Settings(**TINY, use_text=False)).corpora["test"]
    assert base.batch(np.arange(5)).has_image_r.all()
    assert not blind.batch(np.arange(5)).has_image_r.any()
    assert (
        deaf.batch(np.arange(5)).text_r.tolist()
        == [[1]] * 5
        == deaf.batch(np.arange(5)).text_p.tolist()
    )
    assert np.array_equal(base.label, blind.label) and np.array_equal(base.label, deaf.label)


def test_folds_keep_products_apart(planted):
    dealt = resolve(planted.uri, folds=5, storage="unused")
    prepared = load(trial(dealt, fold=1), Settings(**TINY))
    owners = [set(prepared.corpora[part].product.tolist()) for part in ("train", "dev", "test")]
    assert all(owners) and not owners[0] & owners[1] and not owners[0] & owners[2]
    assert not owners[1] & owners[2]


@pytest.mark.slow
def test_distances_of_the_test_part(planted):
    model = {"name": "proposed", "dim": 8, "depth": 1, "region_layers": 1}
    config = {"model": model, "distances": True, "epochs": 1}
    last = list(train(trial(planted, **config)))[-1]
    distances = {name for name in last.metrics if name.startswith(("cs_", "l2_"))}
    assert len(distances) == 2 * 3 * 2 and all(last.metrics[name] >= 0 for name in distances)
    with refused(DataError, "images on both sides"):
        list(train(trial(planted, **config, use_images=False)))


def test_a_plan_refuses_distances_without_images(planted):
    """The distances of the last report would end a trial after all of its epochs."""
    for data, use_images in ((planted, False), (dataclasses.replace(planted, columns={}), True)):
        with refused(SpecError, "distances between text and images need images"):
            Settings(distances=True, use_images=use_images).resolve(data)
    Settings(distances=True).resolve(planted)


def test_a_plan_refuses_an_own_loss_that_is_none_of_groups(planted):
    with refused(
        SpecError, "loss: a loss of groups gives one number with a gradient, got 'NoneType'"
    ):
        Settings(loss="builtins:print").resolve(planted)


def test_a_review_of_which_nothing_is_left_is_dropped_and_a_product_is_not():
    nothing = np.zeros((0, 1), dtype=np.float16)
    products = Products(["a", "b"], ["x", "y"], ["", "shoe"], ["x", "shoe y"], [nothing] * 2)
    train_part = Reviews(
        np.array([0, 1, 1]),
        ["good good", "good", "unseen"],
        np.array([4, 2, 0]),
        [nothing] * 3,
        ["a", "b", "c"],
    )
    other = Reviews(
        np.array([0, 1]), ["unheard of", "good"], np.array([1, 0]), [nothing] * 2, ["d", "e"]
    )
    prepared = prepare(
        products,
        {"train": train_part, "test": other},
        1,
        Settings(min_word_count=2, word_dim=4),
        (0,),
    )
    assert dict(prepared.dropped) == {"train": 1, "test": 1}
    assert [tokens.tolist() for tokens in prepared.corpora["test"].review_tokens] == [[2]]
    assert prepared.corpora["train"].product_tokens[0].tolist() == [1]
    assert prepared.inputs.categories == 2


def test_held_out_products_do_not_depend_on_the_order_of_rows():
    nothing = np.zeros((0, 1), dtype=np.float16)
    names = [f"p{i}" for i in range(10)]
    products = Products(names, names, names, names, [nothing] * 10)
    rows = Reviews(
        np.repeat(np.arange(10), 2),
        ["x"] * 20,
        np.zeros(20, dtype=np.int64),
        [nothing] * 20,
        list(map(str, range(20))),
    )
    train_part, dev = hold_out(rows, products)
    backward = hold_out(rows.take(np.arange(20)[::-1]), products)[1]
    assert len(set(dev.product)) == 2 and set(dev.product) == set(backward.product)
    assert not set(train_part.product) & set(dev.product)


@pytest.mark.slow
def test_models_that_see_images_beat_those_that_only_read(storage):
    """Half of the helpfulness shows in the words, half in the regions."""
    data = stage(
        "contrasweep.trainables.review_helpfulness.datasets:SYNTHETIC_REVIEWS?products=60",
        storage,
    )
    small = {"epochs": 3, "sampler": {**TINY["sampler"], "max_groups": 120}, "word_dim": 16}
    results = {}
    for model in ("eg_cnn", "prh_net", "dr_net", "sse_cross"):
        width = {"filters": 16} if model == "eg_cnn" else {"dim": 16}
        config = {"model": {"name": model, "dropout": 0.1, **width}, **small}
        results[model] = list(train(trial(data, **config)))[-1].metrics
    reading = max(results[model]["map"] for model in ("eg_cnn", "prh_net"))
    seeing = min(results[model]["map"] for model in ("dr_net", "sse_cross"))
    assert results["prh_net"]["random_map"] + 0.03 < reading < seeing - 0.03
