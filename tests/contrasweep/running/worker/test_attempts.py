"""Two attempts of one trial, of which the first was given up and goes on: the later one counts."""

import os
import tempfile

import pytest
from counting_trial import finish, train
from refusals import refused

from contrasweep.errors import AttemptSuperseded
from contrasweep.running.upkeep import verify
from contrasweep.running.worker.execution import Execution
from contrasweep.running.worker.output import Output
from contrasweep.storage import attempts
from contrasweep.storage.record import Status
from contrasweep.storage.records import ATTEMPT, LOG, StudyRecords
from contrasweep.trial import Report


@pytest.fixture(params=["folder", "s3"])
def records(request, tmp_path):
    storage = tmp_path / "runs" if request.param == "folder" else request.getfixturevalue("s3").uri
    return StudyRecords(str(storage), "s")


@pytest.fixture
def no_wait(monkeypatch):
    """Every attempt asks each time, as one that was stopped for long does."""
    monkeypatch.setattr(attempts, "ASK_AFTER_S", 0.0)


def begun(trial, records):
    return Execution(trial, train, records, metric="accuracy")


def left(records):
    return {key: records.store.read(key) for key in records.store.list("s/")}


def test_an_attempt_that_wakes_ends_before_it_trains_and_writes_nothing(
    trial, records, no_wait, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = begun(trial, records)
    first.advance()
    (scratch,) = tmp_path.glob("contrasweep-scratch-*")
    second = begun(trial, records)
    second.advance()
    before = left(records)
    with refused(
        AttemptSuperseded, match=rf"trial {trial.id}: process {os.getpid()} on .* begun it again"
    ):
        first.advance()
    assert first.finished and first.reports.step == 1 and not scratch.exists()
    assert left(records) == before
    assert (finish(second).status, second.claim.owner.attempts) == ("done", 2)


def test_one_that_is_stopped_after_its_last_report_writes_neither_reports_nor_a_record(
    trial, records, no_wait
):
    def is_stopped_as_it_returns(trial, resume=None):
        yield Report(1, {"accuracy": 0.5})
        attempts.Attempt(records, trial)

    execution = Execution(trial, is_stopped_as_it_returns, records, metric="accuracy")
    with pytest.raises(AttemptSuperseded):
        execution.advance(at_least_s=60)
    assert records.metrics(trial.id) == [] and records.read_one(trial.id) is None


def test_one_that_is_stopped_within_a_step_writes_none_of_it(trial, records, no_wait):
    def stopped(trial, resume=None):
        for report in train(trial, resume):
            if report.step == 2:
                finish(begun(trial, records))
                before.update(left(records))
            yield report

    before = {}
    first = Execution(trial, stopped, records, metric="accuracy")
    first.advance()
    with pytest.raises(AttemptSuperseded):
        first.advance()
    assert before and left(records) == before


def test_one_that_is_stopped_while_it_saves_does_not_set_the_checkpoint_back(
    trial, records, no_wait, monkeypatch
):
    first = begun(trial, records)
    put_file = records.store.put_file
    stops = iter([True])

    def stopped(key, path):
        put_file(key, path)
        if next(stops, False):
            finish(begun(trial, records))

    monkeypatch.setattr(records.store, "put_file", stopped)
    with pytest.raises(AttemptSuperseded):
        first.advance()
    assert first.checkpoints.latest().step == 3


def test_a_checkpoint_that_waited_while_its_process_was_stopped_writes_nothing(trial, s3, no_wait):
    records = StudyRecords(s3.uri, "s")
    first = begun(trial, records)
    for _ in range(2):
        first.advance(1e-9)  # the second checkpoint waits
    finish(begun(trial, records))
    before = left(records)
    with pytest.raises(AttemptSuperseded):
        first.advance(1e-9)
    assert left(records) == before


def test_the_first_record_stands(trial, records):
    """Both end within the time in which neither asks: as where a host is cut off, and no process is stopped."""
    first = begun(trial, records)
    record = finish(begun(trial, records))
    with refused(AttemptSuperseded, "another attempt has written its record"):
        first.finish(Status.FAILED, error="it was cut off")
    assert records.read_one(trial.id) == record and first.finished


def test_who_trains_alone_asks_once_in_ten_seconds(trial, records, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(attempts.time, "monotonic", lambda: now[0])
    attempt = attempts.Attempt(records, trial)
    asked = []
    read = records.store.read
    monkeypatch.setattr(records.store, "read", lambda *of: asked.append(now[0]) or read(*of))
    for _ in range(35):
        attempt.check()
        now[0] += 1.0
    assert asked == [10.0, 20.0, 30.0]


def test_a_claim_that_is_damaged_or_gone_ends_nobody(trial, records, no_wait):
    first = begun(trial, records)
    records.store.write(records.key(trial.id, ATTEMPT), b'{"token": 3')
    (finding,) = [
        finding for finding in verify(records).findings if finding.file.endswith("attempt.json")
    ]
    assert finding.repair == "delete"
    first.advance()
    records.store.delete(records.key(trial.id, ATTEMPT))
    assert finish(first).status == "done"


def test_a_trial_that_is_run_again_has_another_record(trial, records, no_wait):
    failed = begun(trial, records).finish(Status.FAILED, error="of the machine")
    records.reopen(trial.id)
    record = finish(begun(trial, records))
    assert (failed.status, record.status) == ("failed", "done")
    assert records.read_one(trial.id) == record


def test_the_log_of_the_later_attempt_is_not_sent_over(trial, s3, no_wait):
    records = StudyRecords(s3.uri, "s")
    output = Output(records, trial.id).open()
    print("of the first attempt")
    first = Execution(trial, train, records, metric="accuracy", output=output)
    records.store.write(records.key(trial.id, LOG), b"of the second attempt\n")
    begun(trial, records)
    with pytest.raises(AttemptSuperseded):
        first.advance()
    assert records.store.read(records.key(trial.id, LOG)) == b"of the second attempt\n"
