"""What a notebook shows of comparisons, and of the importance of settings."""

import numpy as np
import pytest
from made_up import declared
from sweeps import ARMS, finished, sweep

import contrasweep as cs
from contrasweep.planning.planner import plan
from contrasweep.reporting import render
from contrasweep.storage.record import Record, Status

VALUES = {"a": 0.6, "b": 0.7}


@pytest.fixture
def grid(tmp_path, storage):
    """Two arms, two values of an axis, three folds, reports of three steps; values are made up."""
    arms = {arm: cs.Arm("toy:train") for arm in VALUES}
    study = cs.AblationGrid("g", arms, "digits-lt", axes={"lr": [0.1, 1.0]}, folds=3)
    planned, records = declared(plan(study, storage=storage), tmp_path)
    for trial in planned.trials:
        value = VALUES[trial.arm] + 0.1 * trial.config["lr"] + 0.01 * trial.fold
        steps = [
            {"step": step, "time": float(step), "accuracy": value - 0.1 * (3 - step)}
            for step in (1, 2, 3)
        ]
        records.write_metrics(trial.id, steps)
        records.write(Record.of(trial, status=Status.DONE, metrics={"accuracy": value}, step=3))
    return cs.load("g", storage=storage)


def test_importance_says_what_noise_would_show_in_text_frame_json_and_figure(tmp_path):
    from contrasweep.cli.reports import summary

    results, _ = finished(sweep(), tmp_path)
    frame = results.importance()
    assert list(frame["arm"]) == list(ARMS) and set(frame["configurations"]) == {5}
    assert ((frame["share"] > frame["noise"]) == (frame["verdict"] == "matters")).all()
    text = render(results, "text").decode()
    assert all(
        f"{arm}" in text and verdict in text
        for arm, verdict in zip(frame["arm"], frame["verdict"], strict=True)
    )
    assert summary(results)["importance"][0]["noise"] == frame["noise"].iloc[0]
    page = render(results, "html").decode()
    assert all(verdict in page for verdict in frame["verdict"])


def test_three_configurations_are_too_few_in_words(tmp_path):
    results, _ = finished(sweep(trials_per_arm=3), tmp_path)
    assert set(results.importance()["verdict"]) == {"too few configurations"}
    assert np.isnan(results.importance()["share"]).all()
    assert "too few configurations" in render(results, "text").decode()
    assert "too few configurations" in render(results, "html").decode()


def test_comparisons_show_themselves_in_a_line_and_as_html(grid):
    versus = grid.versus("a", "b")
    comparison = grid.compare("a", "b")
    for shown in (versus, comparison):
        assert len(repr(shown)) < 250 and "\n" not in repr(shown)
    assert f"{comparison.difference:+.4g}"[:6] in repr(comparison)
    assert versus._repr_html_().count("<tr>") == 1 + len(versus.pairs)
    assert comparison.verdict in comparison._repr_html_()


def test_results_show_their_counts_in_a_line_and_their_table_as_html(grid):
    assert repr(grid) == "Results(g: 12 done)"
    assert grid._repr_html_() == grid.table()._repr_html_() == grid.table().to_html()
    versus = grid.versus("a", "b")
    assert str(versus) == versus.to_text()
