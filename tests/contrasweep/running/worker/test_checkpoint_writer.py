"""Checkpoints in an object store: of those that come close together the newest is stored."""

import shutil

import pytest
from counting_trial import finish, train

from contrasweep.errors import StorageError
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.records import StudyRecords

MOMENT_S = 1e-9  # passes with each report, so that `advance` returns it and its checkpoint may wait


@pytest.fixture
def records(s3):
    return StudyRecords(s3.uri, "s")


def begun(trial, records):
    return Execution(trial, train, records, metric="accuracy")


def stored(trial, records):
    """The step of the newest checkpoint, and what its file says."""
    checkpoints = Checkpoints.of(records, trial.id)
    saved = checkpoints.latest()
    return saved.step, records.store.read(records.key(trial.id, f"checkpoint/{saved.step}/n"))


def test_the_first_is_stored_at_once_and_then_the_newest_as_it_was(trial, records):
    """The trainable writes each into one folder, and removes that as it ends."""
    execution = begun(trial, records)
    for _ in range(3):
        assert execution.advance(MOMENT_S).record is None
        assert stored(trial, records) == (1, b"1")
    record = finish(execution)
    assert (record.status, record.step, stored(trial, records)) == ("done", 3, (3, b"3"))
    left = list(records.store.list(f"{records.key(trial.id, 'checkpoint')}/"))
    assert [key.rpartition("checkpoint/")[2] for key in left] == ["3/n", "latest.json"]
    assert records.items(trial.id, record.items)["hits"].tolist() == [1.0, 0.0]
    assert [row["step"] for row in records.metrics(trial.id)] == [1, 2, 3]


def test_one_without_room_for_a_copy_is_stored_at_once(trial, records, monkeypatch):
    def full(source, target):
        raise OSError("no space left on device")

    execution = begun(trial, records)
    execution.advance(MOMENT_S)
    monkeypatch.setattr(shutil, "copyfile", full)
    execution.advance(MOMENT_S)
    assert stored(trial, records) == (2, b"2")
    execution.close()


def test_a_trial_that_ends_early_keeps_the_newest_that_can_be_stored(trial, records, monkeypatch):
    def fails(key, path):
        raise StorageError("the bucket is gone")

    put_file = records.store.put_file
    for fault, step in ((fails, 1), (put_file, 2)):
        execution = begun(trial, records)
        execution.advance(MOMENT_S)
        execution.advance(MOMENT_S)
        monkeypatch.setattr(records.store, "put_file", fault)
        execution.close()
        assert stored(trial, records)[0] == step
        monkeypatch.setattr(records.store, "put_file", put_file)
        records.store.delete(records.key(trial.id, "checkpoint/latest.json"))


def test_a_storage_that_fails_meanwhile_leaves_no_record(trial, records, monkeypatch):
    put_file = records.store.put_file

    def fails(key, path):
        if "checkpoint" in key:
            raise StorageError("the bucket is gone")
        put_file(key, path)

    monkeypatch.setattr(records.store, "put_file", fails)
    with pytest.raises(StorageError, match="the bucket is gone"):
        begun(trial, records).advance(60.0)
    assert records.finished() == set()
    monkeypatch.setattr(records.store, "put_file", put_file)
    assert finish(begun(trial, records)).status == "done"
