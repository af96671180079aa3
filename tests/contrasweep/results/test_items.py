"""Scores of test items: which are drawn from, and that none is read that is not needed."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contrasweep.results.items import item_values
from contrasweep.storage.record import Status


@pytest.mark.parametrize(
    ("scores", "groups", "other", "sizes"),
    [
        ([0, 1], {}, {}, [1, 1]),
        ([0.5], {}, {}, None),
        ([0, np.nan], {}, {}, None),
        ([], {}, {}, None),
        ([0, 1, 1], {"x/group": [*"pqp"]}, {"x/group": [*"pqp"]}, [2, 1]),
        ([0, 1, 1], {"x/group": [*"pqp"]}, {}, [2, 1]),
        ([0, 1, 1], {"x/group": [*"pqp"]}, {"x/group": [*"qpp"]}, None),
        ([0, 1], {"x/group": ["p", ""], "group": [*"pp"]}, {}, [1, 1]),
        ([0, 1], {"group": [*"pp"]}, {}, None),
        ([0, 1], {"group": [*"ppp"]}, {}, [1, 1]),
    ],
)
def test_items_are_means_of_groups_which_all_trials_of_a_dataset_share(
    scores, groups, other, sizes
):
    """`c` failed on another dataset."""
    scored = {
        trial: {"x/knn": np.array(scores, float), **of_items}
        for trial, of_items in {"a": groups, "b": other, "c": {}}.items()
    }
    frame = pd.DataFrame({"trial_id": [*"abc"], "status": [Status.DONE] * 2 + [Status.FAILED]})
    records = {
        trial: SimpleNamespace(
            metrics={"x/knn": np.mean(scores or 0)},
            items=["x/knn"],
            data=SimpleNamespace(digest=part),
        )
        for trial, part in zip("abc", "dde", strict=True)
    }
    found = item_values(scored.get, frame, records, "x/knn")
    assert (found and list(found.sizes["d"])) == sizes
    if found:
        means = [scores[0], scores[1]] if len(scores) == 2 else [0.5, 1]
        assert {trial: list(mean) for trial, mean in found.means.items()} == {
            "a": means,
            "b": means,
        }
        assert found.parts == {"a": "d", "b": "d", "c": "e"}


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
