"""Several datasets: ranks and critical differences by hand and by SciPy, and that the report draws them."""

import itertools

import numpy as np
import pandas as pd
import pytest
from reports import report_of
from scipy import stats

from contrasweep.report import html_report
from contrasweep.report.datasets import datasets_section
from contrasweep.results.datasets import dataset_summary
from contrasweep.statistics.family import holm
from contrasweep.statistics.resampling import iqm
from contrasweep.storage.study_document import StudyDocument

ARMS = {"good": 0.2, "fair": 0.1, "poor": 0.0}


def frame_of(datasets: int, arms=ARMS) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            {"trial_id": f"{a}{d}{f}", "arm": a, "data": f"d{d}", "fold": f, "seed": 0, "status": "done"}
            | {"accuracy": 0.3 + 0.02 * d + gain + rng.normal(0, 0.02), "seconds": 1.0, "gpu_memory_gib": 0.0}
            for (a, gain), d, f in itertools.product(arms.items(), range(datasets), range(3))
        ]
    )


def test_ranks_and_p_values_are_those_of_the_datasets_means():
    frame = frame_of(8, {"good": 0.2, "same": 0.2, "poor": 0.0})
    summary = dataset_summary(frame, "accuracy", ["data"])
    means = frame.pivot_table(index="data", columns="arm", values="accuracy")
    assert summary.ranks[summary.arms.index("poor")] == 3
    ranks = (-means).rank(axis=1).mean()
    assert dict(zip(summary.arms, summary.ranks, strict=True)) == pytest.approx(dict(ranks))
    pairs = list(summary.p_values)
    raw = [stats.wilcoxon(means[a] - means[b]).pvalue for a, b in pairs]
    assert list(summary.p_values.values()) == pytest.approx(list(holm(raw)))
    assert [set(clique) for clique in summary.cliques()] == [{"good", "same"}]
    assert summary.p_value("good", "poor") == summary.p_value("poor", "good") < 0.05


def test_smaller_can_be_better_and_gaps_leave_the_pair_out():
    frame = frame_of(4)
    summary = dataset_summary(frame, "accuracy", ["data"], "min")
    assert summary.ranks[summary.arms.index("poor")] == 1
    frame.loc[frame["data"] == "d3", "status"] = "failed"
    frame.loc[(frame["arm"] == "good") & (frame["data"] == "d0") & (frame["fold"] == 0), "status"] = "failed"
    summary = dataset_summary(frame, "accuracy", ["data"])
    assert summary.datasets == ("d0", "d1", "d2") and {runs.shape for runs in summary.runs.values()} == {(2, 3)}


@pytest.mark.slow
def test_interquartile_means_and_profiles_are_over_runs_and_datasets():
    summary = dataset_summary(frame_of(4), "accuracy", ["data"])
    value, low, high = summary.interquartile_means()["good"]
    assert value == iqm(summary.runs["good"]) and low < value < high
    at, shares = summary.profiles()
    assert (shares["good"] >= shares["poor"]).all() and shares["poor"][-1] == 0
    assert shares["good"][10] == (summary.runs["good"] > at[10]).mean()


def test_two_datasets_are_no_summary():
    assert dataset_summary(frame_of(2), "accuracy", ["data"]) is None
    assert dataset_summary(frame_of(4).drop(columns="data"), "accuracy", []) is None


@pytest.mark.slow
def test_the_report_draws_critical_differences():
    document = StudyDocument("many", "accuracy", arms=tuple(ARMS), axes=("data",), folds=3)
    page = html_report(report_of(frame_of(4), document))
    section = page[page.index('<section id="datasets"') : page.index('<section id="slices"')]
    assert "Critical differences" in section and "Performance profiles" in section and "1.00" in section
    assert "4 datasets reach no p below 0.12, so no two arms can differ" in section and "Exploratory" in section
    assert "reach no p below" not in datasets_section(report_of(frame_of(8), document))["figures"][0].caption
    assert datasets_section(report_of(frame_of(2), document)) == {}
