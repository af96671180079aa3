"""The scores of single reviews that a trial keeps, and what two models say of one product's."""

import numpy as np
import pandas as pd
import pytest
from made_up import declared
from refusals import refused
from sweeps import record_of

from contrasweep import AblationGrid, Arm, plan
from contrasweep.data import open_dataset, stage
from contrasweep.data.content import Importer, Rejected
from contrasweep.data.importers import DATASETS
from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.storage.record import TrialNotes
from contrasweep.storage.records import encode_items
from contrasweep.trainables.review_helpfulness import case_study as case_study_module
from contrasweep.trainables.review_helpfulness.case_study import case_study
from contrasweep.trainables.review_helpfulness.datasets.reviews import Product, Review, content

TINY = {"word_dim": 8, "min_word_count": 1, "epochs": 1, "device": "cpu"}
TINY |= {"sampler": {"groups": 8, "max_groups": 8, "num_negatives": 3}}


@pytest.mark.slow
def test_a_product_is_shown_with_its_reviews_and_the_scores_of_two_models(runs):
    storage = runs
    name = (
        "contrasweep.trainables.review_helpfulness.datasets:SYNTHETIC_REVIEWS?products=30&roi_dim=8"
    )
    manifest = stage(name, f"{storage}/datasets/planted")
    # An arm may have the name of a column of the scores.
    package = "contrasweep.trainables.review_helpfulness"
    arms = {
        "prh_net": Arm(f"{package}:train", TINY | {"model": {"name": "prh_net", "dim": 8}}),
        "label": Arm(f"{package}:train", TINY | {"model": {"name": "conv_knrm", "filters": 8}}),
        "longest": Arm(f"{package}.longest_first:train"),
    }
    study = AblationGrid("s", arms, "planted", seeds=[0], metric="map", reference="label")
    planned, records = declared(plan(study, storage=storage), storage)
    with refused(SpecError, "these arms have no finished trials on the same data"):
        case_study("s", storage=storage)
    tables = {}
    for trial in planned.trials:
        for report in import_path(trial.trainable, "trainable")(trial):
            for file, path in report.artifacts.items():
                records.store.put_file(records.key(trial.id, f"artifacts/{file}"), path)
                tables[trial.arm] = pd.read_parquet(path)
        records.write_encoded_items(trial.id, encode_items(report.items))
        records.write(
            record_of(
                trial,
                TrialNotes(),
                metrics=report.metrics,
                items=tuple(report.items),
                artifacts=tuple(report.artifacts),
            )
        )
    test = open_dataset(manifest).split("test")
    product = test.column("product_id").to_pylist()[0]
    shown = case_study("s", product, storage=storage).splitlines()
    assert shown[0].startswith(f"product {product} of planted: ")
    assert shown[2].split()[:3] == ["label", "label", "prh_net"], "the reference comes first"
    own = tables["label"].query("product_id == @product").sort_values("score", ascending=False)
    other = tables["prh_net"].set_index("review_id")["score"]
    for line, (_, review) in zip(shown[3:], own.iterrows(), strict=True):
        assert line.split()[:2] == [str(review["label"]), f"{review['score']:.3f}"]
        assert f" {other[review['review_id']]:.3f} (" in line
    furthest = case_study("s", arms=["prh_net", "label"], storage=storage).split()[1]
    items = {trial.arm: records.items(trial.id)["map"] for trial in planned.trials}
    ids = tables["label"]["product_id"].drop_duplicates().tolist()
    assert furthest == ids[int(np.argmax(items["prh_net"] - items["label"]))]
    with refused(SpecError, match=r"a case study compares two arms.*'prh_net'"):
        case_study("s", arms=["prh_net"], storage=storage)
    with refused(SpecError, "arms: the arm's trials keep no reviews.parquet, got 'longest'"):
        case_study("s", arms=["label", "longest"], storage=storage)
    with refused(SpecError, "no test reviews of this product"):
        case_study("s", "none", storage=storage)


def test_ids_of_reviews_may_repeat_among_products(tmp_path, monkeypatch):
    """As in MCR's files, whose reviews are known by their product and their id."""
    products = [Product(name, "", "train") for name in "ab"]
    reviews = [Review("1", name, text=f"on {name}", votes=1) for name in "ab"]
    importer = Importer(lambda *_: content(products, reviews, Rejected()), "two reviews", "none")
    monkeypatch.setitem(DATASETS, "two", importer)
    stage("two", f"{tmp_path}/datasets/two")
    row = {"product_id": "a", "review_id": "1", "label": 0, "score arm": 0.5}
    shown = case_study_module._text(pd.DataFrame([row]), ["arm"], "two", str(tmp_path))
    assert shown.splitlines()[-1].endswith("on a")
