"""study.json and record.json: what is written, what earlier releases wrote, and what a later one did.

`tests/data/study_v1` was written by the code of commit caedfde: `old-grid` with two finished trials, one that failed
and one that was interrupted after its second checkpoint; `old-sweep` with a search of two configurations an arm.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

import contrasweep as cs
from contrasweep.data.manifest import Manifest
from contrasweep.errors import StorageError
from contrasweep.report import render
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import RECORD_FILE, DatasetRef, Phase, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import STUDY_FILE, DeclaredSearch, StudyDocument
from contrasweep.tracking import sync
from contrasweep.trial import Trial

V1 = Path(__file__).resolve().parents[2] / "data" / "study_v1"
TRIAL = Trial("s", "a", "m:f", {"lr": 0.1}, Manifest("d", "/d", "image", {}), 1, 7)
DOCUMENT = StudyDocument(
    name="s",
    metric="accuracy",
    arms=("a", "b"),
    axes=("lr",),
    folds=5,
    search=DeclaredSearch("tpe", 1, {"trials": 4}),
    datasets=(DatasetRef("d", "dd", synthetic=True),),
    spec={"arms": {"a": {"space": {"lr": {"low": 0.1}}}}, "constraints": {"loss": "<= 1"}},
)


@pytest.fixture
def old(tmp_path):
    """The storage of the earlier release, in a place of its own."""
    return Path(shutil.copytree(V1, tmp_path / "storage"))


def test_a_document_is_read_as_it_was_written():
    assert STUDY_FILE.decode(DOCUMENT.to_json(), "study.json") == DOCUMENT
    assert STUDY_FILE.decode(dataclasses.replace(DOCUMENT, search=None).to_json(), "").search is None
    assert (DOCUMENT.goals, DOCUMENT.constraints) == ({"accuracy": "max"}, {"loss": "<= 1"})
    assert (DOCUMENT.space("a"), DOCUMENT.space("b"), DOCUMENT.train_fraction) == ({"lr": {"low": 0.1}}, {}, 0.8)


def test_the_error_of_a_file_whose_name_is_not_text_is_read_back():
    record = Record.of(TRIAL, status=Status.FAILED, error="no such file: caf\udce9")
    assert RECORD_FILE.decode(record.to_json(), "").error == "no such file: caf\\udce9"


def test_a_record_is_made_from_its_trial_and_reports():
    rows = [{"step": 1, "time": 5.0, "loss": 2.0}, {"step": 2, "time": 8.0, "loss": 1.0}]
    notes = TrialNotes(phase=Phase.SEARCH, candidate=0, gpus=0.0)
    record = Record.of(TRIAL, status=Status.DONE, rows=rows, ended=9.0, notes=notes)
    assert (record.trial_id, record.study, record.arm, record.fold, record.seed) == (TRIAL.id, "s", "a", 1, 7)
    assert (record.metrics, record.step, record.started, record.ended) == ({"loss": 1.0}, 2, 5.0, 9.0)
    assert RECORD_FILE.decode(record.to_json(), "record.json") == record
    content = json.loads(record.to_json())
    assert content["status"] == "done" and content["notes"] == {"phase": "search", "candidate": 0, "gpus": 0.0}


@pytest.mark.parametrize("name", ["study.json", "record.json"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content | {"format_version": 9}, "has format version 9, .* up to [34]; use the release"),
        (lambda content: content | {"colour": 1}, "is broken"),
        (lambda content: [content], "is broken"),
        (lambda content: {k: v for k, v in content.items() if k != "format_version"}, "is broken"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(tmp_path, name, damage, said):
    records = StudyRecords(str(tmp_path), "s")
    key = "s/study.json" if name == "study.json" else records.key(TRIAL.id, name)
    whole = DOCUMENT.to_json() if name == "study.json" else Record.of(TRIAL, status=Status.FAILED).to_json()
    records.store.write(key, json.dumps(damage(json.loads(whole))).encode())
    with pytest.raises(StorageError, match=said) as caught:
        records.document() if name == "study.json" else records.read_one(TRIAL.id)
    assert str(caught.value).startswith(f"{tmp_path}/{key} ") and "\n" not in str(caught.value)


def test_an_old_grid_is_read(old):
    document = StudyRecords(str(old), "old-grid").document()
    assert (document.type, document.metric, document.folds, document.trials) == ("ablation_grid", "f1_macro", 2, 4)
    assert (document.arms, document.axes, document.search) == (("supcon", "ocl"), ("batch_size",), None)
    assert document.datasets[0].name == "digits-lt" and document.spec["axes"] == {"batch_size": [128]}
    records = StudyRecords(str(old), "old-grid")
    recorded = records.read(records.finished())
    assert sorted(record.status for record in recorded.values()) == [Status.DONE, Status.DONE, Status.FAILED]
    [failed] = [record for record in recorded.values() if record.status == Status.FAILED]
    assert "the loss is not finite" in failed.error and failed.config["temperature"] == 0.2
    notes = {record.fold: record.notes for record in recorded.values() if record.status == Status.DONE}
    assert notes[1] == TrialNotes(gpus=0.0)
    assert notes[0] == TrialNotes(
        gpus=0.5, gpu_type="T4", cost_per_hour=1.5, architecture="0123456789abcdef", counted_gib=0.75
    )


def test_an_unfinished_trial_of_an_old_grid_has_its_checkpoint(old, tmp_path):
    results, records = cs.load("old-grid", storage=str(old)), StudyRecords(str(old), "old-grid")
    [pending] = results.planned.loc[results.to_frame()["status"] == "pending", "trial_id"]
    (tmp_path / "to").mkdir()
    saved = Checkpoints(records.store, records.key(pending, "checkpoint")).fetch(tmp_path / "to")
    assert saved.step == 2 and (tmp_path / "to" / "state.pt").exists()


@pytest.mark.slow
def test_old_studies_are_reported_as_their_release_did(old):
    grid, sweep = (cs.load(name, storage=str(old)) for name in ("old-grid", "old-sweep"))
    cells = {row[0]: cell for (row, _), cell in grid.table(rows="arm", columns=[]).cells.items()}
    assert (cells["supcon"].mean, cells["supcon"].n) == (0.6170250852652521, 2)
    assert cells["ocl"].statuses == {"failed": 1, "pending": 1}
    assert {row["mean"] for row in sweep.table().to_frame().to_dict("records")} == {0.7280608243178632}
    assert sweep.spent()["ocl"].startswith("2 of 2 configurations, 6 epochs")
    assert len(sweep.search) == 4 and "temperature" in sweep.search
    for results in (grid, sweep):
        assert all(render(results, format) for format in ("text", "markdown", "latex", "html", "csv"))


def test_the_notes_of_an_old_search_are_translated(old):
    results = cs.load("old-sweep", storage=str(old))
    assert sorted((r.arm, r.notes.candidate) for r in results.search_records.values()) == [
        ("ocl", 0),
        ("ocl", 1),
        ("supcon", 0),
        ("supcon", 1),
    ]
    assert {r.notes.phase for r in results.trial_records.values()} == {Phase.CONFIRM}
    assert results.document.search == DeclaredSearch("random", 1, {"trials": 2})


@pytest.mark.slow
@pytest.mark.xdist_group("tracking")
def test_old_studies_are_synced_into_a_fresh_tracking_store(old, tmp_path):
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    records = StudyRecords(str(old), "old-grid")
    assert sync(records, uri).added == 3
    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("old-grid").experiment_id])
    shown = sorted(run.data.tags["status"] for run in runs if "trial_id" in run.data.tags)
    assert shown == ["done", "done", "failed"]
    assert sync(records, uri).unchanged == 3
