"""What a notebook shows of comparisons, and of the importance of settings."""

import pytest
from made_up import declared

import contrasweep as cs
from contrasweep.planning.planner import plan
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
