"""Several datasets: ranks and critical differences by hand and by SciPy, and that the report draws them."""

import itertools

import numpy as np
import pandas as pd
import pytest
from reports import report_of
from scipy import stats

from contrasweep.reporting import html_report
from contrasweep.reporting.datasets import datasets_section
from contrasweep.results.datasets import dataset_summary
from contrasweep.statistics.family import holm
from contrasweep.statistics.resampling import iqm
from contrasweep.storage.study_document import StudyDocument

ARMS = {"good": 0.2, "fair": 0.1, "poor": 0.0}


def frame_of(datasets, arms=ARMS):
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
    (clique,) = dataset_summary(frame_of(8, dict.fromkeys("abc", 0.2)), "accuracy", ["data"]).cliques()
    assert set(clique) == {*"abc"}, "no clique within another"


def test_ranks_and_the_p_of_two_arms_are_those_of_autorank():
    """Numbers of autorank 1.3.0, which puts a package `tests` beside ours: `force_mode="nonparametric"` on the means by
    dataset; its p of two arms is of one side."""
    frame = frame_of(8, {"good": 0.025, "same": 0.0, "poor": 0.0})
    summary = dataset_summary(frame, "accuracy", ["data"])
    assert dict(zip(summary.arms, summary.ranks, strict=True)) == {"same": 2.5, "poor": 2.25, "good": 1.25}
    two = dataset_summary(frame[frame["arm"] != "poor"], "accuracy", ["data"])
    assert two.p_value("good", "same") == pytest.approx(2 * 0.0078125)


def test_smaller_can_be_better_and_gaps_leave_the_pair_out():
    frame = frame_of(4)
    summary = dataset_summary(frame, "accuracy", ["data"], "min")
    assert summary.ranks[summary.arms.index("poor")] == 1
    frame["cause"] = None
    frame.loc[frame["data"] == "d3", "status"] = "failed"
    lacks = (frame["arm"] == "good") & (frame["data"] == "d0") & (frame["fold"] == 0)
    for status, cause in (("failed", "host lost"), ("infeasible", None), ("pending", None)):
        frame.loc[lacks, ["status", "cause"]] = [status, cause]
        summary = dataset_summary(frame, "accuracy", ["data"])
        assert summary.datasets == ("d0", "d1", "d2") and {runs.shape for runs in summary.runs.values()} == {(2, 3)}
        assert not any(summary.failed.values())


def test_a_failed_run_is_a_loss_by_the_largest_difference_of_its_dataset():
    frame = frame_of(4)
    frame.loc[(frame["arm"] == "good") & (frame["data"] == "d0") & (frame["fold"] == 0), "status"] = "failed"
    summary = dataset_summary(frame, "accuracy", ["data"])
    there = frame[frame["status"] == "done"].pivot_table(index=["data", "fold"], columns="arm", values="accuracy")
    apart = (there.max(axis=1) - there.min(axis=1))["d0"].max()
    lost = there.loc[("d0", 0)].min() - apart
    assert summary.runs["good"][0, 0] == pytest.approx(lost) and summary.failed == {"good": 1, "fair": 0, "poor": 0}
    common = there.dropna().groupby("data").mean()
    assert summary.means == pytest.approx(common[list(summary.arms)].to_numpy().T)
    frame["accuracy"] -= 0.3
    clipped = dataset_summary(frame, "accuracy", ["data"]).runs["good"][0, 0]
    assert clipped == pytest.approx(max(0.0, lost - 0.3)), "an accuracy is no less than 0"


@pytest.mark.slow
def test_an_arm_that_fails_where_it_would_score_low_is_not_the_best():
    """Two equal arms; `fragile` fails below .5, on one dataset always."""
    rng, rows = np.random.default_rng(1), []
    for d, s, arm in itertools.product(range(6), range(5), ("steady", "fragile")):
        v = rng.normal()
        status = "failed" if arm == "fragile" and v < 0.5 else "done"
        rows.append(
            {"trial_id": f"{arm}{d}{s}", "arm": arm, "data": f"d{d}", "fold": None, "seed": s, "status": status}
        )
        rows[-1]["score"] = v if status == "done" else np.nan
    frame = pd.DataFrame(rows)
    summary = dataset_summary(frame, "score", ["data"])
    ranks = dict(zip(summary.arms, summary.ranks, strict=True))
    assert ranks["steady"] < ranks["fragile"] and summary.p_values == {("steady", "fragile"): 1.0}
    assert summary.failed["fragile"] == (frame["status"] == "failed").sum() and len(summary.datasets) == 6
    middle = {arm: value for arm, (value, *_) in summary.interquartile_means().items()}
    assert middle["fragile"] < middle["steady"]
    assert np.isnan(summary.means).any(axis=0).sum() == 1, "where it failed always there is no mean"


@pytest.mark.slow
def test_failures_never_make_two_arms_differ_that_do_not_without_them():
    rng = np.random.default_rng(3)
    for _ in range(10):
        frame = frame_of(8, {"a": 0.02, "b": 0.0})
        frame["status"] = np.where(rng.random(len(frame)) < 0.3, "failed", "done")
        summary = dataset_summary(frame, "accuracy", ["data"])
        done = frame[frame["status"] == "done"].pivot_table(index=["data", "fold"], columns="arm", values="accuracy")
        common = done.dropna().groupby("data").mean()
        assert summary.p_value("a", "b") >= stats.wilcoxon(common["a"] - common["b"]).pvalue - 1e-12


def test_the_interquartile_mean_of_one_run_a_dataset_has_no_interval():
    frame = frame_of(4)
    frame = frame[frame["fold"] == 0]
    value, low, high = dataset_summary(frame, "accuracy", ["data"]).interquartile_means()["good"]
    assert np.isfinite(value) and np.isnan(low) and np.isnan(high)
    document = StudyDocument("many", "accuracy", arms=tuple(ARMS), axes=("data",))
    rows = datasets_section(report_of(frame, document))["rows"]
    assert all("[" not in row[-1] and row[-1] for row in rows[1:])


@pytest.mark.slow
def test_interquartile_means_are_over_runs_and_datasets():
    summary = dataset_summary(frame_of(4), "accuracy", ["data"])
    value, low, high = summary.interquartile_means()["good"]
    assert value == iqm(summary.runs["good"]) and low < value < high


def test_two_datasets_are_no_summary():
    assert dataset_summary(frame_of(2), "accuracy", ["data"]) is None
    assert dataset_summary(frame_of(4).drop(columns="data"), "accuracy", []) is None


@pytest.mark.slow
def test_the_report_draws_critical_differences():
    document = StudyDocument("many", "accuracy", arms=tuple(ARMS), axes=("data",), folds=3)
    page = html_report(report_of(frame_of(4), document))
    section = page[page.index('<section id="datasets"') : page.index('<section id="slices"')]
    assert "Critical differences" in section and "1.00" in section
    assert "4 datasets reach no p below 0.12, so no two arms can differ" in section and "Exploratory" in section
    assert "reach no p below" not in datasets_section(report_of(frame_of(8), document))["figures"][0].caption
    assert datasets_section(report_of(frame_of(2), document)) == {}
    frame = frame_of(4)
    frame.loc[(frame["arm"] == "good") & (frame["data"] == "d0"), "status"] = "failed"
    shown = datasets_section(report_of(frame, document))
    assert "Failed runs count as losses (good 3)." in shown["figures"][0].caption
    assert {row[0]: row[1] for row in shown["rows"][1:]} == dict.fromkeys(ARMS, "–")
