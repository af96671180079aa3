"""A run that is put into sqlite whole equals the one that MLflow's own calls make, value by value."""

import math
import shutil
import unittest.mock
from pathlib import Path
from typing import Any

import pytest

from contrasweep.data.manifest import Manifest
from contrasweep.storage.record import CodeRef, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking import MlflowTracker, TrackedStudy, sync
from contrasweep.tracking.mlflow import whole_runs
from contrasweep.tracking.mlflow.whole_runs import RunInserter
from contrasweep.trial import Trial

pytestmark = pytest.mark.xdist_group("tracking")

DATA = Manifest("synthetic-metrics", "", "image", {}, source={"synthetic": True})
T0 = 1_700_000_000.0
CASES: dict[str, tuple[list[dict[str, float]], dict[str, Any]]] = {
    "done": ([{"loss": 2.0, "accuracy": 0.5}, {"loss": 1.0}, {"accuracy": 0.75}], {"status": Status.DONE}),
    "odd numbers": ([{"loss": math.inf, "a/b c": math.nan}, {"loss": -math.inf, "accuracy": 0.5}], {}),
    "failed": ([{"loss": 1.0}], {"status": Status.FAILED, "error": "Traceback\nValueError: no\n"}),
    "never trained": ([], {"status": Status.INFEASIBLE, "error": "no host has 900 GiB\n"}),
    "with an artifact": ([{"accuracy": 1.0}], {"artifacts": ("figures/a.txt",)}),
    "used": ([{"accuracy": 1.0}], {"gpu_memory_gib": 1.5, "notes": TrialNotes(gpus=0.5), "code": CodeRef("ab" * 8)}),
}


@pytest.fixture
def records(tmp_path: Path) -> StudyRecords:
    return StudyRecords(str(tmp_path / "runs"), "s")


def trial_of(seed: int) -> Trial:
    return Trial("s", "a", "m:f", {"lr": 0.1 * seed, "deep": {"n": seed, "name": "x"}}, DATA, fold=1, seed=seed)


def write(records: StudyRecords, trial: Trial, rows: list[dict[str, float]], **fields: Any) -> Record:
    whole = [{"step": 2 * i + 1, "time": T0 + i, **row} for i, row in enumerate(rows)]
    if whole:
        records.write_metrics(trial.id, whole)
        records.write_system(trial.id, [{"step": 1, "time": T0, "host_memory_gib": 0.5}])
    for name in fields.get("artifacts", ()):
        records.store.write(records.key(trial.id, f"artifacts/{name}"), b"drawn")
    given = {"status": Status.DONE, "seconds": 3.0, "started": T0, "ended": T0 + 9, "host": "h"} | fields
    record = Record.of(trial, rows=whole, **given)
    records.write(record)
    return record


def shown(client: Any) -> dict[str, Any]:
    """All that MLflow has of the trials' runs, by trial, but what is drawn by lot: their ids."""
    found = {}
    for run in client.search_runs([client.get_experiment_by_name("s").experiment_id]):
        if (trial_id := run.data.tags.get("trial_id")) is None:
            continue
        run_id = run.info.run_id
        history = {
            key: sorted(map(_value, client.get_metric_history(run_id, key)), key=repr) for key in run.data.metrics
        }
        inputs = [
            (given.dataset.to_dictionary(), [(tag.key, tag.value) for tag in given.tags])
            for given in run.inputs.dataset_inputs
        ]
        tags = {key: value for key, value in run.data.tags.items() if key != "mlflow.parentRunId"}
        info = {name: getattr(run.info, name) for name in ("run_name", "status", "start_time", "end_time", "user_id")}
        place = run.info.artifact_uri.replace(run_id, "ID").rpartition("/s/")[2]
        files = sorted(_files(client, run_id))
        last = sorted(map(_value, run.data._metric_objs), key=repr)
        found[trial_id] = (info, place, run.info.lifecycle_stage, run.data.params, tags, history, last, inputs, files)
    return found


def _value(metric: Any) -> tuple[Any, ...]:
    return metric.key, repr(metric.value), metric.timestamp, metric.step


def _files(client: Any, run_id: str, folder: str = "") -> list[str]:
    entries = client.list_artifacts(run_id, folder)
    return [path for e in entries for path in (_files(client, run_id, e.path) if e.is_dir else [e.path])]


def test_it_is_the_run_that_mlflow_would_make(records, tmp_path, template):
    from mlflow import MlflowClient

    trials = [trial_of(seed) for seed in range(len(CASES))]
    for trial, (rows, fields) in zip(trials, CASES.values(), strict=True):
        write(records, trial, rows, **fields)
    tracked = TrackedStudy.of("s", trials, metric="accuracy", storage=records.storage)
    found = {}
    for way in ("MLflow's calls", "whole"):
        uri = f"sqlite:///{shutil.copy(template, tmp_path / f'{way[0]}.db')}"
        calls = unittest.mock.patch.object(RunInserter, "of", return_value=None)
        with calls if way != "whole" else unittest.mock.patch.object(RunInserter, "insert", autospec=True) as made:
            if way == "whole":
                made.side_effect = whole_insert
            assert sync(records, uri, tracked).added == len(trials)
        if way == "whole":
            assert made.call_count == len(trials)
        assert sync(records, uri, tracked).unchanged == len(trials)
        found[way] = shown(MlflowClient(uri))
    ours, theirs = found["whole"], found["MLflow's calls"]
    assert ours.keys() == theirs.keys() == {trial.id for trial in trials}
    for name, trial in zip(CASES, trials, strict=True):
        assert ours[trial.id] == theirs[trial.id], name


whole_insert = RunInserter.insert


def test_a_tracker_inserts_what_has_ended_and_goes_on_with_what_has_not(records, tmp_path, template):
    """The first trial has a run from before, the others have ended before the tracker's thread looks."""
    from mlflow import MlflowClient

    first, *others = trials = [trial_of(seed) for seed in range(4)]
    tracked = TrackedStudy.of("s", trials, metric="accuracy", storage=records.storage)
    uri = f"sqlite:///{shutil.copy(template, tmp_path / 'mlflow.db')}"
    with unittest.mock.patch.object(RunInserter, "insert", autospec=True, side_effect=whole_insert) as insert:
        interrupted = MlflowTracker(uri, tracked, records, flush_s=1e6)
        interrupted.start(first)
        assert interrupted.close(600.0) is None and insert.call_count == 0
        tracker = MlflowTracker(uri, tracked, records, flush_s=1e6)
        for trial in trials:
            tracker.start(trial)
            tracker.report(trial.id, 1, {"accuracy": 0.5}, T0)
            tracker.finish(write(records, trial, [{"accuracy": 0.5}, {"accuracy": 0.25}]))
        assert tracker.close(600.0) is None
    assert insert.call_count == len(others)
    found = shown(MlflowClient(uri))
    assert found.keys() == {trial.id for trial in trials}
    for _, _, _, _, tags, history, _, _, _ in found.values():
        assert tags["status"] == "done"
        assert [value[1:] for value in history["accuracy"]] == [
            ("0.25", (int(T0) + 1) * 1000, 3),
            ("0.5", int(T0) * 1000, 1),
        ]


def test_an_mlflow_with_other_tables_is_called_instead(tmp_path, template):
    import sqlalchemy
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{shutil.copy(template, tmp_path / 'mlflow.db')}")
    assert RunInserter.of(client, "0") is not None
    needs_more = sqlalchemy.Table(
        "params", sqlalchemy.MetaData(), *(sqlalchemy.Column(name, nullable=False) for name in ("key", "value", "kind"))
    )
    assert not whole_runs._fits(needs_more, {"key": "", "value": ""})
    with unittest.mock.patch("mlflow.store.tracking.dbmodels.models.SqlInputTag", None):
        assert RunInserter.of(client, "0") is None
    with unittest.mock.patch.dict("sys.modules", {"mlflow.utils.uri": None}):
        assert RunInserter.of(client, "0") is None
