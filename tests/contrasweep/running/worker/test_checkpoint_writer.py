"""Checkpoints that are stored while training goes on."""

import threading

import pytest
from counting_trial import finish, join_checkpoint_threads, train

from contrasweep.errors import StorageError
from contrasweep.running.worker.attempt import CheckpointWriter, Snapshot
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.checkpoints import Checkpoints, Extra
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Report

WAIT_S = 60.0  # for what must happen; nothing here takes so long
MOMENT_S = 1e-9  # passes with each report, so that `advance` returns it and does not wait for its checkpoint


class Stored:
    """Takes snapshots, each when it is let."""

    def __init__(self):
        self.contents: list[tuple[int, str]] = []
        self.begun = threading.Event()
        self.let = threading.Event()

    def __call__(self, snapshot):
        self.begun.set()
        assert self.let.wait(WAIT_S)
        self.contents.append((snapshot.step, (snapshot.folder / "n").read_text()))


def snapshot(folder, step):
    folder.mkdir(exist_ok=True)
    (folder / "n").write_text(str(step))
    return Snapshot(folder, step, Extra(), step)


def test_of_those_that_wait_only_the_newest_is_stored_as_it_was(tmp_path):
    stored = Stored()
    writer = CheckpointWriter(stored, tmp_path / "scratch")
    writer.put(snapshot(tmp_path / "state", 1))
    assert stored.begun.wait(WAIT_S)
    for step in (2, 3, 4):
        writer.put(snapshot(tmp_path / "state", step))
    (tmp_path / "state/n").write_text("the trainable goes on")
    stored.let.set()
    writer.drain()
    assert stored.contents == [(1, "1"), (4, "4")]
    assert list((tmp_path / "scratch").iterdir()) == []
    writer.close()


def test_a_checkpoint_of_the_same_step_replaces_the_one_that_waits(tmp_path):
    stored = Stored()
    writer = CheckpointWriter(stored, tmp_path / "scratch")
    for text in ("is stored", "waits", "is newer"):
        state = snapshot(tmp_path / "state", 1)
        (state.folder / "n").write_text(text)
        writer.put(state)
        assert stored.begun.wait(WAIT_S)
    stored.let.set()
    writer.drain()
    assert stored.contents == [(1, "is stored"), (1, "is newer")]
    writer.close()


def test_what_fails_is_raised_with_the_next_and_nothing_more_is_stored(tmp_path):
    def fails(snapshot):
        stored(snapshot)
        raise StorageError("the bucket is gone")

    stored = Stored()
    writer = CheckpointWriter(fails, tmp_path / "scratch")
    writer.put(snapshot(tmp_path / "state", 1))
    assert stored.begun.wait(WAIT_S)
    threading.Timer(0.1, stored.let.set).start()  # about when it is drained
    for call in (writer.drain, lambda: writer.put(snapshot(tmp_path / "state", 2)), writer.drain):
        with pytest.raises(StorageError, match="the bucket is gone"):
            call()
    writer.close()
    assert stored.contents == [(1, "1")]


def test_training_goes_on_while_a_checkpoint_is_stored(trial, s3, monkeypatch):
    """The first checkpoint's file is not taken before the trial has trained its last step."""
    records = StudyRecords(s3.uri, "s")
    trained = threading.Event()
    put_file = records.store.put_file

    def waits(key, path):
        if "checkpoint" in key:
            assert trained.wait(WAIT_S) and records.metrics(trial.id)
        put_file(key, path)

    def counted(trial, resume=None):
        yield from train(trial, resume)
        trained.set()

    monkeypatch.setattr(records.store, "put_file", waits)
    record = Execution(trial, counted, records, metric="accuracy").advance(WAIT_S).record
    assert record is not None and (record.status, record.step) == ("done", 3)
    latest = Checkpoints(records.store, records.key(trial.id, "checkpoint")).latest()
    assert latest is not None and latest.step == 3, "the newest is stored before the record"
    left = list(records.store.list(f"{records.key(trial.id, 'checkpoint')}/"))
    assert [key.rpartition("checkpoint/")[2] for key in left] == ["3/n", "latest.json"]
    assert records.items(trial.id, record.items)["hits"].tolist() == [1.0, 0.0]
    assert [row["step"] for row in records.metrics(trial.id)] == [1, 2, 3]


def test_a_storage_that_fails_meanwhile_leaves_no_record(trial, s3, monkeypatch):
    records = StudyRecords(s3.uri, "s")
    put_file = records.store.put_file

    def fails(key, path):
        if "checkpoint" in key:
            raise StorageError("the bucket is gone")
        put_file(key, path)

    monkeypatch.setattr(records.store, "put_file", fails)
    execution = Execution(trial, train, records, metric="accuracy")
    with pytest.raises(StorageError, match="the bucket is gone"):
        execution.advance(WAIT_S)
    assert records.finished() == set()
    execution.close()
    monkeypatch.setattr(records.store, "put_file", put_file)
    assert finish(Execution(trial, train, records, metric="accuracy")).status == "done"


def test_a_trial_that_ends_early_keeps_the_checkpoint_that_was_whole(trial, s3, monkeypatch):
    """Its newest ones are too slow to be waited for, and their copies are gone once they can be stored."""
    monkeypatch.setattr("contrasweep.running.worker.attempt.EVERY_S", 0.0)
    monkeypatch.setattr("contrasweep.running.worker.attempt.CLOSE_TIMEOUT_S", 0.1)
    records = StudyRecords(s3.uri, "s")
    begun = threading.Event()
    let = threading.Event()
    put_file = records.store.put_file

    def slow(key, path):
        put_file(key, path)
        if "checkpoint/2/" in key:
            begun.set()
            assert let.wait(WAIT_S)

    def counted(trial, resume=None):
        for report in train(trial, resume):
            yield report
            if report.step == 1:
                execution.attempt.writer.drain()
            if report.step == 2:
                assert begun.wait(WAIT_S)

    monkeypatch.setattr(records.store, "put_file", slow)
    execution = Execution(trial, counted, records, metric="accuracy")
    for _ in range(3):
        assert execution.advance(MOMENT_S).record is None
    execution.close()
    let.set()
    join_checkpoint_threads()
    latest = Checkpoints(records.store, records.key(trial.id, "checkpoint")).latest()
    assert latest is not None and (latest.step, list(latest.files)) == (1, ["n"])
    assert finish(Execution(trial, train, records, metric="accuracy")).status == "done"


def test_a_fresh_trial_reads_nothing_and_writes_each_thing_once(trial, s3, monkeypatch):
    def once(trial, resume=None):
        yield Report(1, {"accuracy": 0.5}, items={"hits": [1.0]})

    records = StudyRecords(s3.uri, "s")
    written = []
    write = records.store.write

    def noted(key, content, **options):
        written.append(key.rpartition("/")[2])
        return write(key, content, **options)

    def refused(*of):
        raise AssertionError(f"it was asked for {of[0]}")

    monkeypatch.setattr(records.store, "write", noted)
    with monkeypatch.context() as patch:
        for name in ("read", "get_file", "exists", "list", "etags"):
            patch.setattr(records.store, name, refused)
        execution = Execution(trial, once, records, metric="accuracy", no_prior_state=True)
        assert execution.advance().record is None
        assert finish(execution).status == "done"
    assert written == ["attempt.json", "metrics.parquet", "items.parquet", "record.json"]
    assert records.with_files() == {trial.id}
