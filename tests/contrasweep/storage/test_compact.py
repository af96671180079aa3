"""Compacted studies: what they tell is what the single files tell, whatever happened to these since."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from contrasweep.data.manifest import Manifest
from contrasweep.errors import StorageError
from contrasweep.storage import compact
from contrasweep.storage.parquet_file import encode_table
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.trial import Trial

DATA = Manifest("d", "/nowhere", "image", {})
OF_ID = {
    trial.id: trial
    for trial in (Trial("compacted", "a", "m:f", {}, DATA, 0, seed) for seed in range(9))
}
TRIALS = sorted(OF_ID)[:6]
NEW = sorted(OF_ID)[6:]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(compact, "MIN_OBJECTS_TO_COMPACT", 3)


@pytest.fixture(params=["folder", "s3"])
def records(request, tmp_path):
    storage = request.getfixturevalue("s3").uri if request.param == "s3" else str(tmp_path)
    created = StudyRecords(storage, "compacted")
    created.claim(StudyDocument(name="compacted", metric="accuracy"))
    for i, trial_id in enumerate(TRIALS):
        finish(created, trial_id, float(i))
    created.write_metrics(TRIALS[0], [])
    return created


def finish(records, trial_id, value):
    rows = [
        {
            "step": step,
            "time": 10.0 * step,
            "loss": value / step,
            **({"accuracy": value} if step == 2 else {}),
        }
        for step in (1, 2)
    ]
    records.write_metrics(trial_id, rows)
    records.write(
        Record.of(OF_ID[trial_id], status=Status.DONE, metrics={"accuracy": value}, step=2)
    )


def read(records, wanted=None):
    etags = records.etags()
    return compact.read_records(records, etags=etags), compact.read_curves(
        records, etags, etags if wanted is None else wanted
    )


def assert_true(records):
    """What is read is what each single file holds."""
    recorded, curves = read(records)
    assert recorded == records.read(records.finished())
    assert len({id(record.config) for record in recorded.values()}) == 1, (
        "what replicates share is held once"
    )
    assert set(curves["trial_id"]) == {one for one in records.finished() if records.metrics(one)}
    for trial_id, rows in curves.groupby("trial_id", observed=True):
        result = [
            {k: v for k, v in row.items() if k != "trial_id" and not np.isnan(v)}
            for row in rows.drop(columns="trial_id").to_dict("records")
        ]
        assert result == records.metrics(trial_id)


def parts(records, kind="records"):
    """The keys of a kind's parts."""
    return set(records.store.list(f"compacted/compact/{kind}"))


def keys_read(records, monkeypatch):
    """A list of the keys that are read from now on."""
    got = []
    plain = records.store.read
    monkeypatch.setattr(
        type(records.store), "read", lambda _, key, *limit: got.append(key) or plain(key, *limit)
    )
    return got


def test_the_second_reading_needs_a_part_of_each_kind(records, monkeypatch):
    assert_true(records)
    before = read(records)
    got = keys_read(records, monkeypatch)
    after = read(records)
    assert sorted(got) == sorted(parts(records) | parts(records, "curves")) and len(got) == 2
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
        finish(records, NEW[0], 7.0)
    else:
        for key in parts(records) | parts(records, "curves"):
            records.store.delete(key) if change == "deleted files" else records.store.write(
                key, b"PAR1 and nothing more"
            )
    assert_true(records)
    assert_true(records)


def test_curves_of_some_trials_and_of_one_that_still_runs(records):
    read(records)
    records.write_metrics("running", [{"step": 1, "time": 1.0, "loss": 5.0}])
    _, curves = read(records, [TRIALS[3], "running", "unknown"])
    assert set(curves["trial_id"]) == {"running", TRIALS[3]}
    records.write_metrics("running", [{"step": 1, "time": 1.0, "loss": 4.0}])
    _, curves = read(records, ["running"])
    assert list(curves["loss"]) == [4.0]


def test_a_small_study_is_not_compacted(records, monkeypatch):
    monkeypatch.setattr(compact, "MIN_OBJECTS_TO_COMPACT", 100)
    assert_true(records)
    assert not any("/compact/" in key for key in records.store.list("compacted/"))


def test_nothing_at_all(storage):
    recorded, curves = read(StudyRecords(storage, "empty"))
    assert recorded == {} and list(curves.columns) == ["trial_id", "step", "time"] and curves.empty


compacted = compact.compact_finished


def test_what_has_not_changed_is_not_written_again(records, monkeypatch):
    monkeypatch.setattr(compact, "PART_TRIALS", 4)
    compacted(
        records
    )  # six trials: a part of four, and one of two, which counts as full from half on
    first = parts(records)
    assert len(first) == 2
    finish(records, NEW[0], 7.0)
    compacted(records)
    assert len(parts(records)) == 3 and parts(records) > first
    finish(records, NEW[1], 8.0)
    compacted(records)  # a part of one trial is small: it is written together with the next
    assert len(parts(records)) == 3 and parts(records) > first
    assert_true(records)


def test_parts_in_which_nothing_holds_are_deleted(records, monkeypatch):
    compacted(records)
    stale = parts(records) | parts(records, "curves")
    for i, trial_id in enumerate(TRIALS):
        finish(records, trial_id, 50.0 + i)
    compacted(records)
    assert not stale & (parts(records) | parts(records, "curves")) and len(parts(records)) == 1
    assert_true(records)


def test_after_the_driver_no_file_of_a_trial_is_read(records, monkeypatch):
    records.write(Record.of(OF_ID[NEW[0]], status=Status.INFEASIBLE))  # without reports
    compacted(records)
    got = keys_read(records, monkeypatch)
    etags = records.etags()
    assert set(compact.read_records(records, etags=etags)) == {*TRIALS, NEW[0]}
    assert set(compact.read_curves(records, etags, etags)["trial_id"]) == set(TRIALS[1:])
    assert compact.read_curves(records, etags, etags, [], compact.SYSTEMS).empty
    assert [key.split("/")[1] for key in got] == ["compact"] * 3


def test_a_storage_that_fails_does_not_end_the_run(records, monkeypatch, caplog):
    def fails(*_):
        raise StorageError("the server is away")

    monkeypatch.setattr(records.store, "list", fails)
    compacted(records)
    assert "the server is away" in caplog.text


def test_a_part_that_makes_a_trial_another_one_is_not_believed(records):
    """Whoever may write to a storage can write a part with the right etags, of a record of any trainable."""
    compacted(records)
    recorded, (key,) = records.read(TRIALS), parts(records)
    part = compact.decode_part(records.store.read(key), key, "records")
    forged = [
        replace(recorded[i], trainable="evil:train").to_json() for i in part["trial_id"].to_pylist()
    ]
    columns = {
        "trial_id": part["trial_id"],
        "etag": part["etag"],
        "record": pa.array(forged, pa.large_binary()),
    }
    records.store.write(key, encode_table(pa.table(columns)))
    assert compact.read_records(records) == recorded


def test_trials_in_two_parts_count_once(records):
    """As two readers leave them that compacted at once, neither of which saw the other's part."""
    etags = records.etags()
    for own in (TRIALS[:4], TRIALS[2:]):
        rows = compact._rows_from_own_files(records, "records", etags, own, None)
        compact.write_parts(records, "records", [], rows)
    assert len(parts(records)) == 2
    found = compact.read_parts(records, "records", etags)
    assert sorted(i for part in found for i in part.rows["trial_id"].to_pylist()) == TRIALS
    assert_true(records)


def test_who_wants_some_records_drops_none_of_the_others(records):
    compacted(records)
    before = parts(records)
    assert set(compact.read_records(records, only=TRIALS[:1])) == {TRIALS[0]}
    assert parts(records) == before


def test_a_broken_file_of_a_trial_is_left_out_each_time(records):
    records.store.write(records.key(TRIALS[0], "metrics.parquet"), b"PAR1")
    for _ in range(2):
        compacted(records)
        broken = []
        etags = records.etags()
        assert set(compact.read_curves(records, etags, etags, broken)["trial_id"]) == set(
            TRIALS[1:]
        )
        assert [records.key(TRIALS[0], "metrics.parquet") in str(error) for error in broken] == [
            True
        ]


@pytest.mark.parametrize("rows", [3, 3000])
def test_small_tables_and_large_ones_are_read_as_they_were_written(records, rows):
    table = pa.table(
        {
            "step": range(rows),
            "time": np.linspace(0, 1, rows),
            "loss": [None, *np.arange(rows - 1.0)],
        }
    )
    assert records.metrics_table("t", encode_table(table)).equals(table)
    unordered = table.set_column(0, "step", pa.array([None, *range(1, rows)]))
    with pytest.raises(StorageError, match="not those of reports"):
        records.metrics_table("t", encode_table(unordered))
