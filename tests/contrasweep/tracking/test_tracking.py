"""Every tracking store passes one suite: a sqlite file, and a real MLflow server over HTTP."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.tracking_services import mlflow_server, wait_until
from contrasweep.data.manifest import Manifest, Shard
from contrasweep.errors import ContrasweepError, StorageError
from contrasweep.storage.record import RECORD_FILE, CodeRef, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study.dotted import flatten
from contrasweep.tracking import (
    MlflowTracker,
    NoTracker,
    StudyPages,
    SyncGap,
    TrackedStudy,
    checked_uri,
    load_checkpoint,
    open_tracker,
    read_links,
    serve,
    sync,
)
from contrasweep.tracking.mlflow import server
from contrasweep.tracking.mlflow.description import DIGEST_TAG, describe_run, metric_key, record_digest, run_name
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.mlflow.view import shared_view
from contrasweep.trial import Trial

pytestmark = pytest.mark.xdist_group("tracking")  # one server for all of them

DATA = Manifest("digits-lt", "/data/digits-lt", "image", {"train": (Shard("train-0.parquet", 1437, 1, "0" * 64),)})
T0 = 1_700_000_000.0


def make_trials(study: str) -> list[Trial]:
    """Two arms with different config keys, two batch sizes, two folds."""
    arms = {"scl": {"loss": "supcon"}, "ocl": {"loss": "ocl", "head": {"dim": 64}}}
    return [
        Trial(study, arm, "trainables.contrastive:train", config | {"batch_size": b, "lr": 0.1}, DATA, fold)
        for arm, config in arms.items()
        for b in (4, 32)
        for fold in (0, 1)
    ]


def make_rows(trial: Trial, steps: int = 5) -> list[dict[str, Any]]:
    """Reports as the records keep them; accuracy is given at every other step only."""
    base = int(trial.id[:4], 16) / 1e6
    return [
        {"step": s, "time": T0 + s, "loss": base + 1 / s} | ({"accuracy": base + s / 10} if s % 2 else {})
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

    @property
    def tracked(self) -> TrackedStudy:
        return TrackedStudy.of(
            self.name,
            self.trials,
            axes=("batch_size",),
            metric="accuracy",
            plan_digest="ab" * 32,
            storage=self.records.storage,
            extra={"data": "digits-lt", "folds": 2},
        )

    def tracker(self, **options: Any) -> MlflowTracker:
        return MlflowTracker(self.uri, self.tracked, options.pop("records", self.records), flush_s=0.05, **options)

    def record(self, trial: Trial, rows: list[dict[str, Any]] | None = None, **fields: Any) -> Record:
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

    def runs(self) -> list[Any]:
        experiment = self.client.get_experiment_by_name(self.name)
        return [] if experiment is None else list(self.client.search_runs([experiment.experiment_id], max_results=1000))

    def children(self) -> dict[str, Any]:
        """Runs by trial id; fails if a trial has two."""
        runs = [run for run in self.runs() if "trial_id" in run.data.tags]
        assert len({run.data.tags["trial_id"] for run in runs}) == len(runs)
        return {run.data.tags["trial_id"]: run for run in runs}

    def parent(self) -> Any:
        (parent,) = [run for run in self.runs() if "trial_id" not in run.data.tags]
        return parent

    def history(self, run: Any, key: str) -> list[tuple[int, float, int]]:
        points = self.client.get_metric_history(run.info.run_id, key)
        return sorted((metric.step, metric.value, metric.timestamp) for metric in points)

    def assert_shows(self, trial: Trial, rows: list[dict[str, Any]] | None = None) -> None:
        """The run's histories are exactly those rows: nothing lost, nothing twice."""
        run = self.children()[trial.id]
        for key in ("loss", "accuracy"):
            want = [(r["step"], r[key], int(r["time"] * 1000)) for r in (rows or make_rows(trial)) if key in r]
            assert self.history(run, key) == want


def go_on(study: Study, trial: Trial, rows: list[dict[str, Any]]) -> None:
    """A second driver logs the rows that are left and ends the trial; then MLflow has all of it."""
    tracker = study.tracker()
    tracker.start(trial)
    for row in rows:
        tracker.report(trial.id, row["step"], {k: row[k] for k in row if k in ("loss", "accuracy")}, row["time"])
    tracker.finish(study.record(trial, attempts=2))
    assert tracker.close() is None
    study.assert_shows(trial)


def run_live(study: Study, tracker: MlflowTracker, trial: Trial, rows: list[dict[str, Any]] | None = None) -> Record:
    """What a driver does for one trial."""
    rows = make_rows(trial) if rows is None else rows
    tracker.start(trial)
    for row in rows:
        tracker.report(trial.id, row["step"], {k: v for k, v in row.items() if k not in ("step", "time")}, row["time"])
    record = study.record(trial, rows)
    tracker.finish(record)
    return record


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
def server_uri(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(template, folder / "mlflow.db")
    with mlflow_server(f"sqlite:///{folder}/mlflow.db", str(folder / "artifacts"), folder) as server:
        yield server.uri


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory: pytest.TempPathFactory, template: Path) -> str:
    folder = tmp_path_factory.mktemp("sqlite")
    return f"sqlite:///{shutil.copy(template, folder / 'mlflow.db')}"


@pytest.fixture(params=["sqlite", pytest.param("server", marks=pytest.mark.slow)])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> Study:
    from mlflow import MlflowClient

    uri = request.getfixturevalue(f"{request.param}_uri")
    name = f"{request.node.originalname}-{time.monotonic_ns()}"
    return Study(uri, name, make_trials(name), StudyRecords(str(tmp_path / "storage"), name), MlflowClient(uri))


def test_shows_every_trial_of_a_study(study: Study) -> None:
    tracker = study.tracker()
    for trial in study.trials:
        run_live(study, tracker, trial)
    assert tracker.close() is None

    children, parent = study.children(), study.parent()
    assert set(children) == {trial.id for trial in study.trials} == set(tracker.run_ids())
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    assert parent.info.run_name == study.name and parent.info.status == "FINISHED"
    assert parent.data.tags["plan_digest"] == "ab" * 32
    for trial in study.trials:
        study.assert_shows(trial)
        run = children[trial.id]
        assert run.info.run_name == f"{trial.arm} batch_size={trial.config['batch_size']} fold={trial.fold} seed=0"
        assert {
            "arm": trial.arm,
            "fold": str(trial.fold),
            "seed": "0",
            "status": "done",
        }.items() <= run.data.tags.items()
        assert run.info.status == "FINISHED" and run.info.end_time == int((T0 + 9) * 1000)
        assert run.data.metrics["system/param.lr"] == 0.1
        assert run.data.metrics["system/training_seconds"] == 4.5 and run.data.metrics["system/host_memory_gib"] == 0.75
        (used,) = run.inputs.dataset_inputs
        assert used.dataset.name == "digits-lt" and DATA.digest.startswith(used.dataset.digest)
    assert len({frozenset(run.data.params) for run in children.values()}) == 1
    heads = {run.data.tags["arm"]: run.data.params["head.dim"] for run in children.values()}
    assert heads == {"scl": "-", "ocl": "64"}


def test_numeric_settings_filter_by_size(study: Study) -> None:
    tracker = study.tracker()
    for trial in study.trials:
        run_live(study, tracker, trial)
    assert tracker.close() is None
    experiment = study.client.get_experiment_by_name(study.name).experiment_id
    history = study.client.search_runs([experiment], "metrics.`system/param.batch_size` > 8")
    assert {run.data.tags["trial_id"] for run in history} == {
        t.id for t in study.trials if t.config["batch_size"] == 32
    }


def test_nothing_is_shown_twice(study: Study) -> None:
    for trial in study.trials[:3]:
        study.record(trial)
    assert sync(study.records, study.uri, study.tracked).added == 3
    before = {trial_id: view(run) for trial_id, run in study.children().items()}
    again = sync(study.records, study.uri, study.tracked)
    assert (again.added, again.mended, again.unchanged) == (0, 0, 3)
    tracker = study.tracker()
    for record in study.records.read(study.records.finished()).values():
        tracker.finish(record)
    assert tracker.close() is None
    assert {trial_id: view(run) for trial_id, run in study.children().items()} == before
    for trial in study.trials[:3]:
        study.assert_shows(trial)


def test_sync_shows_what_live_tracking_shows(study: Study) -> None:
    tracker = study.tracker()
    for trial in study.trials:
        run_live(study, tracker, trial)
    assert tracker.close() is None
    live = {trial_id: view(run) for trial_id, run in study.children().items()}
    for run in study.runs():
        study.client.delete_run(run.info.run_id)
    assert sync(study.records, study.uri, study.tracked).added == len(study.trials)
    assert {trial_id: view(run) for trial_id, run in study.children().items()} == live
    assert study.parent().info.status == "FINISHED"


def test_sync_needs_nothing_but_the_records(study: Study) -> None:
    for trial in study.trials:
        study.record(trial)
    sync(study.records, study.uri)
    assert len({frozenset(run.data.params) for run in study.children().values()}) == 1
    study.assert_shows(study.trials[0])


def test_a_trial_resumed_by_another_driver_has_one_whole_history(study: Study) -> None:
    """The first driver dies after step 3, of which MLflow got two; the second goes on from the checkpoint at 2."""
    trial, rows = study.trials[0], make_rows(study.trials[0])
    first = study.tracker()
    first.start(trial)
    for row in rows[:2]:
        first.report(trial.id, row["step"], {"loss": row["loss"]}, row["time"])
    wait_until(
        lambda: trial.id in study.children() and "loss" in study.children()[trial.id].data.metrics, "first reports"
    )
    wait_until(lambda: len(study.history(study.children()[trial.id], "loss")) == 2, "two reports")
    first._inbox.stop()

    go_on(study, trial, rows[3:])


def test_what_a_dead_driver_never_sent_comes_from_the_records(study: Study) -> None:
    """The first driver dies before MLflow knows its trial; the second trains from the checkpoint at step 2."""
    trial, rows = study.trials[0], make_rows(study.trials[0])
    go_on(study, trial, rows[2:])


def test_reports_that_memory_does_not_hold_come_from_the_records(study: Study) -> None:
    tracker = study.tracker(backlog=4)
    for trial in study.trials[:2]:
        run_live(study, tracker, trial)
    assert tracker.close() is None
    for trial in study.trials[:2]:
        study.assert_shows(trial)


def test_a_gap_counts_what_the_driver_could_not_hand_over_in_time(study: Study) -> None:
    """A driver that ends while most of its trials have not been looked at yet says how many MLflow lacks."""
    tracker = study.tracker()
    for trial in study.trials:
        tracker.start(trial)
        tracker.finish(study.record(trial))
    gap = tracker.close(timeout_s=0.0)
    assert isinstance(gap, SyncGap)
    tracker._thread.join(60)  # the batch under way when it gave up is sent
    shown = [run for run in study.children().values() if run.info.status == "FINISHED"]
    assert len(study.trials) - len(shown) <= len(gap.trials) <= len(study.trials)
    result = sync(study.records, study.uri, study.tracked)
    assert result.added + result.mended == len(study.trials) - len(shown)


def test_the_shared_view_groups_the_metric_by_arm(study: Study) -> None:
    view = json.loads(shared_view(study.tracked))
    assert view["groupBy"]["groupByKeys"] == [{"mode": "param", "groupByData": "arm"}]
    assert {chart["metricKey"] for chart in view["compareRunCharts"]} == {"accuracy"}
    assert {chart["metricSectionId"] for chart in view["compareRunCharts"]} == {view["compareRunSections"][0]["uuid"]}


def test_a_gap_is_told_and_sync_fills_it(study: Study) -> None:
    tracker = study.tracker(backlog=4, records=None)
    run_live(study, tracker, study.trials[0])
    gap = tracker.close()
    assert isinstance(gap, SyncGap) and gap.trials == (study.trials[0].id,) and "contrasweep sync" in str(gap)
    assert "\n" not in str(gap)
    assert sync(study.records, study.uri, study.tracked).mended == 1
    study.assert_shows(study.trials[0])


def test_ends_are_told_apart(study: Study) -> None:
    error = "Traceback (most recent call last):\n  ...\nValueError: loss is NaN"
    ends = {Status.FAILED: {"error": error}, Status.PRUNED: {}, Status.INFEASIBLE: {"step": 0}}
    tracker = study.tracker()
    for trial, (status, fields) in zip(study.trials, ends.items(), strict=False):
        rows = [] if status == Status.INFEASIBLE else make_rows(trial)
        tracker.finish(study.record(trial, rows, status=status, metrics={}, **fields))
    tracker.start(study.trials[5])
    assert tracker.close() is None
    runs = study.children()
    shown = {run.data.tags["status"]: run.info.status for run in runs.values()}
    assert shown == {"failed": "FAILED", "pruned": "KILLED", "infeasible": "KILLED", "pending": "SCHEDULED"}
    failed = runs[study.trials[0].id]
    assert (
        failed.data.tags["error"] == "ValueError: loss is NaN"
        and "Traceback" in failed.data.tags["mlflow.note.content"]
    )
    assert [f.path for f in study.client.list_artifacts(failed.info.run_id)] == ["traceback.txt"]
    assert Path(study.client.download_artifacts(failed.info.run_id, "traceback.txt")).read_text() == error
    assert study.parent().info.status == "SCHEDULED"
    assert study.parent().data.tags["trials"] == "1 pruned, 1 failed, 1 infeasible of 8"


def test_an_interrupted_trial_runs_again_in_the_same_run(study: Study) -> None:
    trial = study.trials[0]
    first = study.tracker()
    first.start(trial)
    first.report(
        trial.id, 1, {"loss": make_rows(trial)[0]["loss"], "accuracy": make_rows(trial)[0]["accuracy"]}, T0 + 1
    )
    assert first.close() is None
    parked = study.children()[trial.id]
    second = study.tracker()
    run_live(study, second, trial)
    assert second.close() is None
    assert study.children()[trial.id].info.run_id == parked.info.run_id
    assert study.children()[trial.id].info.status == "FINISHED"
    study.assert_shows(trial)


def test_a_trial_run_again_from_its_start_replaces_its_run(study: Study) -> None:
    trial = study.trials[0]
    tracker = study.tracker()
    run_live(study, tracker, trial, make_rows(trial, 3))
    assert tracker.close() is None
    rows = [row | {"loss": row["loss"] + 1} for row in make_rows(trial)]
    tracker = study.tracker()
    run_live(study, tracker, trial, rows)
    assert tracker.close() is None
    study.assert_shows(trial, rows)


def test_what_was_deleted_in_the_ui_comes_back(study: Study) -> None:
    for trial in study.trials[:2]:
        study.record(trial)
    sync(study.records, study.uri, study.tracked)
    study.client.delete_run(study.children()[study.trials[0].id].info.run_id)
    assert sync(study.records, study.uri, study.tracked).added == 1
    study.client.delete_experiment(study.client.get_experiment_by_name(study.name).experiment_id)
    sync(study.records, study.uri, study.tracked)
    assert len(study.children()) == 2


def test_a_run_deleted_while_its_trial_trains_is_made_again(study: Study) -> None:
    trial, rows = study.trials[0], make_rows(study.trials[0])
    tracker = study.tracker()
    tracker.start(trial)
    wait_until(lambda: trial.id in study.children(), "the run")
    wait_until(lambda: len(study.children()[trial.id].data.params) > 0, "its params")
    study.client.delete_run(study.children()[trial.id].info.run_id)
    for row in rows:
        tracker.report(trial.id, row["step"], {k: row[k] for k in row if k in ("loss", "accuracy")}, row["time"])
    tracker.finish(study.record(trial))
    assert tracker.close() is None
    study.assert_shows(trial)


def test_of_two_runs_of_a_trial_the_finished_one_stays(study: Study) -> None:
    trial = study.trials[0]
    study.record(trial)
    sync(study.records, study.uri, study.tracked)
    kept = study.children()[trial.id]
    study.client.create_run(kept.info.experiment_id, tags={"trial_id": trial.id})
    sync(study.records, study.uri, study.tracked)
    assert study.children()[trial.id].info.run_id == kept.info.run_id


def test_what_a_store_refuses_is_told_and_the_rest_goes_on(study: Study) -> None:
    bad, good = study.trials[:2]
    bad = replace(bad, data=replace(bad.data, name="d" * 600))  # no dataset may have so long a name
    tracker = study.tracker()
    run_live(study, tracker, bad)
    run_live(study, tracker, good)
    gap = tracker.close()
    assert gap is not None and gap.trials == (bad.id,)
    study.assert_shows(good)


def test_sync_goes_on_after_trials_whose_files_cannot_be_read(study: Study) -> None:
    cut, without, *good = study.trials
    for trial in (cut, *good):
        study.record(trial)
    study.record(without, artifacts=("gone.txt",))
    study.records.store.write(study.records.key(cut.id, "metrics.parquet"), b"cut off")
    for _ in range(2):
        with pytest.raises(StorageError, match=r"lacks 2 trials: .*; the other trials are there") as error:
            sync(study.records, study.uri, study.tracked)
        assert f"{cut.id} (" in str(error.value) and f"{without.id} (" in str(error.value)
    for trial in good:
        study.assert_shows(trial)
    study.record(cut)
    with pytest.raises(StorageError, match=f"lacks 1 trial: {without.id} "):
        sync(study.records, study.uri, study.tracked)
    study.assert_shows(cut)


def test_little_is_kept_of_a_run_that_shows_its_record(study: Study) -> None:
    ended, begun = study.trials[:2]
    tracker = study.tracker()
    run_live(study, tracker, ended)
    tracker.start(begun)
    tracker.report(begun.id, 1, {"loss": 0.5}, T0)
    assert tracker.close() is None
    for runs in (tracker._writer.server.runs, reconnected(study).runs):
        assert runs[begun.id].steps and runs[begun.id].params
        assert not (runs[ended.id].steps or runs[ended.id].params or runs[ended.id].sent)
        assert runs[ended.id].tags.keys() == {DIGEST_TAG, "status"}
        assert len(runs[begun.id].tags) > 5


@pytest.mark.parametrize("study", ["sqlite"], indirect=True)
def test_a_local_file_is_read_as_by_mlflow_s_own_search(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    for trial in study.trials[:4]:
        study.record(trial)
    sync(study.records, study.uri, study.tracked)
    study.client.delete_run(study.children()[study.trials[0].id].info.run_id)
    open_run = study.children()[study.trials[1].id].info.run_id
    study.client.delete_tag(open_run, DIGEST_TAG)
    study.client.create_run(study.parent().info.experiment_id, tags={"somebody": "else"})
    one = reconnected(study)
    monkeypatch.setattr(server, "known_runs", lambda *_: None)
    other = reconnected(study)
    assert one.runs == other.runs and one.parent_id == other.parent_id
    assert one.runs.keys() == {trial.id for trial in study.trials[1:4]}
    assert one.runs[study.trials[1].id].steps and not one.runs[study.trials[2].id].steps


def reconnected(study: Study) -> Server:
    """What another driver learns of the study's runs."""
    server = Server(checked_uri(study.uri), study.tracked)
    server.connect()
    return server


def test_of_settings_that_mlflow_shows_as_one_the_trial_s_own_is_shown() -> None:
    trials = [
        Trial("s", arm, "m:f", {name: 1}, Manifest("d", "", "image", {}), seed=0)
        for arm, name in (("a", "k(1"), ("b", "k[1"))
    ]
    study = TrackedStudy.of("s", trials, metric="accuracy")
    assert [describe_run(study, trial).params["k_1"] for trial in trials] == ["1", "1"]


@pytest.mark.parametrize("name", ["lr(max)", "top@k", "../up", "x" * 300])
def test_settings_may_have_any_name(study: Study, name: str) -> None:
    trial = replace(study.trials[0], config={**study.trials[0].config, name: 0.25})
    tracker = study.tracker()
    run_live(study, tracker, trial)
    assert tracker.close() is None
    shown = study.children()[trial.id].data.params
    assert shown[metric_key(name)] == "0.25"
    study.assert_shows(trial)


@pytest.mark.parametrize("study", ["sqlite"], indirect=True)
@pytest.mark.parametrize("live", [True, False])
def test_the_study_run_says_which_code_made_its_trials(study: Study, live: bool) -> None:
    codes = [CodeRef("aa", "1" * 40, dirty=True), CodeRef("bb", "2" * 40), CodeRef("aa", "1" * 40, dirty=True)]
    records = [
        study.record(trial, code=code, ended=T0 + ended)
        for trial, code, ended in zip(study.trials, codes, (1, 3, 2), strict=False)
    ]
    if live:
        tracker = study.tracker()
        for record in records[:1]:
            tracker.finish(record)
        assert tracker.close() is None
        tags = study.parent().data.tags
        assert (tags["code"], tags["mlflow.source.git.commit"], tags["code.dirty"]) == ("aa", "1" * 40, "true")
        tracker = study.tracker()
        for record in records[1:]:
            tracker.finish(record)
        assert tracker.close() is None
    else:
        sync(study.records, study.uri, study.tracked)
    tags = study.parent().data.tags
    assert (tags["code"], tags["mlflow.source.git.commit"], tags["code.dirty"]) == ("bb, aa", "2" * 40, "true")


def test_the_study_run_has_figures_and_the_table(study: Study, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("arm,accuracy\n")
    tracker = study.tracker()
    run_live(study, tracker, study.trials[0])
    tracker.log_study_artifacts(
        {"tables/table.csv": tmp_path / "table.csv"}, note="| arm | accuracy |\n|---|---|", metrics={"best": 0.9}
    )
    assert tracker.close() is None
    parent = study.parent()
    assert [f.path for f in study.client.list_artifacts(parent.info.run_id, "tables")] == ["tables/table.csv"]
    assert parent.data.tags["mlflow.note.content"].startswith("| arm | accuracy |")
    assert parent.data.metrics == {"best": 0.9}
    assert study.client.get_experiment_by_name(study.name).tags["mlflow.note.content"].startswith("| arm |")


def test_a_trained_module_is_loaded_back(study: Study) -> None:
    import mlflow
    import torch

    module, before = torch.nn.Linear(3, 2), mlflow.get_tracking_uri()
    tracker = study.tracker()
    run_live(study, tracker, study.trials[0])
    tracker.log_model(study.trials[0].id, module, step=5)
    tracker.log_model(study.trials[0].id, module, step=5)
    assert tracker.close() is None
    assert mlflow.get_tracking_uri() == before
    run = study.children()[study.trials[0].id]
    (output,) = run.outputs.model_outputs
    mlflow.set_tracking_uri(study.uri)
    try:
        loaded = mlflow.pytorch.load_model(f"models:/{output.model_id}")
        assert run.info.run_id == study.client.get_logged_model(output.model_id).source_run_id
    finally:
        mlflow.set_tracking_uri(before)
    assert torch.equal(loaded.weight, module.weight)


def test_artifacts_of_a_trial_are_with_its_run(study: Study, tmp_path: Path) -> None:
    (tmp_path / "confusion.csv").write_text("0,1\n")
    trial = study.trials[0]
    study.records.store.put_file(study.records.key(trial.id, "artifacts/confusion.csv"), tmp_path / "confusion.csv")
    study.record(trial, artifacts=("confusion.csv",))
    sync(study.records, study.uri, study.tracked)
    run = study.children()[trial.id]
    assert [f.path for f in study.client.list_artifacts(run.info.run_id)] == ["confusion.csv"]


def test_pages_are_told(study: Study) -> None:
    tracker = study.tracker()
    run_live(study, tracker, study.trials[0])
    assert tracker.close() is None
    page = tracker.run_url(study.trials[0].id) or ""
    assert page.startswith("http://127.0.0.1:") and f"/runs/{tracker.run_ids()[study.trials[0].id]}?" in page
    assert tracker.run_url("no such trial") is None


def test_once_settled_what_was_told_is_there(study: Study) -> None:
    """Whoever waits for it does not wait for the next round, which is in an hour here."""
    tracker = MlflowTracker(study.uri, study.tracked, study.records, flush_s=3600)
    run_live(study, tracker, study.trials[0])
    tracker.flush(60)
    study.assert_shows(study.trials[0])
    assert tracker.close() is None


def test_a_sync_keeps_where_the_runs_are(study: Study) -> None:
    assert read_links(study.records).runs == {}
    for trial in study.trials:
        study.record(trial)
    sync(study.records, study.uri, study.tracked)
    links = read_links(study.records)
    assert {i: url.split("/runs/")[1].split("?")[0] for i, url in links.runs.items()} == {
        i: r.info.run_id for i, r in study.children().items()
    }
    assert links.served == study.uri.startswith("http") and links.study.startswith("http://127.0.0.1:")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_dead_server_loses_nothing_and_no_trial_waits(tmp_path: Path, template: Path) -> None:
    """All trials train to their end while the server is dead. One driver gives up on it, and `sync` fills its
    gap; the other is still there when the server comes back."""
    from mlflow import MlflowClient

    shutil.copy(template, tmp_path / "mlflow.db")
    with mlflow_server(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"), tmp_path) as server:
        client = MlflowClient(server.uri)
        patient, hasty = (
            Study(server.uri, name, make_trials(name), StudyRecords(str(tmp_path / "s"), name), client)
            for name in ("patient", "hasty")
        )
        trackers = [patient.tracker(), hasty.tracker()]
        for study, tracker in zip((patient, hasty), trackers, strict=True):
            tracker.start(study.trials[0])
        wait_until(lambda: all(len(tracker.run_ids()) == 1 for tracker in trackers), "the first runs")
        server.kill()
        for study, tracker in zip((patient, hasty), trackers, strict=True):
            for trial in study.trials:
                run_live(study, tracker, trial)
        wait_until(lambda: all(tracker.error for tracker in trackers), "the trackers to notice")
        gap = trackers[1].close(timeout_s=1)
        assert gap is not None and set(gap.trials) == {trial.id for trial in hasty.trials}
        with pytest.raises(ContrasweepError, match="tracking http"):
            sync(hasty.records, hasty.uri, hasty.tracked)
        server.start()
        assert trackers[0].close(60) is None
        sync(hasty.records, hasty.uri, hasty.tracked)
        for trial in patient.trials:
            patient.assert_shows(trial)
        for trial in hasty.trials:
            hasty.assert_shows(trial)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_processes_that_open_a_fresh_store_at_once_share_it(tmp_path: Path) -> None:
    code = (
        "import sys; from contrasweep.tracking.mlflow.client import new_client; "
        "from contrasweep.tracking import TrackingAddress; "
        "new_client(TrackingAddress(sys.argv[1])).create_experiment(sys.argv[2])"
    )
    uri = f"sqlite:///{tmp_path}/fresh.db"
    running = [subprocess.Popen([sys.executable, "-c", code, uri, f"study-{i}"]) for i in range(2)]
    assert [process.wait() for process in running] == [0, 0]


def test_the_ui_of_a_server_is_the_server(server_uri: str) -> None:
    shown: list[str] = []
    assert serve(server_uri, study="no such study", on_ready=shown.append) == 0
    assert shown == [f"{server_uri}/#/experiments?workflowType=machine_learning"]


def test_there_is_no_ui_without_tracking() -> None:
    with pytest.raises(ContrasweepError, match="nothing to show"):
        serve("none")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_ui_shows_a_study_until_it_is_ended(tmp_path: Path, template: Path) -> None:
    """`serve` in a process of its own, as `contrasweep ui` runs it: the address it tells has the study."""
    from mlflow import MlflowClient

    uri = f"sqlite:///{shutil.copy(template, tmp_path / 'mlflow.db')}"
    study = Study(uri, "shown", make_trials("shown"), StudyRecords(str(tmp_path / "s"), "shown"), MlflowClient(uri))
    study.record(study.trials[0])
    sync(study.records, uri, study.tracked)
    code = "import sys; from contrasweep.tracking import serve; sys.exit(serve(sys.argv[1], 5600, 'shown'))"
    with subprocess.Popen([sys.executable, "-u", "-c", code, uri], stdout=subprocess.PIPE, text=True) as shown:
        try:
            line = next(line for line in shown.stdout or [] if "http://127.0.0.1" in line)
            base, page = line.split()[0].split("/#/")
            assert page.startswith(f"experiments/{study.client.get_experiment_by_name('shown').experiment_id}/runs")
            assert study.trials[0].id in replace(study, client=MlflowClient(base)).children()
        finally:
            shown.send_signal(signal.SIGTERM)
        assert shown.wait(60) == 0


def test_importing_tracking_does_not_import_mlflow() -> None:
    code = "import sys, contrasweep.tracking; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": "platform"}).returncode == 0


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("./mlruns", "no tracking store.*use sqlite:///mlflow.db"),
        ("file:///tmp/mlruns", "no tracking store.*use sqlite:///mlflow.db"),
        ("databricks://x", "unknown kind of tracking store"),
        ("sqlite://", "needs a file"),
        ("sqlite:////etc/hostname/mlflow.db", "cannot be written"),
        ("http://127.0.0.1:9", "no MLflow server answers there"),
        ("http://no.such.host.invalid:5000", "no MLflow server answers there"),
        ("postgresql://u:secret@127.0.0.1:9/x", "cannot be reached|needs the Python package"),
        ("mysql://u:secret@127.0.0.1/x", "needs the Python package MySQLdb"),
    ],
)
def test_an_address_that_cannot_work_is_one_line(uri: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ContrasweepError, match=says) as caught:
        open_tracker(uri, TrackedStudy("s"))
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are notes, long enough to be no sqlite header\n" * 50)
    with pytest.raises(ContrasweepError, match="no sqlite database"):
        checked_uri(f"sqlite:///{tmp_path}/notes.db")


def test_a_relative_sqlite_address_holds_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(checked_uri("sqlite:///mlflow.db")) == f"sqlite:///{tmp_path.resolve()}/mlflow.db"
    assert not list(tmp_path.iterdir())


def test_no_tracking_is_a_tracker_too() -> None:
    tracker = open_tracker("none", TrackedStudy("s"))
    tracker.start(make_trials("s")[0])
    assert isinstance(tracker, NoTracker) and tracker.close() is None and not isinstance(tracker, StudyPages)


def test_a_trial_and_its_record_have_one_card(tmp_path: Path) -> None:
    study = Study("none", "s", make_trials("s"), StudyRecords(str(tmp_path), "s"), None)
    for trial in study.trials:
        one, other = describe_run(study.tracked, trial), describe_run(study.tracked, study.record(trial))
        assert one == replace(other, dataset=one.dataset) and one.dataset.digest == other.dataset.digest


def test_a_checkpoint_is_loaded_by_the_trainables_own_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_loader.py").write_text("def load_model(folder, trial): return (folder.name, trial.arm)\n")
    (tmp_path / "without_loader.py").write_text("def train(trial, resume=None): yield\n")
    monkeypatch.syspath_prepend(tmp_path)
    trial = replace(make_trials("s")[0], trainable="with_loader:train")
    assert load_checkpoint(trial, Path("/checkpoints/7")) == ("7", "scl")
    assert load_checkpoint(replace(trial, trainable="without_loader:train"), Path("/checkpoints/7")) is None


configs = st.dictionaries(
    st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8),
    st.one_of(
        st.integers(-9, 9),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.text(max_size=5),
        st.none(),
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(configs, min_size=1, max_size=4))
def test_all_trials_of_a_study_have_the_same_params(configs: list[dict[str, Any]]) -> None:
    trials = [Trial("s", "a", "m:f", config, DATA) for config in configs]
    cards = [describe_run(TrackedStudy.of("s", trials), trial) for trial in trials]
    assert len({frozenset(c.params) for c in cards}) == 1
    for trial, shown in zip(trials, cards, strict=True):
        assert set(flatten(trial.config)) <= set(shown.params)
        assert all(isinstance(value, str) for value in shown.params.values())


@settings(deadline=None, max_examples=50)
@given(st.text(min_size=1, max_size=300) | st.text("a./", min_size=1, max_size=300))
@example("/").via("found by hypothesis in a run of CI")
def test_mlflow_takes_any_metric_name(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(metric_key(name))


def test_run_names_are_readable() -> None:
    tracked = TrackedStudy("s", axes=("batch_size", "lr", "data"))
    trial = Trial("s", "ocl", "m:f", {"batch_size": 32, "lr": 0.00031622776601683794}, DATA, fold=None, seed=3)
    assert run_name(tracked, trial) == "ocl batch_size=32 lr=0.0003162 data=digits-lt seed=3"


def test_a_record_that_differs_in_what_is_shown_has_another_digest(tmp_path: Path) -> None:
    study = Study("none", "s", make_trials("s"), StudyRecords(str(tmp_path), "s"), None)
    record = study.record(study.trials[0])
    assert record_digest(record) == record_digest(RECORD_FILE.decode(record.to_json(), "record.json"))
    assert record_digest(record) != record_digest(replace(record, metrics={"loss": 1.0}))
