"""A study's budgets: counted from what its trials leave, over all its runs."""

import time

import pytest
from folders import make_files
from hypothesis import given
from hypothesis import strategies as st

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.simulate import Makespan
from contrasweep.data.manifest import Manifest
from contrasweep.planning.budget import Budget, covered
from contrasweep.storage.checkpoints import Checkpoints, Extra
from contrasweep.storage.record import Record, Status, TrialNotes
from contrasweep.trial import Trial


def study(**budgets):
    return AblationGrid("s", {"a": Arm("m:f")}, "d", folds=5, **budgets)


def record(i, start, seconds, **notes):
    return Record.of(
        Trial("s", "a", "m:f", {}, Manifest("d", "/nowhere", "image", {}), 0, i),
        status=Status.DONE,
        seconds=seconds,
        started=start,
        ended=start + seconds,
        notes=TrialNotes(**notes),
    )


ALL = {"budget_hours": 10, "budget_gpu_hours": 10}


def test_hours_are_wall_time_and_gpu_hours_are_each_trials(records):
    ended = [record(0, 0, 3600, gpus=0.5), record(1, 1800, 3600, gpus=0.5), record(2, 90000, 3600)]
    spent = Budget(study(**ALL), records, ended).spent()
    assert spent == pytest.approx({"budget_hours": 2.5, "budget_gpu_hours": 2.0})


def test_an_unfinished_trial_counts_up_to_its_checkpoint_and_is_not_counted_twice(
    tmp_path, records
):
    make_files(tmp_path, {"weights/w": "w"})
    saved = Extra(seconds=7200.0, started=0.0, gpus=0.25)
    Checkpoints(records.store, records.key(record(0, 0, 0).trial_id, "checkpoint")).save(
        tmp_path / "weights", 3, saved
    )
    budget = Budget(study(**ALL), records, [])
    assert budget.spent() == pytest.approx({"budget_hours": 2, "budget_gpu_hours": 0.5})
    budget.started(record(0, 0, 0).trial_id, 0.25)
    assert budget.spent()["budget_gpu_hours"] == 0.5, "the attempt before has trained for it"
    budget.ended(ended := record(0, time.time() - 3600, 10800, gpus=0.25))
    assert budget.spent()["budget_gpu_hours"] == pytest.approx(0.75)
    records.write(ended)
    assert Budget(study(**ALL), records).spent()["budget_gpu_hours"] == pytest.approx(0.75), (
        "its checkpoint is there"
    )


def test_what_runs_now_counts_too(records, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(study(budget_hours=2.0, budget_gpu_hours=2.0), records, [])
    budget.started("t0", 1.0)
    now[0] += 1800
    budget.started("t1", 0.5)
    now[0] += 1800
    budget.trained("t0", 3600.0)
    budget.trained("t1", 3600.0)
    assert budget.spent()["budget_hours"] == 1 and budget.spent()["budget_gpu_hours"] == 1.5
    assert not budget.used_up()
    budget.trained("t0", 5400.0)
    budget.trained("t1", 5400.0)
    assert budget.used_up() == (
        "used up: budget_gpu_hours=2 (2.25 spent); raise it to go on from here, for example with "
        "--set budget_gpu_hours=4.5"
    )


def test_a_trial_that_waits_for_a_host_trains_no_hours_and_a_clock_that_is_set_changes_none(
    records, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(study(**ALL), records, [])
    for clock, trained_s in ((1e9, 3600), (0.0, 7200)):  # unix time
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        budget.started("t0", 1.0)
        now[0] += 3600
        budget.trained("t0", trained_s)
        budget.waits("t0")  # its host is lost, and the next one comes hours later
        now[0] += 7 * 3600
    assert budget.spent() == {"budget_hours": 2.0, "budget_gpu_hours": 2.0}


def test_a_trial_that_is_paused_and_goes_on_is_counted_once(records):
    """Halving gives a paused trial a record, and another one whenever it pauses again."""
    budget = Budget(study(**ALL), records, [])
    for hours in (1, 3, 9):
        part = record(0, 0, hours * 3600, gpus=0.5)
        budget.started(part.trial_id, 0.5)
        budget.trained(part.trial_id, part.seconds)
        assert budget.spent()["budget_gpu_hours"] == pytest.approx(hours / 2)
        budget.ended(part)
        assert budget.spent()["budget_gpu_hours"] == pytest.approx(hours / 2)
    budget.started(part.trial_id, 0.5)
    assert budget.spent()["budget_gpu_hours"] == pytest.approx(4.5), "what it trained stays counted"


def test_without_a_budget_nothing_is_read_and_nothing_is_used_up(records):
    records.write(record(0, 0, 1e9))
    budget = Budget(study(), records)
    assert budget.used_up() == "" and budget.to_dict() == {}
    assert Budget(study(budget_hours=1.0), records).used_up()


def test_a_plan_says_what_will_not_do(records):
    budget = Budget(
        study(budget_hours=3.0, budget_gpu_hours=100.0),
        records,
        [record(0, 0, 7200)],
    )
    to_come = Makespan(
        hours=2, gpu_hours=9, cost=50, trials_cost=40, utilisation=1, finished=3, infeasible=0
    )
    assert budget.warnings(to_come) == [
        "budget_hours=3 will be exceeded: 2 h spent, about 2 h to go"
    ]
    assert budget.warnings(None) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8))
def test_the_union_of_intervals_by_counting(spans):
    seconds = {t for start, length in spans for t in range(start, start + length)}
    assert covered([(start, start + length) for start, length in spans]) == len(seconds)
