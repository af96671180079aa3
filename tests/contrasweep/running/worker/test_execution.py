"""One trial from generator to record, without Ray: what is written when, and what survives."""

import asyncio
import os
import resource
import signal
import sys
import tempfile
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from counting_trial import finish, train
from folders import make_files

from contrasweep.cluster.guard import guard
from contrasweep.errors import StorageError
from contrasweep.running.worker.execution import Execution, Reports
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Report, RevisedReport


@pytest.mark.parametrize("reports", [0, 1, 2, 3])
def test_dropped_after_any_report_it_ends_the_same(trial, tmp_path, records, reports):
    first = Execution(trial, train, records, metric="accuracy")
    for _ in range(reports):
        first.advance()
    assert records.finished() == set()
    record = finish(Execution(trial, train, records, metric="accuracy"))
    assert (record.status, record.metrics, record.step) == ("done", {"accuracy": 0.3}, 3)
    assert (record.items, record.artifacts, record.attempts) == (("hits",), ("n.txt",), 2)
    assert list(records.items(trial.id)["hits"]) == [1.0, 0.0]
    assert records.artifact(trial.id, "n.txt", tmp_path / "got").read_text() == "3"
    assert [row["step"] for row in records.metrics(trial.id)] == [1, 2, 3]
    assert records.finished() == {trial.id}


def test_a_storage_that_fails_is_not_the_trials_failure(trial, tmp_path, records):
    """No record is written: the trial goes on from its checkpoint when the storage is there again."""
    first = Execution(trial, train, records, metric="accuracy")
    first.advance()
    in_the_way = tmp_path / "s/trials" / trial.id / "checkpoint/2"
    in_the_way.write_text("a file where a folder must be")
    with pytest.raises(StorageError, match="checkpoint/2/n cannot be written"):
        first.advance()
    assert first.finished and records.finished() == set()
    in_the_way.unlink()
    record = finish(Execution(trial, train, records, metric="accuracy"))
    assert (record.status, record.step, record.attempts) == ("done", 3, 2)


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
def told_by(request):
    """As a worker of Ray: SIGTERM raises SystemExit in the main thread. SIGINT raises KeyboardInterrupt."""

    def leave(number, frame):
        raise SystemExit(1)

    before = signal.getsignal(request.param)
    # A shell starts what it runs in the background with SIGINT ignored.
    answers = {signal.SIGTERM: leave, signal.SIGINT: signal.default_int_handler}
    signal.signal(request.param, answers[request.param])
    handler = signal.getsignal(request.param)
    yield request.param
    assert signal.getsignal(request.param) is handler
    signal.signal(request.param, before)


@pytest.mark.parametrize(
    "comes_out", ["as it is", "as another exception", "not at all", "as the end"]
)
def test_a_process_told_to_end_is_not_the_trials_failure(
    trial, tmp_path, records, told_by, monkeypatch, comes_out
):
    """Compiled code, an import above all, turns SystemExit into another exception or swallows it: no record is written,
    the scratch folder goes, and the trial goes on from its checkpoint elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def told(trial, resume=None):
        running = train(trial, resume)
        yield next(running)
        try:
            os.kill(os.getpid(), told_by)
        except (SystemExit, KeyboardInterrupt):
            if comes_out == "as it is":
                raise
            if comes_out == "as another exception":
                raise AttributeError("partially initialized module") from None
        if comes_out == "not at all":
            yield from running

    first = Execution(trial, told, records, metric="accuracy")
    first.advance()
    assert len(list(tmp_path.glob("contrasweep-scratch-*"))) == 1
    with pytest.raises(SystemExit):
        first.advance()
    assert first.finished and not list(tmp_path.glob("contrasweep-scratch-*"))
    assert records.finished() == set()
    record = finish(Execution(trial, train, records, metric="accuracy"))
    assert (record.status, record.step, record.attempts) == ("done", 3, 2)


def test_the_seconds_of_training_before_a_resume_count(trial, records):
    first = Execution(trial, train, records, metric="accuracy")
    first.seconds = 1000.0
    first.advance()
    second = Execution(trial, train, records, metric="accuracy")
    assert second.seconds >= 1000 and finish(second).seconds > second.extra.seconds >= 1000


def test_a_resumed_trial_began_when_its_first_attempt_did_and_keeps_the_artifacts_of_all(
    trial, tmp_path
):
    def writes_once(trial, resume=None):
        begin = int((resume / "n").read_text()) if resume else 0
        for step in range(begin + 1, 4):
            make_files(tmp_path, {"files/n": str(step)})
            artifacts = {"first.txt": tmp_path / "files/n"} if step == 1 else {}
            yield Report(
                step, {"accuracy": 0.5}, checkpoint=tmp_path / "files", artifacts=artifacts
            )

    records = StudyRecords(str(tmp_path / "storage"), "s")
    first = Execution(trial, writes_once, records, metric="accuracy")
    first.extra = replace(first.extra, started=1000.0)
    first.advance()
    record = finish(Execution(trial, writes_once, records, metric="accuracy"))
    assert (record.status, record.started, record.artifacts) == ("done", 1000.0, ("first.txt",))


def test_the_reports_since_the_last_time_are_stored_before_the_record(trial, records):
    def never_saves(trial, resume=None):
        for step in (0, 1, 3):
            yield Report(step, {"accuracy": step / 10})

    execution = Execution(trial, never_saves, records, metric="accuracy")
    execution.advance(at_least_s=1e-9)
    assert len(records.metrics(trial.id)) == 1, "in a folder at once"
    record = execution.advance(at_least_s=60).record
    assert [row["step"] for row in records.metrics(trial.id)] == [0, 1, 3] and record.step == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_trial_whose_last_value_is_no_number_has_failed_by_its_method(value, trial, records):
    def ends_badly(trial, resume=None):
        yield Report(1, {"accuracy": 0.5})
        yield Report(2, {"loss": 1.0} if value is None else {"accuracy": value})

    record = finish(Execution(trial, ends_badly, records, metric="accuracy"))
    assert (record.status, record.cause, record.missing) == ("failed", "method", False)


def test_the_marker_comes_after_the_files_and_the_old_go_after_it(tmp_path):
    class Recording(LocalStore):
        log: ClassVar[list] = []

        def _place(self, key, fill, if_absent):
            self.log.append(key)
            return super()._place(key, fill, if_absent)

        def delete(self, key):
            self.log.append(f"-{key}")
            super().delete(key)

    store = Recording(tmp_path / "store")
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "w").write_text("1")
    checkpoints = Checkpoints(store, "c")
    checkpoints.save(folder, 1, keep="best", score=0.5)
    checkpoints.save(folder, 2, keep="best", score=0.75)
    assert store.log == ["c/1/w", "c/latest.json", "c/2/w", "c/latest.json", "-c/1/w"]
    checkpoints.save(folder, 3, keep="best", score=0.75)
    assert checkpoints.latest().best.step == 2


@pytest.mark.parametrize("declares", [True, False])
def test_a_trainable_may_change_the_settings_that_it_is_given(trial, records, declares):
    """The record, which is read again, has those that the trial was planned with."""
    trial = replace(trial, config={"layers": [8], "opt": {"lr": 0.1}})

    def grows(trial, resume=None):
        trial.config["layers"].insert(0, 4)
        trial.config["opt"]["lr"] = 1.0
        yield Report(1, {"accuracy": 0.1})

    if declares:
        grows.settings = dict
    finish(Execution(trial, grows, records, metric="accuracy"))
    assert records.read_one(trial.id).config == {"layers": [8], "opt": {"lr": 0.1}}


class Wordless(RuntimeError):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (asyncio.CancelledError, "CancelledError"),
        (KeyboardInterrupt, "KeyboardInterrupt"),
        (Wordless, "Wordless: <exception str() failed>"),
        ({"metrics": [("accuracy", 0.2)]}, "Report.metrics: it maps names to values"),
        ({"step": 1}, "reports count their steps up, got (1, 1); what has given a checkpoint"),
        ({"metrics": {1: 0.2}}, "a trainable may not use this name for a metric"),
        ({"items": 3.0}, "Report.items: it maps names to values"),
        ({"items": {"hits": [[1], [2]]}}, "'hits' is of type list<"),
        ({"items": {"hits": [1, 0], "sure": [1]}}, "Report.items: items have a number"),
        ({"artifacts": {"n.txt": "nowhere"}}, "Report.artifacts.n.txt: an artifact is a file"),
        ({"checkpoint": {"n": 1}}, "a report's checkpoint is a folder of files"),
    ],
)
def test_what_a_trainable_does_wrong_is_its_own_failure(trial, records, wrong, said):
    """It is no fault of the machine or the storage, and what was reported before stays."""

    def careless(trial, resume=None):
        yield Report(1, {"accuracy": 0.1})
        if not isinstance(wrong, dict):
            raise wrong
        yield Report(**{"step": 2, "metrics": {"accuracy": 0.2}, **wrong})

    record = finish(Execution(trial, careless, records, metric="accuracy"))
    assert (record.status, record.cause) == ("failed", "method")
    assert said in record.error and records.metrics(trial.id)[0]["accuracy"] == 0.1
    assert not records.items(trial.id)


def test_out_of_memory_is_left_to_the_scheduler(trial, records):
    def greedy(trial, resume=None):
        raise MemoryError
        yield

    with pytest.raises(MemoryError):
        Execution(trial, greedy, records, metric="accuracy").advance()
    assert records.finished() == set()


@pytest.mark.skipif(sys.platform != "linux", reason="host memory is limited on Linux")
def test_a_trial_that_takes_more_than_it_was_given_ends_alone_and_the_process_is_free_again(
    trial, records
):
    """The guard is a real limit of this process: an array of 8 GiB is refused while the trial is open, not after it."""
    before = resource.getrlimit(resource.RLIMIT_DATA)

    def greedy(trial, resume=None):
        yield Report(1, {"accuracy": float(np.ones(2**33, dtype=np.uint8)[0])})

    with pytest.raises(MemoryError):
        Execution(
            trial,
            greedy,
            records,
            metric="accuracy",
            limits=guard(host_memory_gib=0.5),
        ).advance()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_checkpoint_knows_what_the_trial_held(trial, records):
    """So that an unfinished trial counts in the study's budgets."""
    execution = Execution(
        trial,
        train,
        records,
        metric="accuracy",
        notes=TrialNotes(gpus=0.25, cost_per_hour=2.0, phase="search"),
    )
    execution.advance()
    execution.close()
    extra = Checkpoints(records.store, records.key(trial.id, "checkpoint")).latest().extra
    assert (extra.gpus, extra.cost_per_hour) == (0.25, 2.0) and extra.seconds > 0
    assert execution.notes.phase == "search" and not hasattr(extra, "phase")


def test_closing_runs_the_trainables_clean_up(trial, records):
    cleaned = []

    def tidy(trial, resume=None):
        try:
            yield Report(1, {"accuracy": 0.1})
            yield Report(2, {"accuracy": 0.1})
        finally:
            cleaned.append(True)

    execution = Execution(trial, tidy, records, metric="accuracy")
    execution.advance()
    execution.close()
    assert cleaned == [True]


def test_the_driver_sees_a_step_again_only_as_its_metric_comes(trial, records):
    def reports(trial, resume=None):
        for step in (0, 1):
            yield Report(step, {"loss": 0.5})
            yield RevisedReport(step, {"loss": 0.4})
            yield RevisedReport(step, {"loss": 0.4, "accuracy": 0.7})
            yield RevisedReport(step, {"loss": 0.4, "accuracy": 0.8})

    execution = Execution(trial, reports, records, metric="accuracy")
    rows = execution.advance(at_least_s=60).reports
    assert [(row["step"], row.get("accuracy")) for row in rows] == [
        (0, None),
        (0, 0.7),
        (1, None),
        (1, 0.7),
    ]


def test_a_revised_report_is_stored_in_place_of_the_one_that_is_stored_already(trial, records):
    reports = Reports(trial, records, None)
    for kind, value in ((Report, 0.5), (RevisedReport, 0.75)):
        reports.take(kind(1, {"accuracy": value}, items={"hits": [value]}))
        reports.write(items=True)
    assert [row["accuracy"] for row in records.metrics(trial.id)] == [0.75]
    assert records.items(trial.id, ("hits",))["hits"].tolist() == [0.75]
