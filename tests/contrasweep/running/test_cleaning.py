"""`contrasweep clean`: checkpoints of finished trials go and nothing else, and what they answered is said."""

import json

import pytest
from command_line import contrasweep
from sweeps import finished, sweep

import contrasweep as cs
from contrasweep.running.prepare import study_document
from contrasweep.running.publish import clean, plan_cleaning
from contrasweep.running.verification import verify
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords

ENDED = {3: Status.FAILED, 4: None}  # by seed; all others are done


@pytest.fixture(params=["folder", "s3"])
def storage(request, tmp_path):
    if request.param == "folder":
        return str(tmp_path / "runs")
    server = request.getfixturevalue("s3")
    return server.uri


def made(storage, tmp_path, name="grid"):
    """A grid of two arms and five seeds; each trial has a checkpoint of 1,000 bytes."""
    grid = cs.AblationGrid(name, dict.fromkeys("ab", cs.Arm("toy:train")), "digits-lt", seeds=list(range(5)))
    plan, records = cs.plan(grid, storage=str(tmp_path / "data")), StudyRecords(storage, name)
    records.claim(study_document(plan))
    write_planned(records, plan.to_frame())
    (tmp_path / "w").mkdir(exist_ok=True)
    (tmp_path / "w" / "state").write_bytes(bytes(1000))
    for trial in plan.trials:
        checkpoints(records, trial.id).save(tmp_path / "w", 2)
        rows = [{"step": 2, "time": 1.0, "accuracy": trial.seed / 10}]
        records.write_metrics(trial.id, rows)
        if status := ENDED.get(trial.seed, Status.DONE):
            records.write(Record.of(trial, status=status, rows=rows))
    return records


def checkpoints(records, trial_id):
    return Checkpoints(records.store, records.key(trial_id, "checkpoint"))


def contents(records):
    return {key: records.store.read(key) for key in records.store.list(f"{records.study}/") if "/lease/" not in key}


def test_only_checkpoints_of_finished_trials_go_and_the_best_of_each_arm_stays(storage, tmp_path):
    records = made(storage, tmp_path)
    before, results = contents(records), cs.load("grid", storage=storage)
    found = plan_cleaning(results, "best_of_arm")
    assert contents(records) == before, "planned only"
    assert (len(found.trials), found.kept) == (4, 2) and found.gib * 2**30 == pytest.approx(4000, rel=0.5)
    clean(results, found)
    after = contents(records)
    assert after == {key: data for key, data in before.items() if key not in found.keys}
    assert all("/checkpoint/" in key for key in found.keys) and len(before) - len(after) == 8
    frame = results.to_frame().set_index("trial_id")
    left = {i for i in frame.index if checkpoints(records, i).latest()}
    assert set(frame.loc[sorted(left), "seed"]) == {2, 3, 4}, "the best, and those that go on from theirs"
    assert verify(records).sound and plan_cleaning(cs.load("grid", storage=storage), "best_of_arm").trials == ()


def test_an_interrupted_cleaning_goes_on(storage, tmp_path):
    records = made(storage, tmp_path)
    results = cs.load("grid", storage=storage)
    found = plan_cleaning(results, "none")
    for key in found.keys[:3]:
        records.store.delete(key)
    assert verify(records).sound, "the marker goes first"
    again = plan_cleaning(results, "none")
    assert {*found.keys[3:]} == {*again.keys}
    clean(results, again)
    assert not plan_cleaning(results, "none").keys


def test_the_command_says_what_cannot_be_asked_and_asks_before_it_deletes(tmp_path):
    records = made(str(tmp_path / "runs"), tmp_path)
    words, before = ("clean", "grid", "--storage", "runs", "--keep", "none"), contents(records)
    shown = contrasweep(*words, "--dry-run", folder=tmp_path)
    assert shown.returncode == 0 and "6 of 6 networks cannot be evaluated" in shown.stdout
    assert "no network is left of a, b" in shown.stdout
    asked = contrasweep(*words, folder=tmp_path)
    assert asked.returncode == 2 and "--yes" in asked.stderr and contents(records) == before
    told = json.loads(contrasweep(*words, "--yes", "--json", folder=tmp_path).stdout)
    assert told["deleted"] and len(told["trials"]) == 6 and len(contents(records)) == len(before) - 12


def test_trials_of_a_search_go_before_those_that_confirm(tmp_path):
    storage = tmp_path / "runs"
    finished(sweep(), storage)
    results = cs.load("toy-sweep", storage=str(storage))
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "state").write_bytes(b"x")
    for trial_id in (*results.search_records, *results.trial_records):
        checkpoints(results.records, trial_id).save(tmp_path / "w", 1)
    found = plan_cleaning(results, "confirmed")
    assert set(found.trials) == {i for i, r in results.search_records.items() if r.status.trained} - {
        *results.trial_records
    }
    assert found.trials and found.kept == len(results.trial_records)
