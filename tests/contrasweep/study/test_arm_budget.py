"""What an arm's search may spend: the same for every arm, never exceeded once a trial's length is known, counted from
records alone; and what the search may see: never the test split."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import ARMS, drive, record_of, step_by_step, sweep

from contrasweep import Arm, Choice, Float
from contrasweep.data import open_dataset
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError
from contrasweep.planning.planner import plan
from contrasweep.planning.sweep import SweepPlan
from contrasweep.storage.record import Cause, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import (
    MOST_SILENT,
    ArmBudget,
    Spending,
    hours_text,
    of_search,
    search_costs,
)
from contrasweep.trial import Trial
from contrasweep.tuning.sweep_source import SweepSource


def steps_of(trial, notes, status):
    """Trials of the arm `long` take four steps, those of `short` two; a step takes 36 s of half a GPU: 0.005
    GPU-hours."""
    steps = trial.config["epochs"]
    return record_of(
        trial, dataclasses.replace(notes, gpus=0.5), status, step=steps, seconds=36.0 * steps
    )


def searched(told, arm):
    return [trial for trial, notes in told if notes.phase == "search" and trial.arm == arm]


@pytest.mark.parametrize(
    ("budget", "short", "long"),
    [
        ({"epochs": 21}, 10, 5),
        ({"gpu_hours": 0.101}, 10, 5),
        ({"trials": 3}, 3, 3),
        ({"trials": 8, "epochs": 21}, 8, 5),
        ({"epochs": 1}, 1, 1),
    ],
)
def test_a_search_ends_where_its_budget_has_no_room_for_another_trial(
    tmp_path, budget, short, long
):
    """However long a trial is, an arm spends what it is given; a trial longer than all of it is the one that it costs
    to know that."""
    study = sweep(trials_per_arm=None, budget=budget)
    ended, confirmed = drive(study, tmp_path, record=steps_of)
    assert (len(searched(ended, "short")), len(searched(ended, "long"))) == (short, long)
    assert set(confirmed[-1].best) == {"short", "long"}
    records = StudyRecords(str(tmp_path), study.name)
    ended_records = records.read(records.finished()).values()
    costs = search_costs(of_search(ended_records, 0, [0]), study.arms)
    assert (costs["long"].epochs, costs["long"].gpu_hours) == (4 * long, pytest.approx(0.02 * long))
    if "epochs" in budget and budget["epochs"] > 4:
        assert f"{4 * long} of 21 epochs" in costs["long"].spent_of(study.arm_budget)
        assert costs["long"].spent_of(study.arm_budget).endswith("GPU-hours")
    assert [hours_text(hours) for hours in (5.17e-05, 0.0, 0.0746, 12.0)] == [
        "below 0.001",
        "0",
        "0.0746",
        "12",
    ]


@pytest.mark.parametrize("budget", [{"trials": 12}, {"epochs": 12}])
def test_trials_that_report_at_step_0_alone_count_as_one_step_each(tmp_path, budget):
    def record(trial, notes, status):
        return record_of(trial, notes, status, step=0)

    study = sweep(trials_per_arm=None, budget=budget)
    ended, _ = drive(study, tmp_path, record=record)
    assert len(searched(ended, "short")) == len(searched(ended, "long")) == 12


@pytest.mark.parametrize("budget", [{"epochs": 30}, {"gpu_hours": 0.15}])
def test_what_was_spent_before_a_restart_is_spent(tmp_path, budget):
    study = sweep(trials_per_arm=None, budget=budget)
    calm, _ = drive(study, tmp_path / "calm", record=steps_of)
    first, _ = drive(study, tmp_path / "shaken", stop_after=9, record=steps_of)
    second, _ = drive(study, tmp_path / "shaken", record=steps_of)
    assert {t.id for t, _ in [*first, *second]} == {t.id for t, _ in calm}


@pytest.mark.parametrize("pruner", [None, "asha", "halving"])
def test_a_budget_in_epochs_holds_with_early_stopping_on_several_places(tmp_path, pruner):
    """Every step is counted, those of stopped trials too; what is stopped early leaves room for more. A rule that lets
    trials wait may exceed it by what its last bracket's best still have to go."""
    arms = {"long": dataclasses.replace(ARMS["long"], config={"epochs": 9})}
    study = sweep(
        arms=arms, searcher="random", pruner=pruner, trials_per_arm=None, budget={"epochs": 80}
    )
    ended = step_by_step(study, tmp_path)
    assert 80 - 9 < len(ended) <= (88 if pruner == "halving" else 80)
    assert len({trial for trial, _ in ended}) > (8 if pruner is None else 12) - 1


@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 3), st.integers(0, 400))
@settings(max_examples=100)
def test_equal_trials_never_exceed_a_budget_that_pays_for_the_first_ones(
    length, places, folds, extra
):
    """On `places` places at once, none of which knows how long a trial takes before the first report."""
    limit = places * length * folds + extra
    spending = Spending(ArmBudget(epochs=limit), folds)
    running = []
    started = 0
    while True:
        while len(running) < places and spending.room(started, [t for t, _ in running]):
            running += [(f"{started}/{fold}", 0) for fold in range(folds)]
            started += 1
        if not running:
            break
        trial, step = running.pop(0)
        spending.report(trial, step + 1)
        if step + 1 < length:
            running.append((trial, step + 1))
    assert spending.epochs == started * length * folds <= limit
    assert limit - spending.epochs < length * folds


def test_a_grid_is_searched_as_far_as_the_epochs_go(tmp_path):
    arms = {
        "toy": Arm(
            "toy:train",
            config={"epochs": 4},
            space={"batch_size": Choice([8, 16, 32, 64]), "lr": Float(0.01, 1.0, log=True)},
        )
    }
    study = sweep(
        arms=arms,
        searcher="grid",
        searcher_options={"levels": {"lr": 2}},
        trials_per_arm=None,
        budget={"epochs": 25},
    )
    ended, _ = drive(study, tmp_path, record=steps_of)
    assert len(searched(ended, "toy")) == 6


def with_dev(planned, **fields):
    """The plan on the same data with a dev split: the training rows once more, so that they are not the test rows."""
    splits = {**planned.data.splits, "dev": planned.data.splits["train"]}
    data = dataclasses.replace(planned.data, splits=splits)
    return SweepPlan(dataclasses.replace(planned.study, **fields), data, planned.settings)


def test_a_search_finds_no_test_split_to_look_at(tmp_path):
    ended, _ = drive(sweep(confirm_on="test"), tmp_path)
    search = next(t for t, notes in ended if notes.phase == "search")
    confirm = [t for t, notes in ended if notes.phase == "confirm"]
    assert "test" not in search.data.splits and len(open_dataset(search.data).parts(0)[1]) == 182
    with pytest.raises(DataError):
        open_dataset(search.data).parts(None)
    assert [(t.arm, t.fold, t.seed) for t in confirm] == [
        ("short", None, 1000),
        ("long", None, 1000),
    ], "read once an arm and seed"
    assert len(open_dataset(confirm[0].data).parts(None)[1]) == 400


def test_without_folds_a_search_finds_the_dev_split_where_the_test_split_was(storage):
    planned = with_dev(plan(sweep(), storage=storage), folds=None)
    [search] = planned.search_trials("short", {"epochs": 2, "lr": 0.1})
    confirm = planned.trial("short", {"epochs": 2, "lr": 0.1}, planned.data, None, 1000)
    assert [len(open_dataset(t.data).parts(None)[1]) for t in (search, confirm)] == [544, 400]
    assert {search.data.digest, confirm.data.digest} == set(planned.datasets)


NOTHING = {"step": 0, "metrics": {}}


def ended(trial_id, status, step, **fields):
    trial = Trial("study", "arm", "toy:train", {}, Manifest("d", "/nowhere", "image", {}), 0)
    record = Record.of(trial, status=Status(status), step=step, metrics={}, **fields)
    return dataclasses.replace(record, trial_id=trial_id)


def failing(arm, *, every=1, first=0):
    """Records of a sweep of which trials of `arm` fail before their first report: each `every`th, from `first` on."""
    seen = []

    def record(trial, notes, status):
        if notes.phase != "search" or trial.arm != arm:
            return steps_of(trial, notes, status)
        seen.append(trial.id)
        if len(seen) <= first or len(seen) % every:
            return steps_of(trial, notes, status)
        return record_of(trial, notes, "failed", seconds=0.0, cause=Cause.METHOD, **NOTHING)

    return record


@pytest.mark.parametrize("pruner", [None, "asha", "halving"])
@pytest.mark.parametrize("budget", [{"epochs": 300}, {"gpu_hours": 3.0}, {"trials": 300}])
def test_an_arm_that_always_fails_before_its_first_report_is_not_searched_for_ever(
    tmp_path, storage, budget, pruner
):
    study = sweep(trials_per_arm=None, budget=budget, searcher="random", pruner=pruner)
    ended, confirmed = drive(study, tmp_path, record=failing("short"))
    assert len(searched(ended, "short")) == MOST_SILENT < len(searched(ended, "long"))
    assert set(confirmed[-1].best) == {"long"}
    source = SweepSource(
        plan(study, storage=storage), StudyRecords(storage, study.name), lambda _: None
    )
    (said,) = source.warnings()
    assert said.startswith(
        "arm short: no trial of its search was trained to its end (10 failed; its search ended"
    )
    again, _ = drive(study, tmp_path, record=failing("short"))
    assert searched(again, "short") == [], "nor after a restart"


@pytest.mark.parametrize("budget", [{"epochs": 60}, {"gpu_hours": 0.3}])
def test_failing_at_once_in_half_of_the_trials_buys_no_more_configurations(tmp_path, budget):
    study = sweep(trials_per_arm=None, budget=budget, searcher="random")
    calm, _ = drive(study, tmp_path / "calm", record=steps_of)
    half, _ = drive(study, tmp_path / "half", record=failing("long", every=2))
    assert len(searched(half, "long")) == len(searched(calm, "long")) == 15
    after, _ = drive(study, tmp_path / "after", record=failing("long", first=3))
    assert len(searched(after, "long")) == 15


def test_a_trial_that_is_lost_with_its_host_costs_a_step(tmp_path):
    def record(trial, notes, status):
        lost = {"status": "failed", "cause": Cause.HOST_LOST, **NOTHING}
        return (
            record_of(trial, notes, **lost)
            if trial.arm == "long"
            else steps_of(trial, notes, status)
        )

    study = sweep(trials_per_arm=None, budget={"epochs": 28}, searcher="random")
    ended, _ = drive(study, tmp_path, record=record)
    assert len(searched(ended, "long")) == 28, "and ends no search"


def test_failures_beside_a_trial_that_still_runs_wait_for_what_it_costs():
    spending = Spending(ArmBudget(gpu_hours=1.0), 1)
    spending.report("running", 1)
    for number in range(MOST_SILENT):
        assert spending.room(number + 1, ["running"])
        spending.end(ended(f"failed-{number}", "failed", 0, seconds=0.0))
    assert not spending.room(MOST_SILENT + 1, ["running"]), "nobody knows the price of a step yet"
    spending.end(ended("running", "done", 4, seconds=360.0))
    assert spending.room(MOST_SILENT + 1, []) == (spending.gpu_hours + 0.1 <= 1.0)
    assert spending.gpu_hours == pytest.approx(0.1 * (1 + MOST_SILENT))


OUTCOMES = st.tuples(
    st.integers(0, 9), st.sampled_from(["done", "failed", "pruned", "infeasible"]), st.booleans()
)


@given(st.lists(OUTCOMES, min_size=1, max_size=30))
@settings(max_examples=100)
def test_what_was_spent_grows_with_each_trial_that_ends(outcomes):
    spending = Spending(ArmBudget(epochs=10**6), 1)
    before = 0
    for number, (step, status, outside) in enumerate(outcomes):
        cause = (Cause.HOST_LOST if outside else Cause.METHOD) if status == "failed" else None
        step = step if status != "done" else max(1, step)
        spending.end(ended(f"{number}", status, step, cause=cause))
        assert spending.epochs > before
        before = spending.epochs
    for number, (step, *_) in enumerate(outcomes):  # each runs again, on a larger host, and ends
        spending.reopen(f"{number}")
        spending.end(ended(f"{number}", "done", max(1, step)))
    assert spending.epochs == sum(max(1, step) for step, *_ in outcomes)


def test_how_long_a_trial_is_is_not_learned_from_one_that_was_stopped_early():
    spending = Spending(ArmBudget(epochs=10), 1)
    spending.end(ended("stopped", Status.PRUNED, 1))
    spending.report("running", 6)
    assert not spending.room(2, ["running"]), "one more may take six"
