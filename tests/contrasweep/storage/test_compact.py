"""Compacted studies: what they tell is what the single files tell, whatever happened to these since."""

from dataclasses import replace

import numpy as np
import pytest

from contrasweep.storage import compact
from contrasweep.storage.record import DatasetRef, Record, Status
from contrasweep.storage.records import StudyRecords

TRIALS = [f"trial{i}" for i in range(6)]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(compact, "MIN_OBJECTS_TO_COMPACT", 3)


@pytest.fixture(params=["folder", "s3"])
def records(request, tmp_path):
    storage = request.getfixturevalue("s3").uri if request.param == "s3" else str(tmp_path)
    created = StudyRecords(storage, "compacted")
    for i, trial_id in enumerate(TRIALS):
        finish(created, trial_id, float(i))
    return created


def finish(records, trial_id, value):
    rows = [
        {"step": step, "time": 10.0 * step, "loss": value / step, **({"accuracy": value} if step == 2 else {})}
        for step in (1, 2)
    ]
    records.write_metrics(trial_id, rows)
    records.write(
        Record(
            trial_id, "compacted", "a", "m:f", {}, DatasetRef("d", "x"), 0, 0, Status.DONE, {"accuracy": value}, step=2
        )
    )


def read(records, wanted=None):
    etags = compact.record_etags(records)
    return compact.read_records(records, etags), compact.read_curves(
        records, etags, etags if wanted is None else wanted
    )


def assert_true(records):
    """What is read is what each single file holds."""
    recorded, curves = read(records)
    assert recorded == records.read(records.finished())
    assert set(curves["trial_id"]) == records.finished()
    for trial_id, rows in curves.groupby("trial_id", observed=True):
        result = [
            {k: v for k, v in row.items() if k != "trial_id" and not np.isnan(v)}
            for row in rows.drop(columns="trial_id").to_dict("records")
        ]
        assert result == records.metrics(trial_id)


def test_the_second_reading_needs_two_files(records, monkeypatch):
    assert_true(records)
    before, got = read(records), []
    plain = records.store.read
    monkeypatch.setattr(type(records.store), "read", lambda _, key: got.append(key) or plain(key))
    after = read(records)
    assert sorted(got) == ["compacted/compact/curves.parquet", "compacted/compact/records.parquet"]
    assert after[0] == before[0]
    assert (
        after[1]
        .sort_values(["trial_id", "step"])
        .reset_index(drop=True)
        .equals(before[1].sort_values(["trial_id", "step"]).reset_index(drop=True))
    )


@pytest.mark.parametrize("change", ["again", "forgotten", "new", "deleted files", "damaged files"])
def test_what_changed_since_is_seen(records, change):
    read(records)
    if change == "again":
        records.reopen(TRIALS[1])
        finish(records, TRIALS[1], 100.0)
    elif change == "forgotten":
        records.reopen(TRIALS[2])
    elif change == "new":
        finish(records, "new", 7.0)
    else:
        for name in (compact.RECORDS, compact.CURVES):
            key = f"compacted/{name}"
            records.store.delete(key) if change == "deleted files" else records.store.write(
                key, b"PAR1 and nothing more"
            )
    assert_true(records)
    assert_true(records)


def test_a_record_rewritten_with_another_status_is_read_again(records):
    recorded, _ = read(records)
    records.write(replace(recorded[TRIALS[0]], status="pruned"))
    assert read(records)[0][TRIALS[0]].status == "pruned"


def test_curves_of_some_trials_and_of_one_that_still_runs(records):
    read(records)
    records.write_metrics("running", [{"step": 1, "time": 1.0, "loss": 5.0}])
    _, curves = read(records, [TRIALS[3], "running", "unknown"])
    assert sorted(set(curves["trial_id"])) == ["running", TRIALS[3]]
    records.write_metrics("running", [{"step": 1, "time": 1.0, "loss": 4.0}])
    _, curves = read(records, ["running"])
    assert list(curves["loss"]) == [4.0]


def test_a_small_study_is_not_compacted(records, monkeypatch):
    monkeypatch.setattr(compact, "MIN_OBJECTS_TO_COMPACT", 100)
    assert_true(records)
    assert not any("/compact/" in key for key in records.store.list("compacted/"))


def test_nothing_at_all(tmp_path):
    recorded, curves = read(StudyRecords(str(tmp_path), "empty"))
    assert recorded == {} and list(curves.columns) == ["trial_id", "step", "time"] and curves.empty
