"""Every tracking store passes one suite: a sqlite file, and a real MLflow server over HTTP, also one on PostgreSQL.

What a follower and `sync` read is what the storage has: the tests write there what a worker and a driver write.
"""

import errno
import math
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.tracking_services import mlflow_server, postgres, postgres_missing, wait_until
from folders import make_files
from hypothesis import example, given, settings
from hypothesis import strategies as st
from places import ROOT
from refusals import refused
from tracked import T0, drive, tracked_of, train

from contrasweep.data.manifest import Manifest, Shard
from contrasweep.errors import ContrasweepError, StorageError
from contrasweep.storage.record import CodeRef, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.tracking.follower import Follower
from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.links import read_links
from contrasweep.tracking.mlflow.address import checked_uri
from contrasweep.tracking.mlflow.client import translate_errors
from contrasweep.tracking.mlflow.description import describe_run, metric_key
from contrasweep.tracking.mlflow.models import load_checkpoint, log_model
from contrasweep.tracking.mlflow.server import (
    DIGEST_TAG,
    LARGEST_VALUE,
    Server,
    _same,
    find_experiment,
    study_status,
)
from contrasweep.tracking.mlflow.ui import serve
from contrasweep.tracking.process import TrackingProcess
from contrasweep.tracking.sync import SyncSummary, follow, sync
from contrasweep.tracking.tracker import TrackedStudy, TrackingError
from contrasweep.trial import Trial

pytestmark = pytest.mark.xdist_group("tracking")  # one server for all of them

DATA = Manifest(
    "digits-lt",
    "/data/digits-lt",
    "image",
    {"train": (Shard("train-0.parquet", 1437, 1, "0" * 64),)},
)


def make_trials(study):
    """Two arms with different config keys, two batch sizes, two folds."""
    arms = {"scl": {"loss": "supcon"}, "ocl": {"loss": "ocl", "head": {"dim": 64}}}
    return [
        Trial(
            study,
            arm,
            "contrasweep.trainables.contrastive:train",
            config | {"batch_size": b, "lr": 0.1},
            DATA,
            fold,
        )
        for arm, config in arms.items()
        for b in (4, 32)
        for fold in (0, 1)
    ]


def make_rows(trial, steps=5):
    """Reports as the records keep them; accuracy is given at every other step only."""
    base = int(trial.id[:4], 16) / 1e6
    return [
        {"step": s, "time": T0 + s, "loss": base + 1 / s}
        | ({"accuracy": base + s / 10} if s % 2 else {})
        for s in range(1, steps + 1)
    ]


@dataclass
class Study:
    """A study with its records in a temporary storage, on one tracking store."""

    uri: str
    name: str
    trials: list[Trial]
    records: StudyRecords
    client: Any
    origin: str = ""

    @property
    def tracked(self) -> TrackedStudy:
        return tracked_of(
            self.name,
            self.trials,
            axes=("batch_size",),
            metric="accuracy",
            storage=self.records.storage,
            origin=self.origin,
            extra={"data": "digits-lt", "folds": 2},
        )

    def server(self) -> Server:
        return Server(checked_uri(self.uri), self.tracked, self.records)

    def follower(self, *, look: bool = False) -> Follower:
        follower = Follower(self.records, self.server())
        if look:
            follower.look()
        return follower

    def process(self) -> TrackingProcess:
        return TrackingProcess(checked_tracking(self.uri), self.tracked, self.records)

    def sync(self) -> SyncSummary:
        (summary,) = sync(self.records, checked_tracking(self.uri), self.tracked)
        return summary

    def train(self, trial: Trial, rows: Sequence[dict[str, Any]]) -> None:
        """Write what a worker leaves in the storage that has begun a trial and reported `rows`."""
        train(self.records, trial, rows)
        if rows:
            self.records.write_system(
                trial.id, [{"step": int(r["step"]), "time": r["time"], "load": 0.5} for r in rows]
            )

    def run(self, *trials: Trial, ended: str = "") -> None:
        drive(self.records, *trials, ended=ended)

    def begin(self, trial: Trial, rows: Sequence[dict[str, Any]]) -> None:
        """Both of one trial, which runs."""
        self.train(trial, rows)
        self.run(trial)

    def record(
        self, trial: Trial, rows: list[dict[str, Any]] | None = None, **fields: Any
    ) -> Record:
        """Write what a trial leaves in the storage."""
        rows = make_rows(trial) if rows is None else rows
        self.records.write_metrics(trial.id, rows)
        created = Record.of(
            trial,
            rows=rows,
            **{
                "status": Status.DONE,
                "seconds": 4.5,
                "started": T0,
                "ended": T0 + 9,
                "host": "here",
                "host_memory_gib": 0.75,
                "versions": {"torch": "2.15"},
                **fields,
            },
        )
        self.records.write(created)
        return created

    def record_all(self) -> None:
        for trial in self.trials:
            self.record(trial)

    def runs(self) -> list[Any]:
        experiment = find_experiment(self.client, self.tracked)
        return (
            []
            if experiment is None
            else list(self.client.search_runs([experiment.experiment_id], max_results=1000))
        )

    def children(self) -> dict[str, Any]:
        """Runs by trial id; fails if a trial has two."""
        runs = [run for run in self.runs() if "trial_id" in run.data.tags]
        assert len({run.data.tags["trial_id"] for run in runs}) == len(runs)
        return {run.data.tags["trial_id"]: run for run in runs}

    def run_of(self, trial: Trial) -> Any:
        return self.children()[trial.id]

    def parent(self) -> Any:
        (parent,) = [run for run in self.runs() if "trial_id" not in run.data.tags]
        return parent

    def history(self, run: Any, key: str) -> list[tuple[int, float, int]]:
        points = self.client.get_metric_history(run.info.run_id, key)
        return sorted((metric.step, metric.value, metric.timestamp) for metric in points)

    def assert_shows(self, trial: Trial, rows: list[dict[str, Any]] | None = None) -> None:
        """The run's histories are exactly those rows: nothing lost, nothing twice."""
        run = self.run_of(trial)
        for key in ("loss", "accuracy"):
            want = [
                (r["step"], r[key], int(r["time"] * 1000))
                for r in (rows or make_rows(trial))
                if key in r
            ]
            assert self.history(run, key) == want

    def assert_shows_all(self) -> None:
        for trial in self.trials:
            self.assert_shows(trial)


def study_at(uri: str, name: str, folder: Path, client: Any) -> Study:
    return Study(uri, name, make_trials(name), StudyRecords(str(folder), name), client)


def view(run: Any) -> dict[str, Any]:
    """All that a run shows but its id, parent and times of creation."""
    tags = {k: v for k, v in run.data.tags.items() if k != "mlflow.parentRunId"}
    inputs = [(i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs]
    return {
        "params": run.data.params,
        "metrics": run.data.metrics,
        "tags": tags,
        "inputs": inputs,
        "status": run.info.status,
    }


@pytest.fixture(scope="session")
def server_uri(tmp_path_factory, template):
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(template, folder / "mlflow.db")
    with mlflow_server(
        f"sqlite:///{folder}/mlflow.db", str(folder / "artifacts"), folder
    ) as server:
        yield server.uri


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory, template):
    return f"sqlite:///{shutil.copy(template, tmp_path_factory.mktemp('sqlite') / 'mlflow.db')}"


@pytest.fixture(scope="session")
def server_on_postgres_uri(tmp_path_factory):
    if reason := postgres_missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("postgres")
    with postgres() as uri, mlflow_server(uri, str(folder / "artifacts"), folder) as server:
        yield server.uri


SQLITE = pytest.mark.parametrize("study", ["sqlite"], indirect=True)
EVERYWHERE = pytest.mark.parametrize(
    "study",
    [
        "sqlite",
        pytest.param("server", marks=pytest.mark.slow),
        pytest.param("server_on_postgres", marks=pytest.mark.long),
    ],
    indirect=True,
)


@pytest.fixture(params=["sqlite", pytest.param("server_on_postgres", marks=pytest.mark.long)])
def study(request, tmp_path):
    from mlflow import MlflowClient

    uri = request.getfixturevalue(f"{request.param}_uri")
    name = f"s{time.monotonic_ns()}"  # short: PostgreSQL has 200 characters for the address of a run's artifacts
    return study_at(uri, name, tmp_path / "storage", MlflowClient(uri))


@EVERYWHERE
def test_shows_every_trial_of_a_study(study):
    assert read_links(study.records).runs == {}
    study.record_all()
    assert study.sync().added == 8
    children = study.children()
    parent = study.parent()
    assert set(children) == {trial.id for trial in study.trials}
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {
        parent.info.run_id
    }
    assert parent.info.run_name == study.name and parent.info.status == "FINISHED"
    for trial in study.trials:
        study.assert_shows(trial)
        run = children[trial.id]
        assert (
            run.info.run_name
            == f"{trial.arm} batch_size={trial.config['batch_size']} fold={trial.fold} seed=0"
        )
        assert run.info.status == "FINISHED"
        assert (run.info.start_time, run.info.end_time) == (T0 * 1000, (T0 + 9) * 1000)
        assert run.data.metrics["system/training_seconds"] == 4.5
        assert run.data.metrics["system/host_memory_gib"] == 0.75
        (used,) = run.inputs.dataset_inputs
        assert used.dataset.name == "digits-lt" and DATA.digest.startswith(used.dataset.digest)
    large = study.client.search_runs([parent.info.experiment_id], "params.batch_size = '32'")
    assert {run.data.tags["trial_id"] for run in large} == {
        t.id for t in study.trials if t.config["batch_size"] == 32
    }
    links = read_links(study.records)
    assert {i: url.split("/runs/")[1].split("?")[0] for i, url in links.runs.items()} == {
        i: run.info.run_id for i, run in children.items()
    }
    assert links.served == study.uri.startswith("http")
    assert links.study.startswith("http://127.0.0.1:")


@EVERYWHERE
def test_a_follower_shows_what_sync_shows(study):
    """Trials begin, report in between, and end; the study's runs are then deleted and synced."""
    follower = study.follower()
    rows = {trial.id: make_rows(trial) for trial in study.trials}
    for trial in study.trials[:2]:
        for steps in (0, 2, 4):
            study.begin(trial, rows[trial.id][:steps])
            follower.look()
            run = study.run_of(trial)
            assert run.info.status == "RUNNING" and run.data.tags["status"] == "running"
            assert len(study.history(run, "loss")) == steps
        assert study.parent().info.status == "RUNNING"
        study.train(trial, rows[trial.id])
        study.record(trial)
        study.run()
        follower.look()
    for trial in study.trials[2:]:
        study.train(trial, rows[trial.id])
        study.record(trial)
    study.run(ended="complete")
    follower.look(last=True)
    follower.close("complete")
    assert not follower.gap()
    live = {trial_id: view(run) for trial_id, run in study.children().items()}
    study.assert_shows_all()
    for run in study.runs():
        study.client.delete_run(run.info.run_id)
    assert study.sync().added == len(study.trials)
    assert {trial_id: view(run) for trial_id, run in study.children().items()} == live
    assert study.parent().info.status == "FINISHED"


def test_another_follower_goes_on_where_one_was_killed(study):
    """MLflow has two of three reports; the trial goes on from its checkpoint at step 2 and makes the third again."""
    trial = study.trials[0]
    rows = make_rows(trial)
    study.begin(trial, rows[:2])
    study.follower(look=True)
    study.begin(trial, [*rows[:2], rows[2] | {"time": T0 + 50}])
    second = study.follower(look=True)
    study.train(trial, rows)
    study.record(trial, attempts=2)
    second.look()
    run = study.run_of(trial)
    for key in ("loss", "accuracy"):
        shown = [(step, value) for step, value, _ in study.history(run, key)]
        assert shown == [(row["step"], row[key]) for row in rows if key in row]


@pytest.fixture(autouse=True)
def not_behind_other_tests(monkeypatch):
    """The process that shows a study waits for whatever else these cores do; here, for other tests."""
    monkeypatch.setattr("contrasweep.tracking.process.NICENESS", 0)


def test_a_driver_says_what_it_did_not_show_in_time_and_the_rest_follows(study):
    study.record_all()
    process = study.process()
    said = process.close("complete", timeout_s=0.0)
    assert (
        f"does not show all of study {study.name} yet: process {process.process.pid} goes on"
        in said
    )
    assert "contrasweep sync" in said and "\n" not in said
    assert process.process.wait(240) == 0
    assert study.parent().info.status == "FINISHED" and len(study.children()) == len(study.trials)


def test_a_driver_waits_no_longer_because_the_process_goes_on_to_tell_what_is_left():
    process = object.__new__(TrackingProcess)
    process.name, process.study = "mlflow", "s"
    lines = "for i in $(seq 60); do echo '{\"left\": 2}'; sleep 0.1; done"
    process.process = subprocess.Popen(["sh", "-c", lines], stdin=-1, stdout=-1, text=True)
    assert f"of study s yet: process {process.process.pid} goes on" in process.close(
        "complete", 1.0
    )
    process.process.kill()


@pytest.mark.parametrize(
    ("statuses", "outcome", "shown"),
    [
        (
            {Status.DONE: 20},
            "complete",
            "FINISHED",
        ),  # of 30: an early decision made the others unnecessary
        ({Status.DONE: 1, Status.FAILED: 8}, "complete", "FINISHED"),
        ({Status.PRUNED: 3}, "complete", "FINISHED"),
        ({Status.FAILED: 9}, "complete", "FAILED"),
        ({Status.FAILED: 2, Status.INFEASIBLE: 1}, "complete", "FAILED"),
        ({Status.DONE: 3}, "interrupted", "KILLED"),
        ({Status.FAILED: 3}, "interrupted", "KILLED"),
        ({}, "interrupted", "KILLED"),
    ],
)
def test_the_study_s_own_run_says_how_it_stands(statuses, outcome, shown):
    assert study_status(statuses, outcome) == shown


STORIES = {
    "an interrupted trial goes on in the same run": "begin 1; interrupt: 1 SCHEDULED 1 below 1 KILLED; begin 1; "
    "follow: 1 RUNNING 1 below 1 RUNNING; end; look: 1 FINISHED 5 below 1 RUNNING",
    "a trial run again from its start has another run": "end; sync: 1 FINISHED 5 below 1 KILLED; reopen; retrain; "
    "begin 2; follow: 2 RUNNING 2 below 1 RUNNING; end; look: 2 FINISHED 5 below 1 RUNNING",
    "an open run of another training is replaced": "begin 3; follow: 1 RUNNING 3 below 1 RUNNING; retrain; end; "
    "sync: 2 FINISHED 5 below 1 RUNNING",
    "a run deleted while its trial trains is made again": "begin 1; follow; delete; begin 3; look; "
    "look: 2 RUNNING 3 below 1 RUNNING; end; look: 2 FINISHED 5 below 1 RUNNING",
    "what was deleted in the UI comes back": "end; other; sync; delete all; sync: 1 FINISHED 5 below 1 KILLED; delete; "
    "sync: 2 FINISHED 5 below 1 KILLED; delete study; sync: 2 FINISHED 5 below 2 KILLED",
    "an experiment deleted while its study runs comes back": "begin 1; follow; delete all; other; look; look; look; "
    "begin 2; look; look: 1 RUNNING 2 below 1 RUNNING",
    "of two runs of a trial the finished one stays": "end; sync; double; sync: 1 FINISHED 5 below 1 KILLED",
    "another process goes on in the run of one that was killed": "begin 2; follow; begin 3; follow; end; "
    "look: 1 FINISHED 5 below 1 RUNNING; sync: 1 FINISHED 5 below 1 RUNNING",
}
"""What is done, step by step -> which run of the trial it has then, in what state, with how many reports, below which
run of the study, in what state."""


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_mlflow_shows_what_becomes_of_a_trial(study, story):
    trial, other = study.trials[:2]
    rows = make_rows(trial)
    follower = study.follower()
    runs: list[str] = []
    parents: list[str] = []

    def number(known, run):
        if run.info.run_id not in known:
            known.append(run.info.run_id)
        return known.index(run.info.run_id) + 1

    for line in story.split("; "):
        step, _, expected = line.partition(": ")
        match step.split():
            case ["begin", count]:
                study.begin(trial, rows[: int(count)])
            case ["follow"]:
                follower = study.follower(look=True)
            case ["look"]:
                follower.look()
            case ["interrupt"]:
                study.run(trial, ended="interrupted")
                follower.look(last=True)
                follower.close("interrupted")
            case ["end"]:
                study.record(trial, rows)
            case ["other"]:
                study.record(other)
            case ["sync"]:
                study.sync()
            case ["reopen"]:
                study.records.reopen(trial.id)
            case ["retrain"]:
                rows = [row | {"loss": row["loss"] + 1} for row in rows]
            case ["double"]:
                study.client.create_run(
                    study.parent().info.experiment_id, tags={"trial_id": trial.id}
                )
            case ["delete"]:
                study.client.delete_run(study.run_of(trial).info.run_id)
            case ["delete", "study"]:
                study.client.delete_run(study.parent().info.run_id)
            case ["delete", "all"]:
                study.client.delete_experiment(study.parent().info.experiment_id)
        if step in ("follow", "sync"):
            number(runs, study.run_of(trial))
            number(parents, study.parent())
        if expected:
            run, parent = study.run_of(trial), study.parent()
            assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
            reports = len(study.history(run, "loss"))
            shown = f"{number(runs, run)} {run.info.status} {reports}"
            assert f"{shown} below {number(parents, parent)} {parent.info.status}" == expected, step
    assert not follower.waiting and not follower.refused
    for each, reported in ((trial, rows), (other, make_rows(other))):
        if each.id in study.records.finished():
            study.assert_shows(each, reported)


@SQLITE
def test_a_report_that_was_revised_after_it_was_shown_has_its_last_value(study):
    trial = study.trials[0]
    rows = make_rows(trial, 3)
    study.begin(trial, rows)
    follower = study.follower(look=True)
    rows[-1] = rows[-1] | {"time": T0 + 5, "loss": 9.0}
    study.record(trial, rows)
    follower.look()
    run = study.run_of(trial)
    assert run.data.metrics["loss"] == 9.0
    study.sync()
    assert study.run_of(trial).info.run_id == run.info.run_id, "it shows the record"


@EVERYWHERE
def test_the_same_study_in_another_storage_is_another_study_in_mlflow(study, tmp_path):
    """Two colleagues run one study against the group's server; each finds their own runs, whatever the other does."""
    mine = replace(study, origin="aa" * 16)
    other = StudyRecords(str(tmp_path / "another"), study.name)
    theirs = replace(study, origin="bb" * 16, records=other)
    for trial in study.trials:
        mine.record(trial)
        theirs.record(trial, [row | {"loss": row["loss"] + 1} for row in make_rows(trial)])

    def shown() -> list[dict[str, Any]]:
        return [{run.info.run_id: view(run) for run in part.runs()} for part in (mine, theirs)]

    assert mine.sync().added == 8 and theirs.sync().added == 8
    before = shown()
    for again in (mine, theirs, mine):
        summary = again.sync()
        assert (summary.added, summary.mended) == (0, 0)
    assert shown() == before
    for part, name in ((mine, study.name), (theirs, f"{study.name}-bbbbbbbb")):
        experiment = part.client.get_experiment_by_name(name)
        assert experiment.tags["contrasweep.origin"] == part.origin
        assert f"/experiments/{experiment.experiment_id}/" in read_links(part.records).study
        assert part.parent().data.tags["storage"] == part.records.storage
        for trial in part.trials:
            more = 1 if part is theirs else 0
            part.assert_shows(
                trial, [row | {"loss": row["loss"] + more} for row in make_rows(trial)]
            )


def test_a_follower_that_starts_again_beside_another_storages_finds_its_own_run(study, tmp_path):
    mine = replace(study, origin="aa" * 16)
    theirs = replace(study, origin="bb" * 16, records=StudyRecords(str(tmp_path / "b"), study.name))
    trial = study.trials[0]
    for part in (mine, theirs):
        part.begin(trial, make_rows(trial)[:3])
        part.follower(look=True)

    def shown() -> set[str]:
        return {run.info.run_id for part in (mine, theirs) for run in part.runs()}

    running = shown()
    for part in (mine, theirs):
        part.follower(look=True)
        part.record(trial)
        assert part.sync().added == 0
    assert shown() == running


def test_a_study_keeps_its_origin_and_each_storage_draws_its_own(tmp_path):
    documents = []
    for folder in ("a", "b"):
        records = StudyRecords(str(tmp_path / folder), "s")
        records.claim(StudyDocument("s", "accuracy"))
        records.claim(StudyDocument("s", "accuracy", description="declared again"))
        first = records.document()
        last = TrackedStudy.stored(records)
        assert first is not None and last.origin == first.origin and len(first.origin) == 32
        documents.append(first.origin)
    assert documents[0] != documents[1]


@SQLITE
def test_a_tracker_that_was_away_for_a_while_lacks_nothing(study, monkeypatch):
    study.record(study.trials[0])
    follower = study.follower()
    connect = Server.connect
    failed = []

    def late(server, *args, **named):
        if not failed:
            failed.append(1)
            raise TrackingError("nobody answers", retryable=True)
        connect(server, *args, **named)

    monkeypatch.setattr(Server, "connect", late)
    follower.follow(lambda seconds: "complete", lambda left: None)
    assert failed and follower.gap() == ""
    study.assert_shows(study.trials[0])


def test_a_call_whose_answer_is_lost_makes_no_second_run(study, monkeypatch):
    trial = study.trials[0]
    follower = study.follower()
    lost = []
    study.record(trial)
    follower.look()
    create = follower.target.client.create_run  # type: ignore[attr-defined]

    def without_answer(*args, **named):
        created = create(*args, **named)
        if not lost:
            lost.append(created)
            raise TrackingError("no answer", retryable=True)
        return created

    monkeypatch.setattr(follower.target.client, "create_run", without_answer)  # type: ignore[attr-defined]
    study.record(study.trials[1])
    while study.trials[1].id not in follower.ended or follower.waiting:
        follower.look()
    assert study.run_of(study.trials[1]).info.run_id == lost[0].info.run_id
    study.assert_shows(study.trials[1])


@SQLITE
def test_the_tag_of_a_run_that_is_complete_comes_with_its_last_values(study, monkeypatch):
    """A follower that is killed between two calls must not leave a run that counts as shown."""
    monkeypatch.setattr("contrasweep.tracking.mlflow.server.METRICS_PER_CALL", 2)
    follower = study.follower(look=True)
    study.record(study.trials[0])
    log_batch = follower.target.client.log_batch
    calls = []

    def noted(run_id, **entities):
        calls.append((len(entities["metrics"]), {tag.key for tag in entities["tags"]}))
        log_batch(run_id, **entities)

    monkeypatch.setattr(follower.target.client, "log_batch", noted)
    while study.trials[0].id not in follower.ended or follower.waiting:
        follower.look()
    (complete,) = [i for i, (_, tags) in enumerate(calls) if DIGEST_TAG in tags]
    assert complete == max(i for i, (values, _) in enumerate(calls) if values) > 0
    study.assert_shows(study.trials[0])


def test_what_a_store_refuses_is_told_and_the_rest_goes_on(study, capsys, monkeypatch):
    import mlflow

    bad, good = study.trials[:2]
    follower = study.follower()
    study.record(bad)
    study.record(good)
    create = mlflow.MlflowClient.create_run

    def refusing(client, *args, **named):
        if named["tags"].get("trial_id") == bad.id:
            client.set_tag("no such run", "a", "b")
        return create(client, *args, **named)

    monkeypatch.setattr(mlflow.MlflowClient, "create_run", refusing)
    for _ in range(6):  # a run that is gone may have been deleted just now, so it is tried again
        follower.look()
    gap = follower.gap()
    assert set(follower.refused) == {bad.id} and not follower.waiting
    assert f"lacks 1 trial of study {study.name} (" in gap and "contrasweep sync" in gap
    assert "\n" not in gap
    assert f"does not show trial {bad.id} (" in capsys.readouterr().err
    study.assert_shows(good)


@SQLITE
def test_sync_goes_on_after_trials_whose_files_cannot_be_read(study):
    cut, without, *good = study.trials
    for trial in (cut, *good):
        study.record(trial)
    study.record(without, artifacts=("gone.txt",))
    study.records.store.write(study.records.key(cut.id, "metrics.parquet"), b"cut off")
    for _ in range(2):
        # Their order differs from run to run.
        both = rf"lacks 2 trials: (?=.*{cut.id} \()(?=.*{without.id} \().*; the other trials are"
        with pytest.raises(StorageError, match=both):
            study.sync()
    for trial in good:
        study.assert_shows(trial)
    study.record(cut)
    with refused(StorageError, match=f"lacks 1 trial: {without.id} "):
        study.sync()
    study.assert_shows(cut)


@pytest.mark.parametrize("shown", [math.inf, -math.inf, LARGEST_VALUE, math.nan, 0.5, 0.25])
@pytest.mark.parametrize("ours", [math.inf, -math.inf, math.nan, 0.5])
def test_a_value_that_mlflow_shows_is_ours_or_another(shown, ours):
    same = math.isnan(ours) if math.isnan(shown) else shown == ours
    assert _same(shown, ours) == (same or (shown == LARGEST_VALUE and ours == math.inf))


@SQLITE
def test_the_study_run_says_which_code_made_its_trials(study):
    codes = [
        CodeRef("aa", "1" * 40, dirty=True),
        CodeRef("bb", "2" * 40),
        CodeRef("aa", "1" * 40, dirty=True),
    ]
    for count, expected in ((1, ("aa", "1" * 40, "true")), (3, ("bb, aa", "2" * 40, "true"))):
        for trial, code, ended in list(zip(study.trials, codes, (1, 3, 2), strict=False))[:count]:
            study.record(trial, code=code, ended=T0 + ended)
        study.sync()
        tags = study.parent().data.tags
        assert (tags["code"], tags["mlflow.source.git.commit"], tags["code.dirty"]) == expected


def test_the_study_run_has_figures_and_the_table(study, tmp_path):
    (tmp_path / "table.csv").write_text("arm,accuracy\n")
    server = study.server()
    server.connect()
    server.describe_study(
        {"tables/table.csv": tmp_path / "table.csv"}, "| arm | accuracy |\n|---|---|", {"best": 0.9}
    )
    parent = study.parent()
    assert [f.path for f in study.client.list_artifacts(parent.info.run_id, "tables")] == [
        "tables/table.csv"
    ]
    assert parent.data.tags["mlflow.note.content"].startswith("| arm | accuracy |")
    assert parent.data.metrics == {"best": 0.9}
    assert (
        study.client.get_experiment_by_name(study.name)
        .tags["mlflow.note.content"]
        .startswith("| arm |")
    )


def test_a_trained_module_is_loaded_back(study):
    import mlflow
    import torch

    module = torch.nn.Linear(3, 2)
    before = mlflow.get_tracking_uri()
    record = study.record(study.trials[0])
    study.sync()
    server = study.server()
    server.connect()
    log_model(server, record, module, 5)
    log_model(server, record, module, 5)
    assert mlflow.get_tracking_uri() == before
    run = study.run_of(study.trials[0])
    (output,) = run.outputs.model_outputs
    mlflow.set_tracking_uri(study.uri)
    try:
        loaded = mlflow.pytorch.load_model(f"models:/{output.model_id}")
        model = study.client.get_logged_model(output.model_id)
        assert model.source_run_id == run.info.run_id
        assert model.name == f"{study.name} scl batch_size=4 fold=0 seed=0"
    finally:
        mlflow.set_tracking_uri(before)
    assert torch.equal(loaded.weight, module.weight)


@EVERYWHERE
def test_artifacts_of_a_trial_are_with_its_run(study, tmp_path):
    (tmp_path / "confusion.csv").write_text("0,1\n")
    trial = study.trials[0]
    study.records.store.put_file(
        study.records.key(trial.id, "artifacts/confusion.csv"), tmp_path / "confusion.csv"
    )
    study.record(trial, artifacts=("confusion.csv",))
    study.sync()
    run = study.run_of(trial)
    assert [f.path for f in study.client.list_artifacts(run.info.run_id)] == ["confusion.csv"]


@pytest.mark.long
def test_a_dead_server_loses_nothing_and_no_trial_waits(tmp_path, template):
    """All trials train to their end while the server is dead. One driver ends meanwhile, and `sync` fills its gap;
    the process of the other is still there when the server comes back."""
    from mlflow import MlflowClient

    shutil.copy(template, tmp_path / "mlflow.db")
    with mlflow_server(
        f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"), tmp_path
    ) as server:
        client = MlflowClient(server.uri)
        patient, hasty = (
            study_at(server.uri, name, tmp_path / "s", client) for name in ("patient", "hasty")
        )
        for study in (patient, hasty):
            study.train(study.trials[0], make_rows(study.trials[0])[:1])
            study.run(study.trials[0])
        processes = [study.process() for study in (patient, hasty)]
        wait_until(lambda: len(patient.children()) == len(hasty.children()) == 1, "the first runs")
        server.kill()
        for study in (patient, hasty):
            study.record_all()
            study.run(ended="complete")
        assert "contrasweep sync" in processes[1].close("complete", timeout_s=1.0)
        processes[1].process.kill()
        with refused(ContrasweepError, "tracking http"):
            hasty.sync()
        server.start()
        assert processes[0].close("complete", timeout_s=240.0) == ""
        hasty.sync()
        for study in (patient, hasty):
            study.assert_shows_all()


@pytest.mark.slow
@SQLITE
def test_a_killed_process_is_completed_and_one_whose_driver_died_completes_itself(study, tmp_path):
    """The process is killed while it shows trials that have ended; then another one loses its driver."""
    for trial in study.trials[:6]:
        study.record(trial)
    killed = study.process()
    wait_until(lambda: any("status" in run.data.tags for run in study.runs()), "a first trial")
    killed.process.kill()
    killed.process.wait()
    assert "ended early; run `contrasweep sync`" in killed.close("complete", 5.0)
    for trial in study.trials[6:]:
        study.record(trial)
    orphan = study.process()
    assert orphan.process.stdin is not None
    orphan.process.stdin.close()
    assert orphan.process.wait(240) == 0
    study.assert_shows_all()
    assert study.parent().info.status == "KILLED"


@pytest.mark.slow
@SQLITE
def test_a_file_that_others_read_and_write_loses_nothing(study):
    """As MLflow's own UI does beside a run: a reader holds the file over the first call, then a writer."""
    study.record_all()
    other = sqlite3.connect(study.uri.removeprefix("sqlite:///"), isolation_level=None)
    process = study.process()
    for begin in ("begin", "begin immediate"):
        other.execute(begin)
        other.execute("select count(*) from runs").fetchall()
        time.sleep(0.5)
        other.execute("rollback")
    assert process.close("complete", 240.0) == ""
    study.assert_shows_all()


def test_a_database_that_has_no_connection_left_is_asked_again(tmp_path, mlflow_uri):
    """As an MLflow server on PostgreSQL answers where eight drivers write at once: a bad request, in its words."""
    import sqlalchemy
    from mlflow import MlflowClient
    from mlflow.store.db.utils import _get_managed_session_maker
    from sqlalchemy.orm import sessionmaker

    url = f"sqlite:///{tmp_path}/some.db"
    few = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.05}
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.QueuePool, **few)
    sessions = _get_managed_session_maker(sessionmaker(bind=engine), "sqlite")

    def ask(question):
        with sessions() as session:
            session.execute(sqlalchemy.text(question))

    with engine.connect(), refused(TrackingError, "QueuePool limit") as error:
        translate_errors(lambda: ask("select 1"))
    assert error.value.retryable
    with pytest.raises(TrackingError) as error:
        translate_errors(lambda: MlflowClient(mlflow_uri).create_experiment(""))
    assert not error.value.retryable
    # Two drivers make the experiment of their study's name at once: the second one makes another at its next try.
    with pytest.raises(TrackingError) as error:
        translate_errors(MlflowClient(mlflow_uri).create_experiment, "Default")
    assert error.value.retryable


@pytest.mark.slow
def test_processes_that_open_a_fresh_store_at_once_share_it(tmp_path):
    code = (
        "import sys; from contrasweep.tracking.mlflow.client import new_client; "
        "from contrasweep.tracking.mlflow.address import TrackingAddress; "
        "new_client(TrackingAddress(sys.argv[1])).create_experiment(sys.argv[2])"
    )
    uri = f"sqlite:///{tmp_path}/fresh.db"
    running = [subprocess.Popen([sys.executable, "-c", code, uri, f"study-{i}"]) for i in range(2)]
    assert [process.wait() for process in running] == [0, 0]


def test_the_ui_of_a_server_is_the_server(server_uri, capsys):
    assert serve(server_uri, study=TrackedStudy("absent", storage="a b")) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{server_uri}/#/experiments?workflowType=machine_learning\n"
    assert printed.err == (
        f"study absent is not in {server_uri}; to record it there: contrasweep sync absent --storage 'a b' --tracking "
        f"{server_uri}\n"
    )


def test_there_is_no_ui_without_tracking():
    with refused(ContrasweepError, "nothing to show"):
        serve("none")


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_ui_shows_a_study_until_it_is_ended(end, tmp_path, mlflow_uri):
    """`serve` in a process of its own, as `contrasweep ui` runs it: the address it tells has the study. However the
    process ends, its server ends too."""
    from mlflow import MlflowClient

    study = study_at(mlflow_uri, "shown", tmp_path / "s", MlflowClient(mlflow_uri))
    study.record(study.trials[0])
    study.sync()
    code = (
        "import sys; from contrasweep.tracking.mlflow.ui import serve; from contrasweep.tracking.tracker import "
        "TrackedStudy; sys.exit(serve(sys.argv[1], 5600, TrackedStudy('shown')))"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code, mlflow_uri], stdout=subprocess.PIPE, text=True
    ) as shown:
        try:
            line = next(line for line in shown.stdout or [] if "http://127.0.0.1" in line)
            base, page = line.split()[0].split("/#/")
            assert page.startswith(
                f"experiments/{study.client.get_experiment_by_name('shown').experiment_id}/runs"
            )
            assert study.trials[0].id in replace(study, client=MlflowClient(base)).children()
        finally:
            shown.send_signal(end)
        assert shown.wait(60) == (0 if end == signal.SIGTERM else -end)
    until = time.monotonic() + 60
    answers = 0
    while answers == 0 and time.monotonic() < until:
        with socket.socket() as probe:
            answers = probe.connect_ex(("127.0.0.1", int(base.rpartition(":")[2])))
        time.sleep(0.2)
    assert answers == errno.ECONNREFUSED


def test_mlflow_is_used_by_its_public_names_alone():
    """Its own tables, sessions and stores change with any release."""
    folder = ROOT / "platform/contrasweep"
    lines = [
        line
        for path in folder.rglob("*.py")
        for line in path.read_text().splitlines()
        if "mlflow" in line
    ]
    named = {
        match for line in lines for match in re.findall(r"(?:from|import) (mlflow[\w.]*)", line)
    }
    assert named <= {"mlflow", "mlflow.entities", "mlflow.exceptions", "mlflow.pytorch"}
    ours = "\n".join(path.read_text() for path in (folder / "tracking").rglob("*.py"))
    assert not re.findall(r"client\.(_\w+)|_metric_objs|ManagedSession|SqlRun", ours)


@SQLITE
@pytest.mark.parametrize("driver", [True, False], ids=["with a driver", "as an array of Slurm"])
def test_following_by_hand_ends_with_the_run(study, driver):
    """`contrasweep sync STUDY --follow`: the study runs when it begins, and is over later."""
    document = StudyDocument(study.name, "accuracy", trials=len(study.trials))
    study.origin = study.records.claim(document).origin
    study.train(study.trials[0], make_rows(study.trials[0])[:2])
    study.run(study.trials[0])
    said = []
    thread = threading.Thread(
        target=lambda: said.extend(follow(study.records, checked_tracking(study.uri)))
    )
    thread.start()
    wait_until(lambda: study.trials[0].id in study.children(), "the trial that runs")
    study.record_all()
    if driver:
        study.run(ended="interrupted")  # killed after its last trial: nothing is missing
    else:
        study.records.store.delete(f"{study.name}/live.json")
    thread.join(240)
    assert not said and not thread.is_alive()
    study.assert_shows_all()
    assert study.parent().info.status == "FINISHED"


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("postgresql://u:secret@127.0.0.1:9/x", "unknown kind of tracking store.*takes other data"),
        ("http://127.0.0.1:9", "no MLflow server answers there"),
        ("http://127.0.0.1/ x", "no MLflow server answers there"),
    ],
)
def test_an_address_that_cannot_work_is_one_line_without_its_password(uri, says):
    with refused(ContrasweepError, match=says) as caught:
        checked_tracking(uri)
    assert "secret" not in str(caught.value)


def test_a_checkpoint_is_loaded_by_the_trainables_own_function(tmp_path, monkeypatch):
    make_files(
        tmp_path,
        {
            "with_loader.py": "def load_model(folder, trial): return (folder.name, trial.arm)\n",
            "without_loader.py": "def train(trial, resume=None): yield\n",
        },
    )
    monkeypatch.syspath_prepend(tmp_path)
    trial = replace(make_trials("s")[0], trainable="with_loader:train")
    assert load_checkpoint(trial, Path("/checkpoints/7")) == ("7", "scl")
    assert (
        load_checkpoint(replace(trial, trainable="without_loader:train"), Path("/checkpoints/7"))
        is None
    )


@settings(max_examples=50)
@given(st.text(min_size=1, max_size=300) | st.text("a./", min_size=1, max_size=300))
@example("/").via("found by hypothesis in a run of CI")
def test_mlflow_takes_any_metric_name(name):
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(metric_key(name))


def test_a_run_s_name_is_no_longer_than_postgresql_takes_it():
    trial = Trial("s", "a", "m:f", {"prompt": "classify the picture " * 20}, DATA)
    shown = describe_run(TrackedStudy("s", axes=("prompt",)), trial)
    assert shown.name.startswith("a prompt=classify") and len(shown.name) == 250
