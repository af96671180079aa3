"""What a study says, from its records to every form of its table: one family, gaps, scopes, marks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up import declared
from numpy.random import default_rng

from contrasweep import AblationGrid, Arm, load
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.planning.grid import make_plan
from contrasweep.planning.power import study_power
from contrasweep.reporting import render
from contrasweep.results.building import DecisionRule, build_table
from contrasweep.results.requirement import Requirement
from contrasweep.storage.record import Cause, Record, Status
from contrasweep.storage.records import encode_items

SHARDS = {"train": (Shard("a", 100, 1, "aa"),), "test": (Shard("b", 40, 1, "bb"),)}
DATA = Manifest("d", "/nowhere", "image", SHARDS, folds=Folds(5))


def train(trial, resume=None):
    """By its name, a trial's id and noise."""
    yield


def study(tmp_path, value, *, items=None, status=lambda trial: Status.DONE, arms="ab", **fields):
    """A study whose trials have ended with `value(trial)`, as `load` reads it."""
    grid = AblationGrid("s", {arm: Arm(train) for arm in arms}, "d", **fields)
    plan, records = declared(make_plan(grid, lambda name: DATA), tmp_path)
    for trial in plan.trials:
        scores = {} if items is None else {"accuracy": items(trial)}
        if scores:
            records.write_encoded_items(trial.id, encode_items(scores))
        metrics = {"accuracy": float(np.mean(scores["accuracy"])) if scores else value(trial)}
        ended = status(trial)
        records.write(
            Record.of(
                trial,
                status=ended,
                metrics=metrics if ended == Status.DONE else {},
                items=tuple(scores),
            )
        )
    return load("s", storage=str(tmp_path))


def noise(trial, scale=0.01):
    return default_rng(int(trial.id[:8], 16)).normal(0, scale)


def frame(values, seeds=12):
    """One row a trial of arms -> values by seed; NaN is not finite."""
    rows = [
        {
            "trial_id": f"{arm}{s}",
            "arm": arm,
            "fold": None,
            "seed": s,
            "status": "done",
            "accuracy": by_seed[s],
        }
        for arm, by_seed in values.items()
        for s in range(seeds)
    ]
    return pd.DataFrame(rows)


def table(values, **rule):
    trials = values if isinstance(values, pd.DataFrame) else frame(values)
    layout = {"rows": ["arm"], "columns": [], "axes": [], "metric": "accuracy"}
    return build_table(trials, rule=DecisionRule(**{"question": "overall"} | rule), **layout)


def test_pairs_are_of_one_seed_in_whatever_order_the_trials_stand():
    trials = frame({"a": np.arange(12.0), "b": np.arange(12.0) + 0.5})
    mixed = pd.concat(
        [trials[trials["arm"] == "a"], trials[trials["arm"] == "b"][::-1].iloc[2:]],
        ignore_index=True,
    )
    (pair,) = table(mixed).pairs
    assert pair.comparison.n == 10
    assert abs(pair.comparison.difference) == 0.5 and pair.comparison.low == pair.comparison.high


def test_a_metric_that_is_called_weight_weighs_nothing():
    values = {"a": np.arange(12.0), "b": np.arange(12.0) + 0.5}
    trials = frame(values).assign(weight=np.arange(24.0))
    assert [cell.mean for cell in table(trials).cells.values()] == [5.5, 6.0]


@pytest.mark.parametrize(
    "axis", ["lost", "missing", "collapsed", "weight", "n", "mean", "best", "a", "self"]
)
def test_an_axis_with_the_name_of_a_column_keeps_its_cells_and_its_labels(tmp_path, axis):
    value = lambda t: 0.7 + 0.1 * (t.config[axis] == 2) + noise(t)  # noqa: E731
    results = study(tmp_path, value, axes={axis: [1, 2]}, seeds=list(range(8)))
    assert [cell.n for cell in results.table().cells.values()] == [8, 8, 8, 8]
    for made, labels in (
        (results.table().to_frame(), ["1", "1", "2", "2"]),
        (results.table().comparisons(), ["1", "2"]),
        (results.versus("a", "b").to_frame()[1:], ["1", "2"]),
        (results.best(), [2, 2]),
    ):
        assert list(made[f"axis.{axis}" if f"axis.{axis}" in made else axis]) == labels


@pytest.mark.parametrize(
    ("status", "cause", "verdict"),
    [
        (Status.FAILED, Cause.METHOD, "undecided"),
        (Status.FAILED, Cause.TIME_LIMIT, "undecided"),
        (Status.FAILED, Cause.HOST_LOST, "better"),
        (Status.FAILED, Cause.HOST_MEMORY, "better"),
        (Status.FAILED, Cause.SIGNAL, "better"),
        (Status.FAILED, Cause.STORAGE, "better"),
        (Status.INFEASIBLE, None, "better"),
    ],
)
def test_one_trial_of_eight_that_ended_is_a_loss_if_the_method_ended_it_and_else_is_missing(
    tmp_path, status, cause, verdict
):
    results = study(
        tmp_path, lambda t: 0.8 + 0.03 * (t.arm == "b") + noise(t), folds=None, seeds=list(range(8))
    )
    [ended] = [r for r in results.trial_records.values() if (r.arm, r.seed) == ("b", 3)]
    results.records.write(replace(ended, status=status, cause=cause, metrics={}))
    results = load("s", storage=str(tmp_path))
    comparison = results.compare("b", "a")
    text = render(results, "text").decode()
    assert comparison.verdict == verdict
    assert (comparison.gaps.missing_a == 1) == (verdict == "better")
    assert (verdict == "better") == ("is missing for a cause outside the method" in text)
    assert ("b is missing in 1 of 8" in text) != ("b failed in 1 of 8" in text)
    [row] = results.to_frame().query("arm == 'b' and seed == 3").to_dict("records")
    assert row["cause"] == cause if cause else pd.isna(row["cause"])


def test_seeds_on_one_split_say_so_and_items_of_it_speak_of_new_ones(tmp_path):
    seeds = {"folds": None, "seeds": list(range(8))}
    alone = study(
        tmp_path / "seeds", lambda t: 0.8 + 0.02 * (t.arm == "b") + noise(t, 0.001), **seeds
    )
    assert "accuracy, on this split (sign-flip test over 8 seeds" in " ".join(
        alone.table().to_text().split()
    )
    assert alone.compare("b", "a").verdict == "better"

    def items(trial):  # b is better on these items; a third of them turn the other way
        sign = np.where(default_rng(0).uniform(size=40) < 0.45, -1, 1)
        return 0.5 + 0.1 * sign * (trial.arm == "b") + noise(trial, 0.001)

    crossed = study(tmp_path / "items", None, items=items, **seeds)
    said = " ".join(crossed.table().to_text().split())
    assert "on new items like these (t-test over 8 seeds x 40 items" in said
    assert crossed.compare("b", "a").verdict == "undecided"
    assert alone.compare("b", "a").scope == "on this split"


def test_an_arm_that_fails_in_half_of_its_seeds_is_not_better_and_the_difference_says_its_pairs():
    rng = default_rng(0)
    a = np.where(np.arange(12) < 6, 0.85, np.nan)
    b = rng.normal(0.8, 0.01, 12)
    built = table({"a": a, "b": b})
    text = built.to_text(100)
    assert "a against b is undecided" in text and "a failed in 6 of 12" in " ".join(text.split())
    cells = {row[0]: cell for (row, _), cell in built.cells.items()}
    assert cells["b"].mean == pytest.approx(b.mean()) and (cells["a"].n, cells["b"].n) == (6, 12)
    assert not cells["a"].best and not cells["b"].best
    assert "over 6 pairs; a failed in 6 of 12" in " ".join(text.split())
    assert "over 6 seeds, but 12 seeds (b)" in " ".join(text.split())


def test_every_arm_that_is_not_worse_than_the_best_is_marked_and_none_where_nothing_is_decided():
    rng = default_rng(1)
    base = rng.normal(0.8, 0.01, 12)
    built = table({"a": base + 0.1, "b": base + 0.1 + rng.normal(0, 0.003, 12), "c": base})
    assert {row[0]: (cell.best, cell.mark) for (row, _), cell in built.cells.items()} == {
        "a": (True, ""),
        "b": (True, ""),
        "c": (False, "worse"),
    }
    assert "* not shown to be worse than the best arm" in built.to_text()
    equal = table({arm: base + rng.normal(0, 0.003, 12) for arm in "abc"})
    assert not any(cell.best for cell in equal.cells.values())
    assert "nothing is marked" in equal.to_text()


@pytest.mark.slow
def test_the_plan_and_the_table_have_one_family(tmp_path):
    fields = {"axes": {"x": list(range(6))}, "folds": None, "seeds": list(range(8))}
    cells = study(
        tmp_path,
        lambda t: 0.5 + 0.2 * (t.arm == "b") + noise(t),
        arms="abc",
        question="cells",
        **fields,
    )
    plan = study_power(
        AblationGrid("s", {a: Arm(train) for a in "abc"}, "d", question="cells", **fields)
    )
    sizes = {pair.comparison.family.size for pair in cells.table().pairs}
    assert sizes == {18} == {plan.family.size}
    decided = [pair for pair in cells.table().pairs if pair.decided]
    assert len(decided) == 12, (
        "b differs from a and c by 20 sd in each cell, which the exact test can never say"
    )


@pytest.mark.parametrize(
    ("wanted", "low", "high", "matters", "outcome"),
    [
        ("better", 0.1, 0.3, 0.2, "holds"),
        ("better", -0.1, 0.3, 0.2, "open"),
        ("better", -0.1, 0.1, 0.2, "fails"),
        ("better", -0.1, 0.1, None, "open"),
        ("better", -0.2, 0.0, None, "fails"),
        ("better", None, 0.3, None, "open"),
        ("not-worse:0.1", -0.05, None, None, "holds"),
        ("not-worse:0.1", -0.2, 0.3, None, "open"),
        ("not-worse:0.1", -0.3, -0.2, None, "fails"),
        ("equivalent:0.1", -0.05, 0.05, None, "holds"),
        ("equivalent:0.1", -0.05, 0.2, None, "open"),
        ("equivalent:0.1", 0.2, 0.3, None, "fails"),
        ("equivalent:0.1", -0.3, -0.2, None, "fails"),
    ],
)
def test_what_is_required_of_an_interval(wanted, low, high, matters, outcome):
    requirement = Requirement.parse(wanted)
    assert requirement.outcome(low, high, "max", matters) == outcome
    low, high = (None if end is None else -end for end in (high, low))
    assert requirement.outcome(low, high, "min", matters) == outcome
