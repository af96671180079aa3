"""Figures of a search draw what was declared and measured: scales, categories, and no score of a pruned trial."""

import pandas as pd
import pytest

from contrasweep.reporting.data import TrialData
from contrasweep.reporting.figures import Bars
from contrasweep.reporting.searching import importance_figures, slice_figures
from contrasweep.storage.study_document import StudyDocument

SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "dropout": {"type": "float", "low": 0.0, "high": 0.6},
    "act": {"type": "choice", "options": ["relu", "gelu"]},
}
DOCUMENT = StudyDocument("s", "score", arms=("a",), spec={"arms": {"a": {"space": SPACE}}})
SEARCH = pd.DataFrame(
    {
        "trial_id": ["1", "2", "3", "4"],
        "arm": "a",
        "value": [0.8, 0.7, 0.2, None],
        "status": ["done", "done", "pruned", "failed"],
        "lr": [0.001, 0.1, 0.01, 0.02],
        "dropout": [0.001, 0.5, 0.1, 0.2],  # it spans decades and is declared linear
        "act": ["relu", "gelu", "relu", "gelu"],
        "features": [0.5, "sqrt", 0.5, "sqrt"],
        "clip": pd.Series([None, 1.0, None, 1.0], dtype=object),
        "bias": [True, False, True, False],
        "depth": [3.0, None, 3.0, None],  # of some configurations, with one value
    }
)


def slices():
    figures = slice_figures(TrialData(SEARCH, DOCUMENT, search=SEARCH))
    assert all(
        "2 that were pruned or have no score are left out" in figure.caption for figure in figures
    )
    return {figure.title.removeprefix("Slice: "): figure.chart for figure in figures}


def test_the_score_at_which_a_trial_was_pruned_is_no_point_of_a_slice():
    for chart in slices().values():
        assert list(chart.dots[0].y) == [0.8, 0.7]


def test_a_scale_is_logarithmic_where_the_space_is():
    assert {name: chart.log_x for name, chart in slices().items()} == {
        "lr": True,
        "dropout": False,
        "act": False,
        "features": False,
        "clip": False,
        "bias": False,
    }


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("act", ["relu", "gelu"]),
        ("features", ["0.5", "sqrt"]),
        ("clip", ["–", "1"]),
        ("bias", ["True", "False"]),
    ],
)
def test_options_stand_side_by_side_and_lose_no_point(name, options):
    chart = slices()[name]
    assert list(chart.x_names) == options
    assert [round(x) for x in chart.dots[0].x] == [0, 1]
    assert f"{name} {options[0]}:" in chart.dots[0].titles[0]


def test_importance_is_sorted_within_each_arm():
    importance = pd.DataFrame(
        {
            "arm": ["a", "a"],
            "setting": ["lr", "act"],
            "share": [0.2, 0.8],
            "noise": 0.1,
            "configurations": 30,
            "verdict": "matters",
        }
    )
    (figure,) = importance_figures(
        TrialData(SEARCH, DOCUMENT, search=SEARCH, importance=importance)
    )
    assert isinstance(figure.chart, Bars)
    assert list(figure.chart.names) == ["act", "lr"]
