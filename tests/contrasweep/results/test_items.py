"""Scores of test items: which are drawn from, and that none is read that is not needed."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd

from contrasweep.results.items import item_values
from contrasweep.storage.record import Status


def test_scores_of_a_single_item_or_group_are_no_items_to_draw():
    frame = pd.DataFrame({"trial_id": ["a"], "status": [Status.DONE]})
    one = SimpleNamespace(
        metrics={"accuracy": 0.5}, items=("accuracy",), data=SimpleNamespace(digest="d")
    )
    for scores, found in (([0.5], None), ([0.0, 1.0], [1.0, 1.0])):
        values = item_values(
            lambda _, s=scores: {"accuracy": np.array(s)}, frame, {"a": one}, "accuracy"
        )
        assert (values and list(values.sizes["d"])) == found
    records = {i: SimpleNamespace(**vars(one) | {"data": SimpleNamespace(digest=i)}) for i in "ab"}
    scores = {"a": {"accuracy": np.array([0.0, 1.0])}, "b": {"accuracy": np.array([0.5])}}
    frame = pd.DataFrame({"trial_id": list("ab"), "status": [Status.DONE] * 2})
    assert item_values(scores.get, frame, records, "accuracy") is None, (
        "of one of two test parts there is one item"
    )


def test_where_the_first_trial_says_that_none_is_wanted_no_other_is_read():
    """Its metric is not the mean of its items' scores."""
    frame = pd.DataFrame({"trial_id": list("abc"), "status": [Status.DONE] * 3})
    asked = []

    def read(trial_id):
        asked.append(trial_id)
        return {"accuracy": np.array([0.0, 1.0])}

    for reported, wanted in ((0.9, ["a"]), (0.5, ["a", "b", "c"])):
        asked.clear()
        data = SimpleNamespace(digest="d")
        one = SimpleNamespace(metrics={"accuracy": reported}, items=("accuracy",), data=data)
        item_values(cache(read), frame, dict.fromkeys("abc", one), "accuracy")
        assert sorted(asked) == wanted
