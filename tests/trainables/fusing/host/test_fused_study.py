"""Fused trials through real Ray Tune: the same trials with the same records as alone, whatever is killed."""

import numpy as np
import pytest
import ray

from contrasweep import AblationGrid, Arm, Float, Sweep
from contrasweep.running.driver import run
from contrasweep.running.engine.loop import TrialLoop

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("running"), pytest.mark.usefixtures("ray_session")]


def study(**fields):
    """Eight trials; `config` is that of all arms."""
    config = {"epochs": 3} | fields.pop("config", {})
    arms = {
        "slow": Arm("toy_cohort:train", config=config | {"lr": 0.01}),
        "fast": Arm("toy_cohort:train", config=config | {"lr": 0.5}),
    }
    return AblationGrid(**{"name": "toy", "arms": arms, "data": "digits-lt", "folds": 4} | fields)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The study with every trial alone."""
    return run(study(), storage=str(tmp_path_factory.mktemp("alone")), tracking="none")


def reports(results):
    """(arm, fold) -> its reports as (step, accuracy), and the items' scores."""
    return {
        (record.arm, record.fold): (
            [(row["step"], row["accuracy"]) for row in results.records.metrics(trial_id)],
            list(results.records.items(trial_id)["hits"]),
        )
        for trial_id, record in results.trial_records.items()
    }


def assert_same(results, expected):
    """Same statuses and steps; values up to sums in another order."""
    here, there = reports(results), reports(expected)
    assert here.keys() == there.keys()
    for key, (rows, hits) in there.items():
        assert [step for step, _ in here[key][0]] == [step for step, _ in rows]
        np.testing.assert_allclose([value for _, value in here[key][0]], [value for _, value in rows], atol=0.005)
        assert len(here[key][1]) == len(hits)
    assert {record.status for record in results.trial_records.values()} == {"done"}


def test_a_study_is_the_same_with_its_trials_fused(alone, tmp_path):
    results = run(study(cohort=4), storage=str(tmp_path), tracking="none")
    assert_same(results, alone)
    assert list(results.trial_records) == list(alone.trial_records), "how a trial ran is no part of its id"
    notes = [record.notes for record in results.trial_records.values()]
    assert {(note.shared_by, note.engine) for note in notes} == {(4, "products")}
    assert all(record.host_memory_gib and record.attempts == 1 for record in results.trial_records.values())
    first = next(iter(results.trial_records))
    assert f"epoch 1 of {first}" in (tmp_path / "toy" / "trials" / first / "log.txt").read_text()
    left = [actor for actor in ray.util.list_named_actors(all_namespaces=True) if "cohort" in actor["name"]]
    assert not left, "hosts end with the run"


def test_a_host_that_is_killed_costs_no_member_more_than_its_steps(alone, tmp_path):
    """SIGKILL of the process that trains several trials, at the second epoch of the first of them."""
    log, once = tmp_path / "log", tmp_path / "once"
    config = {"log": str(log), "die_at": 2, "once": str(once)}
    results = run(study(cohort=4, config=config), storage=str(tmp_path), tracking="none")
    assert once.exists()
    assert_same(results, alone)
    assert 1 <= sum(record.attempts == 2 for record in results.trial_records.values()) <= 4
    trained = [tuple(line.split()[:2]) for line in log.read_text().splitlines()]
    assert len(trained) <= 24 + 4 * 2, "from their checkpoints, not from the beginning"


def test_a_cohort_that_runs_out_of_memory_goes_on_with_half_its_members(alone, tmp_path):
    results = run(study(cohort=4, config={"error": "MemoryError"}), storage=str(tmp_path), tracking="none")
    assert_same(results, alone)
    assert {record.notes.shared_by for record in results.trial_records.values()} == {2}


def test_a_pruner_keeps_the_best_of_a_cohort(tmp_path, monkeypatch):
    """Members report in step, and a rule that goes by who was there before keeps the best, whichever slot it has: it
    knows the others' reports of a step before it decides on one of them."""
    known, peers = [], TrialLoop.peers_reported
    monkeypatch.setattr(
        TrialLoop, "peers_reported", lambda self, rows: known.extend(rows.values()) or peers(self, rows)
    )
    arm = Arm("toy_cohort:train", config={"epochs": 6}, space={"lr": Float(1e-4, 1.0, log=True)})
    sweep = Sweep(
        name="toy",
        arms={"a": arm},
        data="digits-lt",
        folds=2,
        trials_per_arm=8,
        searcher="random",
        pruner="asha",
        pruner_options={"reduction": 2, "min_step": 2},
        confirm_seeds=[1000],
        cohort=4,
    )
    results = run(sweep, storage=str(tmp_path), tracking="none")
    searched = [
        record for record in results.records.read(results.records.finished()).values() if record.notes.phase == "search"
    ]
    assert len(searched) == 8
    assert {record.status for record in searched} == {"done", "pruned"}
    assert {record.notes.shared_by for record in searched} == {4}
    best = max(searched, key=lambda record: record.metrics["accuracy"])
    assert best.status == "done"
    assert known and all(row["step"] >= 1 and 0 <= row["accuracy"] <= 1 for row in known)
