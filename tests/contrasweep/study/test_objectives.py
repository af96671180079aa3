"""Several objectives and constraints: fronts, bounds, what searchers make of them, and what a study shows and
confirms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import drive, record_of, sweep

from contrasweep import Float, SpecError
from contrasweep.canonical import dumps
from contrasweep.planning.planner import plan
from contrasweep.reporting import render
from contrasweep.results.results import Results
from contrasweep.results.search import front
from contrasweep.running.prepare import study_document
from contrasweep.storage.planned import write_planned
from contrasweep.storage.records import StudyRecords
from contrasweep.study.objectives import value_of, violation
from contrasweep.tuning.searchers import build

SPACE = {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}
SEVERAL = ["nsga2", "tpe", pytest.param("gp", marks=pytest.mark.slow), "optuna.samplers:NSGAIIISampler"]
pytestmark = pytest.mark.filterwarnings("ignore")


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_front_is_what_a_loop_finds(rows):
    """Maximise the first, minimise the second."""
    values = np.array([row[:2] for row in rows], dtype=float).reshape(-1, 2)
    feasible = np.array([row[2] for row in rows], dtype=bool)

    def dominated(a):
        return any(ok and b[0] >= a[0] and b[1] <= a[1] and (b[0] > a[0] or b[1] < a[1]) for *b, ok in rows)

    assert front(values, ["max", "min"], feasible).tolist() == [row[2] and not dominated(row) for row in rows]


def test_a_constraint_is_a_bound_on_one_side():
    assert violation("seconds", "<= 2.0", 3.5) == 1.5
    assert violation("seconds", " >=-1e1", -12) == 2
    for text in ("< 2", "2.0", "<= two", ">= "):
        with pytest.raises(SpecError, match=r"constraints.seconds: a constraint is <= or >= and a number"):
            violation("seconds", text, 0.0)


def last_asked(name, asks, constrained=False):
    """The last third of what is asked for the objectives x and 1 - x + y, both to be small: on the front y is 0.
    Where it is `constrained`, x <= 0.3 has to hold."""
    searcher = build(name, SPACE, seed=1, mode=["min", "min"], budget=asks, constraints=int(constrained))
    collected = []
    for _ in range(asks):
        config = searcher.ask()
        collected.append(config)
        searcher.tell(
            config, [config["x"], 1 - config["x"] + config["y"]], violations=[config["x"] - 0.3] if constrained else []
        )
    return collected[-asks // 3 :]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "asks"), [("nsga2", 200), ("tpe", 40), pytest.param("gp", 16, marks=pytest.mark.slow)]
)
def test_what_learns_comes_nearer_to_the_front_than_random(name, asks):
    """At random, y is 0.5 in the mean."""
    assert np.mean([config["y"] for config in last_asked(name, asks)]) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "asks"), [("nsga2", 100), ("tpe", 40), pytest.param("gp", 16, marks=pytest.mark.slow)]
)
def test_what_learns_keeps_to_the_constraint_more_than_random(name, asks):
    """At random, three in ten do."""
    assert np.mean([config["x"] <= 0.3 for config in last_asked(name, asks, constrained=True)]) > 0.5


@pytest.mark.parametrize("name", SEVERAL)
def test_a_failed_trial_among_several_objectives_does_no_harm(name):
    searcher = build(name, SPACE, mode=["max", "min"], budget=16, constraints=1)
    collected = []
    for i in range(12):
        collected.append(searcher.ask())
        if i % 3 == 2:
            searcher.tell(collected[-1], None)
        else:
            searcher.tell(
                collected[-1],
                [collected[-1]["x"], math.nan if i == 4 else collected[-1]["y"]],
                violations=[collected[-1]["y"] - 0.5],
            )
    assert len({dumps(config) for config in collected}) == 12


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"searcher": "cmaes"}, "searcher: CMA-ES knows no objectives"),
        ({"searcher": "optuna.samplers:CmaEsSampler"}, "searcher: the searcher cannot search this"),
        (
            {"objectives": {}, "searcher": "cmaes", "constraints": {"seconds": "<= 1"}},
            "searcher: CMA-ES knows no constraints",
        ),
        ({"pruner": "asha"}, "pruner: early stopping compares trials by one metric"),
        ({"metric": "f1_macro"}, "objectives: the metric, which chooses what is confirmed, is one of the objectives"),
        (
            {"mode": "min"},
            "objectives: the metric, which chooses what is confirmed, is one of the objectives, with its mode",
        ),
        ({"constraints": {"seconds": "= 1"}}, "constraints.seconds: a constraint is <= or >= and a number"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path, fields, says):
    with pytest.raises(SpecError) as caught:
        plan(
            sweep(**{"objectives": {"accuracy": "max", "loss": "min"}, "searcher": "nsga2"} | fields),
            storage=str(tmp_path),
        )
    assert says in str(caught.value)


def two(trial, notes, status):
    """Accuracy grows with lr and so does the loss; trials of lr above 1 take long."""
    lr = trial.config["lr"]
    fields = {"metrics": {"accuracy": lr / 4 + 0.01 * trial.fold, "loss": lr**2}, "seconds": 5.0 if lr > 1 else 1.0}
    return record_of(trial, notes, status, **fields)


STUDY = {
    "searcher": "nsga2",
    "trials_per_arm": 12,
    "objectives": {"accuracy": "max", "loss": "min"},
    "constraints": {"seconds": "<= 2", "loss": "<= 0.5"},
    "search_folds": [0, 2],
}


@pytest.mark.slow
def test_the_best_feasible_by_the_metric_is_confirmed_and_the_front_is_shown(tmp_path):
    study = sweep(**STUDY)
    ended, confirmed = drive(study, tmp_path, record=two)
    searched = [t for t, notes in ended if notes.phase == "search" and t.arm == "long"]
    feasible = [t for t in searched if t.config["lr"] <= 0.5**0.5]
    assert {t.data.digest for t in searched} == {plan(study, storage=str(tmp_path)).search_data.digest}
    assert confirmed[-1].best["long"] == max(feasible, key=lambda t: t.config["lr"]).config

    records = StudyRecords(str(tmp_path), study.name)
    records.claim(study_document(plan(study, storage=str(tmp_path))))
    write_planned(records, confirmed[-1].to_frame())
    results = Results.load(study.name, str(tmp_path))
    frame = results.pareto()
    rows = frame[frame["arm"] == "long"]
    assert len(rows) == 12
    assert set(rows.loc[rows["feasible"], "lr"]) == {t.config["lr"] for t in feasible}
    assert (rows["front"] == rows["feasible"]).all(), (
        "accuracy and loss grow together, so nothing feasible is dominated"
    )
    assert rows["accuracy"].to_numpy() == pytest.approx((rows["lr"] / 4 + 0.01).to_numpy()), (
        "the mean over folds 0 and 2"
    )

    shown = render(results, "text").decode()
    assert "searched long: 12 of 12 configurations, 96 epochs," in shown
    assert f"{int(frame['front'].sum())} of 24 configurations, {int(frame['feasible'].sum())} feasible" in shown
    front_rows = shown.split("Pareto front")[1].split("\n\n")[1]
    assert front_rows.count("\nlong ") == rows["front"].sum()
    page = render(results, "html").decode()
    assert (
        "12 of 12 configurations" in page
        and "Pareto front of the search over accuracy (max), loss (min) with loss &lt;= 0.5 and seconds &lt;= 2" in page
    )


@pytest.mark.parametrize("searcher", ["tpe", pytest.param("gp", marks=pytest.mark.slow)])
def test_an_interrupted_search_over_several_objectives_goes_on_as_if_it_were_not(tmp_path, searcher):
    study = sweep(**STUDY | {"searcher": searcher, "trials_per_arm": 6})
    calm, _ = drive(study, tmp_path / "calm", record=two)
    first, _ = drive(study, tmp_path / "shaken", stop_after=13, record=two)
    second, _ = drive(study, tmp_path / "shaken", record=two)
    assert {t.id for t, _ in first} | {t.id for t, _ in second} == {t.id for t, _ in calm}


def test_where_nothing_is_feasible_nothing_is_confirmed(tmp_path):
    _, confirmed = drive(sweep(**STUDY | {"constraints": {"seconds": "<= 0.1"}}), tmp_path, record=two)
    assert confirmed[-1].best == {}


def test_costs_are_metrics_too(tmp_path):
    study = sweep(trials_per_arm=1)
    [(trial, notes), *_], _ = drive(study, tmp_path)
    record = record_of(trial, notes, seconds=3.0, gpu_memory_gib=None)
    assert value_of(record, "seconds") == 3.0
    assert math.isnan(value_of(record, "gpu_memory_gib")) and math.isnan(value_of(record, "f1"))
