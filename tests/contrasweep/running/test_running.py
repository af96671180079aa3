"""Studies through real Ray Tune on real digits: nothing is done twice, nothing that was reported is lost."""

import dataclasses
import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
from ray.tune.execution.tune_controller import TuneController
from sweeps import ARMS, sweep

from contrasweep import AblationGrid, Arm, Report
from contrasweep.running.driver import run
from contrasweep.trainables import raw_pixels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("running"),
    pytest.mark.usefixtures("ray_core"),
]  # one local Ray for all of them

BASE = {"epochs": 3}


def study(**fields):
    base = {
        "name": "toy",
        "arms": {
            "slow": Arm("toy:train", config=BASE | {"lr": 0.01}),
            "fast": Arm("toy:train", config=BASE | {"lr": 0.5}),
        },
        "data": "digits-lt",
        "folds": 3,
    }
    return AblationGrid(**base | fields)


def values(results):
    return results.to_frame().drop(columns=["seconds", "gpu_memory_gib"])


def ended(records):
    return {i: record.ended for i, record in records.read(records.finished()).items()}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The study, run without any trouble, and compacted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contrasweep.storage.compact.MIN_OBJECTS_TO_COMPACT", 2)
        return run(study(), storage=str(tmp_path_factory.mktemp("calm")), tracking="none")


def test_a_run_fills_the_table_and_leaves_its_study_compacted(calm):
    assert {key.split("/")[2] for key in calm.records.store.list("toy/compact/")} == {
        "curves",
        "records",
        "system",
    }
    frame = calm.to_frame()
    assert list(frame.columns[:5]) == ["trial_id", "arm", "fold", "seed", "status"]
    assert list(frame["status"]) == ["done"] * 6
    assert frame.groupby("arm")["accuracy"].mean()["fast"] > 0.8
    assert calm.compare("fast", "slow").difference > 0
    assert all(
        len(calm.records.metrics(i)) == 3
        and calm.records.items(i)["hits"].mean() == pytest.approx(a)
        for i, a in zip(frame["trial_id"], frame["accuracy"], strict=True)
    )


def test_a_lost_worker_costs_its_steps_only(calm, tmp_path, runs):
    """Told to end with the answer to it come out of the trainable as an exception of its own."""
    once = str(tmp_path / "once")
    arms = study().arms
    dies = {**arms["fast"].config, "die_at": 2, "die_of": "SIGTERM", "once": once}
    arms = {**arms, "fast": Arm("toy:train", config=dies)}
    shaken = run(study(arms=arms), storage=runs, tracking="none")
    assert {record.arm for record in shaken.trial_records.values() if record.attempts == 2} == {
        "fast"
    }
    assert Path(once).exists()
    pd.testing.assert_frame_equal(
        values(shaken).drop(columns="trial_id"), values(calm).drop(columns="trial_id")
    )
    assert all(
        [row["step"] for row in shaken.records.metrics(i)] == [1, 2, 3]
        for i in shaken.trial_records
    )


@pytest.mark.long
def test_only_failures_without_progress_add_up(storage):
    """With `max_failures` 1 a trial that loses its worker after each step gets to its end; one that never gets further
    fails."""

    def train(trial, resume=None):
        import tempfile

        from contrasweep.trial import Report

        first = int((resume / "step").read_text()) + 1 if resume else 1
        with tempfile.TemporaryDirectory() as folder:
            for step in range(first, 4):
                if step > first or (trial.config["stuck"] and step == 2):
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(1.1)  # longer than a worker waits before it tells the driver
                (Path(folder) / "step").write_text(str(step))
                yield Report(step, {"accuracy": step / 10}, Path(folder))

    arms = {name: Arm(train, config={"stuck": name == "stuck"}) for name in ("forward", "stuck")}
    results = run(study(arms=arms, folds=None, max_failures=1), storage=storage, tracking="none")
    forward, stuck = sorted(results.trial_records.values(), key=lambda record: record.arm)
    assert (forward.arm, forward.status, forward.attempts) == ("forward", "done", 3)
    assert stuck.status == "failed" and stuck.step == 1 and "actor died" in stuck.error


@pytest.mark.long
def test_a_loss_that_is_reported_twice_is_one_loss(tmp_path, runs, monkeypatch):
    """Where a host dies, Ray may report a lost actor again once its trial waits for the next attempt; Tune gives up
    such a trial at once, whatever its `max_failures`."""
    once = TuneController._process_trial_failure

    def twice(controller, trial, exception):
        once(controller, trial, exception)
        assert trial.status == "PENDING"
        once(controller, trial, exception)

    monkeypatch.setattr(TuneController, "_process_trial_failure", twice)

    def train(trial, resume=None):
        from contrasweep.trial import Report

        died = Path(trial.config["folder"], f"died-{trial.arm}-{trial.seed}")
        if trial.arm == "dies" and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield Report(1, {"accuracy": 0.5})

    arms = {name: Arm(train, config={"folder": str(tmp_path)}) for name in ("dies", "lives")}
    declared = study(arms=arms, folds=None, seeds=[0, 1], max_failures=1)
    results = run(declared, storage=runs, tracking="none")
    assert [record.status for record in results.trial_records.values()] == ["done"] * 4
    assert len(list(tmp_path.glob("died-dies-*"))) == 2


def test_a_storage_that_fails_for_a_while_costs_steps_only(storage, capsys):
    def train(trial, resume=None):
        import tempfile

        from contrasweep.trial import Report

        in_the_way = Path(
            trial.config["runs"], "toy", "trials", trial.id, "checkpoint", "2"
        )  # a file where a folder must be
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state").touch()
            if resume:
                in_the_way.unlink()
            else:
                yield Report(1, {"accuracy": 0.1}, Path(folder))
                in_the_way.touch()
            yield Report(2, {"accuracy": 0.2}, Path(folder))

    results = run(
        study(arms={"own": Arm(train, config={"runs": storage})}, folds=None),
        storage=storage,
        tracking="none",
    )
    (record,) = results.trial_records.values()
    assert (record.status, record.step, record.attempts) == ("done", 2, 2)
    (result,) = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("again: own seed=")
    ]
    assert "seed=0: storage /" in result and "checkpoint/2/state cannot be written" in result


def test_a_metric_of_a_local_function_may_be_called_as_a_key_of_tunes_results(storage):
    def train(trial, resume=None):
        for step in (1, 2):
            yield Report(step, {"done": step / 2})
            time.sleep(1.2)  # so that the driver has reports before the record

    declared = AblationGrid("done", {"a": Arm(train)}, "digits", seeds=[0], metric="done")
    assert run(declared, storage=storage, tracking="none").to_frame()["done"].tolist() == [1.0]


def test_halving_through_ray_resumes_the_promoted_from_their_checkpoints(storage):
    arms = {"toy": dataclasses.replace(ARMS["long"], config={"epochs": 6})}
    study = sweep(
        arms=arms,
        pruner="halving",
        pruner_options={"reduction": 2, "bracket": 4},
        trials_per_arm=4,
        search_folds=[0, 1],
        searcher="random",
    )
    results = run(study, storage=storage, tracking="none")
    records = results.records
    recorded = [r for r in records.read(records.finished()).values() if r.notes.phase == "search"]
    assert sorted(r.step for r in recorded) == [1, 1, 1, 1, 2, 2, 6, 6]
    assert sorted(r.status for r in recorded) == ["done"] * 2 + ["pruned"] * 6
    assert all(
        [row["step"] for row in records.metrics(r.trial_id)] == list(range(1, r.step + 1))
        for r in recorded
    )
    assert max(r.attempts for r in recorded) == 3
    assert results.statuses == {"done": 1}  # the one fold that was not searched


def test_an_arm_that_is_below_a_floor_is_named_once(storage, capsys):
    def pixels(trial, resume=None):
        yield Report(1, {"accuracy": 0.9})

    pixels.floor = raw_pixels.train.floor
    arms = {"a": Arm("valued:train", config={"lr": 99.0}), "pixels": Arm(pixels)}
    run(study(name="floored", arms=arms), storage=storage, tracking=None)
    assert capsys.readouterr().err.count("arm a: it is below pixels: accuracy ") == 1
