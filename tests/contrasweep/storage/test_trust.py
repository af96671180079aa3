"""Nothing in a storage is trusted: a name leads nowhere else, a damaged file is named, and nothing waits for ever."""

import base64
import hashlib
import io
import json
import os
import tracemalloc
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting_trial import finish
from folders import make_files
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.data.resolving import read_manifest, staged_in
from contrasweep.errors import BrokenFileError, DataError, SpecError, StorageError
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.archive import list_archived
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.compact import read_curves, read_records
from contrasweep.storage.names import check_file_name, is_key
from contrasweep.storage.parquet_file import (
    MAX_ROWS,
    decode_table,
    encode_table,
    is_number,
    is_text,
)
from contrasweep.storage.record import RECORD_FILE, Record, Status
from contrasweep.storage.records import MAX_TRIAL_READ, MAX_TRIAL_VALUES, StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.tracking.tracker import TrialFiles
from contrasweep.trial import Report, Trial

TRIAL = Trial("s", "a", "m:f", {"lr": 0.1}, Manifest("d", "/d", "image", {}), 1, 7)
RECORD = Record.of(
    TRIAL, status=Status.DONE, metrics={"accuracy": 0.5}, step=3, artifacts=("figure.png",)
)
OTHER = Record.of(Trial("s", "a", "m:f", {"lr": 0.1}, TRIAL.data, 1, 8), status=Status.DONE)
"""A sound record, of the trial with another seed."""
OUTSIDE = [
    "/etc/x",
    "../x",
    "a/../../x",
    "..",
    "",
    "a//b",
    "a/" * 20 + "b",
    "a" * 501,
    "a/./b",
    "a\0b",
    "a\x1b[2Jb",
    "a\\..\\b",
    ".tmp-x",
    "\udcff",
]


@pytest.fixture
def records(tmp_path):
    return StudyRecords(str(tmp_path / "storage"), "s")


def forged(record, **changes):
    """record.json as somebody writes it who may write to the bucket: with the right digest."""
    members = json.loads(record.to_json())
    del members["digest"], members["format_version"]
    return RECORD_FILE.encode(members | changes)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_elsewhere_is_none(name):
    with refused(ValueError, match=r"name|surrogates"):
        check_file_name(name)


@given(st.text("ab0/._- =\\\n\x1bäß", max_size=30))
@settings(max_examples=500)
def test_a_checked_name_stays_in_its_folder_and_may_be_listed(name):
    try:
        check_file_name(name)
    except ValueError:
        assert not is_key(name)
        return
    assert is_key(name) and os.path.normpath(f"/top/{name}") == f"/top/{name}"


@pytest.mark.parametrize("name", ["a\\b", "\x1b[2J", "a\nb", "q" * 220, "d/" * 100])
def test_an_object_of_a_hostile_name_is_not_there(records, name):
    """Whoever may write to a bucket can name objects as they like; nothing ends by a traceback for that."""
    records.write(RECORD)
    (there,) = records.finished()
    store = records.store
    for key in (
        f"s/trials/{name}/record.json",
        f"s/records/{name}/record.json",
        f"s/archive/{name}/trials/x/record.json",
        f"s/code/{name}.zip",
    ):
        (store.root / key).parent.mkdir(parents=True, exist_ok=True)
        (store.root / key).write_bytes(b"{}")
    assert records.finished() == {there}
    assert list(store.etags("s/records/", "record.json")) == [f"s/records/{there}/record.json"]
    assert list_archived(records) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"trainable": "mlflow.pyfunc:x"},
        {"config": {"lr": 0.1, "encoder": "evil:Net"}},
        {"arm": "b"},
        {"seed": 8},
        {"fold": None},
        {"data": {"name": "d", "digest": "other", "synthetic": False}},
        {"start": {"study": "s", "trial": "t", "ended": 0.0}},
    ],
)
def test_a_record_that_says_its_trial_was_another_is_no_record(records, changes):
    """The id is the digest of what a trial is, so that a record of a planned trial has the plan's trainable."""
    records.store.write(records.key(TRIAL.id, "record.json"), forged(RECORD, **changes))
    for read in (
        records.read_one,
        lambda one: records.read([one]),
        lambda one: read_records(records),
    ):
        with refused(BrokenFileError, "its settings, data, fold and seed are those of trial"):
            read(TRIAL.id)


@pytest.mark.parametrize("name", ["record.json", "metrics.parquet"])
def test_a_file_of_a_terabyte_is_not_read(records, name):
    """As a forged object may be; a sparse file of this size takes no room."""
    records.write(RECORD)
    key = records.key(TRIAL.id, name)
    (records.store.root / key).parent.mkdir(exist_ok=True, parents=True)
    with (records.store.root / key).open("ab") as file:
        file.truncate(2**40)
    with refused(BrokenFileError, match=f"{name} is broken .it has 1,099,511,627,776 bytes, and "):
        records.read_one(TRIAL.id) if name == "record.json" else records.metrics(TRIAL.id)
    broken = []
    etags = records.etags()
    if name == "record.json":
        assert read_records(records, broken, etags=etags) == {}
    else:
        assert len(read_curves(records, etags, [TRIAL.id], broken)) == 0
    assert len(broken) == 1


@pytest.mark.parametrize("name", ["metrics.parquet", "system.parquet", "items.parquet"])
def test_a_file_of_one_trial_is_bounded_before_it_is_read(records, name):
    """What a storage as a whole may hold, one trial's reports may not."""
    records.write(RECORD)
    path = records.store.root / records.key(TRIAL.id, name)
    path.parent.mkdir(parents=True)
    with path.open("ab") as file:
        file.truncate(MAX_TRIAL_READ + 1)
    read = getattr(records, name.removesuffix(".parquet"))
    tracemalloc.start()
    try:
        with refused(
            BrokenFileError,
            match=rf"{name} is broken .it has 268,435,457 bytes, and 268,435,456 are",
        ):
            read(TRIAL.id)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["metrics.parquet", "system.parquet", "items.parquet"])
def test_a_small_file_of_many_reports_is_not_unfolded(records, name):
    """A few kilobytes may stand for any number of equal rows."""
    rows = MAX_TRIAL_VALUES // 2 + 1
    table = pa.table(
        {"step": pa.nulls(rows, pa.int64()).fill_null(1), "time": pa.nulls(rows, pa.float64())}
    )
    data = encode_table(table)
    assert len(data) < 2**20
    records.store.write(records.key(TRIAL.id, name), data)
    read = getattr(records, name.removesuffix(".parquet"))
    with refused(
        BrokenFileError,
        match=rf"{name} is broken .it has {rows:,} rows of 2 columns in [0-9,]+ bytes",
    ):
        read(TRIAL.id)


@pytest.mark.parametrize("name", ["weights.npz", "a/b/state.pt", "ä ö.png", "..x", "0"])
def test_ordinary_names_are_taken(name):
    assert check_file_name(name) == name


def test_a_study_cannot_be_named_by_a_path(storage):
    for name in ("../x", "/etc", "a/b", ""):
        with refused(SpecError, "there can be no study of this name"):
            StudyRecords(storage, name)


@pytest.mark.parametrize("name", OUTSIDE[:3])
def test_a_checkpoint_marker_cannot_name_a_file_outside(records, tmp_path, name):
    target = tmp_path / "home/victim"
    target.parent.mkdir()
    name = str(target) if name == "/etc/x" else name
    checkpoints = Checkpoints(records.store, records.key(TRIAL.id, "checkpoint"))
    make_files(tmp_path, {"state/w": "w"})
    checkpoints.save(tmp_path / "state", 1)
    digest = hashlib.sha256(b"ssh-rsa attacker").hexdigest()
    marker = json.dumps({"step": 1, "files": {name: digest}, "extra": {}})
    records.store.write(f"{checkpoints.prefix}/latest.json", marker.encode())
    (tmp_path / "to").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert checkpoints.fetch(tmp_path / "to") is None
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["/etc/x", "../record.json", "../../../../escaped.txt"])
def test_a_record_cannot_name_an_artifact_outside(records, tmp_path, name):
    records.store.write(records.key(TRIAL.id, "record.json"), forged(RECORD, artifacts=[name]))
    with refused(BrokenFileError, "record.json is broken (artifacts.0: "):
        records.read_one(TRIAL.id)
    with refused(ValueError, match="points outside"):
        records.artifact(TRIAL.id, name, tmp_path / "to")


def test_artifacts_of_a_sound_record_are_fetched(records, tmp_path):
    (tmp_path / "figure.png").write_bytes(b"png")
    records.store.put_file(records.key(TRIAL.id, "artifacts/figure.png"), tmp_path / "figure.png")
    with TrialFiles(records, TRIAL.id).fetched(RECORD) as folder:
        assert (folder / "figure.png").read_bytes() == b"png"


@pytest.mark.parametrize("name", ["../../../../escaped.txt", "../record.json", "/abs"])
def test_a_trainable_cannot_write_an_artifact_outside_its_trial(records, tmp_path, name):
    (tmp_path / "file").write_text("x")

    def train(trial, resume=None):
        yield Report(1, {"accuracy": 0.5}, artifacts={name: tmp_path / "file"})

    before = sorted(tmp_path.iterdir())
    record = Execution(TRIAL, train, records, metric="accuracy").advance().record
    assert record.status == Status.FAILED
    assert "may not use this name for an artifact" in record.error
    assert records.read_one(TRIAL.id) == record
    assert set(tmp_path.iterdir()) - set(before) == {tmp_path / "storage"}
    assert [key.split("/")[-1] for key in records.store.list()] == [
        "record.json",
        "attempt.json",
        "metrics.parquet",
    ]


@pytest.mark.parametrize("name", ["step", "time", "trial_id", "a\nb", "x" * 300])
def test_a_metric_cannot_take_a_name_that_reports_need(records, name):
    def train(trial, resume=None):
        yield Report(1, {"accuracy": 0.5, name: 1.0})

    record = Execution(TRIAL, train, records, metric="accuracy").advance().record
    assert record.status == Status.FAILED and "name" in record.error.splitlines()[-1]


def test_a_checkpoint_cannot_hold_a_file_that_could_not_be_fetched(records, tmp_path):
    (tmp_path / ".tmp-x").write_text("x")
    with refused(ValueError, match="being written"):
        Checkpoints(records.store, "c").save(tmp_path, 1)


def test_links_and_pipes_in_a_folder_are_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret")
    store = LocalStore(tmp_path / "storage")
    store.write("a/real", b"x")
    (store.root / "a/link").symlink_to(tmp_path / "secret")
    (store.root / "a/nowhere").symlink_to("nothing")
    os.mkfifo(store.root / "a/pipe")
    assert {"a/real", "a/link", "a/nowhere"} <= set(store.sizes("a/"))
    for key, why in (
        ("a/link", "it is a link"),
        ("a/pipe", "no plain file"),
        ("../secret", "leads out of it"),
        (f"{tmp_path}/secret", "leads out of it"),
    ):
        with refused(StorageError, match=why):
            store.read(key)
        with refused(StorageError, match=why):
            store.get_file(key, tmp_path / "to")
    with refused(StorageError, match=r"no plain file|cannot be read"):
        store.read("a")


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_no_change_of_a_byte_in_a_record_goes_unseen(data):
    whole = RECORD.to_json()
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    with refused(StorageError):
        RECORD_FILE.decode(whole[:at] + bytes([byte]) + whole[at + 1 :], "record.json")


TABLE = pa.table({"step": [1, 2, 3], "time": [1.0, 2.0, 3.0], "accuracy": [0.5, None, 0.7]})


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_no_change_of_a_byte_in_a_table_goes_unseen(data):
    """Values are under checksums, and the footer holds names and types twice; other bytes say nothing of the table."""
    whole = encode_table(TABLE)
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    changed = whole[:at] + bytes([byte]) + whole[at + 1 :]
    try:
        table = decode_table(
            changed, "metrics.parquet", "", {"step": pa.types.is_integer}, is_number
        )
    except BrokenFileError:
        return
    assert table.equals(TABLE)


@pytest.mark.parametrize("count", [3, 5000])
def test_each_damaged_value_and_name_is_an_error_in_one_line(count):
    whole = encode_table(pa.table({"step": range(count), "accuracy": np.linspace(0, 1, count)}))
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    places = {
        "value": footer // 2,
        "name": whole.index(b"accuracy", footer),
        "length": len(whole) - 8,
    }
    for at in places.values():
        damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with refused(BrokenFileError, match=r"^metrics.parquet is broken \(.*\); run it$"):
            decode_table(
                damaged, "metrics.parquet", "run it", {"step": pa.types.is_integer}, is_number
            )


def test_a_table_with_checksums_is_a_parquet_file_for_everybody(tmp_path):
    file = tmp_path / "t.parquet"
    file.write_bytes(encode_table(TABLE))
    assert pq.read_table(file).equals(TABLE)
    assert pd.read_parquet(file)["accuracy"].sum() == pytest.approx(1.2)
    assert polars.read_parquet(file)["step"].to_list() == [1, 2, 3]
    assert duckdb.sql(f"select sum(step) from '{file}'").fetchall() == [(6,)]


@pytest.mark.slow
def test_a_few_bytes_that_stand_for_many_rows_are_not_read():
    data = encode_table(pa.table({"step": pa.array(np.zeros(MAX_ROWS + 1, dtype=np.int8))}))
    assert len(data) < 1_000_000
    with refused(BrokenFileError, "above the limit"):
        decode_table(data, "metrics.parquet", "", {"step": pa.types.is_integer}, None)


def test_a_text_that_stands_for_terabytes_is_not_read():
    """Four kilobytes: one text of 200 kB in two million rows. Whoever writes such a file may state any types."""
    same = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(2_000_000, np.int32)), pa.array(["x" * 200_000])
    )
    table = pa.table({"trial_id": same})
    stated = pa.schema([("trial_id", pa.string())]).serialize().to_pybytes()
    options = {"compression": "zstd", "dictionary_pagesize_limit": 2**30, "store_schema": False}
    with pq.ParquetWriter(sink := io.BytesIO(), table.schema, **options) as writer:
        writer.write(table)
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(stated)})
    with refused(BrokenFileError, r"its texts have 400,000,000,000 bytes, above the limit"):
        decode_table(sink.getvalue(), "plan.parquet", "", {"trial_id": is_text}, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"format_version": true}',
        b'{"format_version": 1e99}',
        b'{"format_version": -1}',
        b'{"format_version": 3, "digest": "x"}',
        forged(RECORD, started=1e300),
        forged(RECORD, step=-1),
        forged(RECORD, fold=10**40),
        forged(RECORD, arm="a\x1b]0;owned\x07"),
        forged(RECORD, notes={"phase": "nap"}),
        forged(RECORD, seconds=float("nan")),
        forged(RECORD, colour=1),
        forged(RECORD, trial_id="other"),
        OTHER.to_json(),
        RECORD.to_json()[:-9],
    ],
    ids=lambda content: repr(content[:20]),
)
def test_whatever_a_record_holds_is_one_line_that_names_it(records, content):
    records.store.write(records.key(TRIAL.id, "record.json"), content)
    begins = f"{records.store.uri}/s/records/{TRIAL.id}/record.json is broken ("
    advice = f"`contrasweep verify s --storage {records.storage} --repair` puts it aside, and its "
    with refused(BrokenFileError, advice, begins=begins):
        records.read_one(TRIAL.id)


def train_three(trial, resume: Path | None = None):
    first = int((resume / "w").read_text()) + 1 if resume else 1
    for step in range(first, 4):
        folder = Path(trial.data.uri)
        (folder / "w").write_text(str(step))
        yield Report(step, {"accuracy": step / 10}, checkpoint=folder)


@pytest.mark.parametrize("damage", ["truncated", "lost", "empty", "other columns"])
def test_broken_reports_of_an_unfinished_trial_cost_its_steps_and_not_its_end(
    records, tmp_path, damage
):
    (tmp_path / "work").mkdir()
    trial = Trial("s", "a", "m:f", {}, Manifest("d", str(tmp_path / "work"), "image", {}))
    execution = Execution(trial, train_three, records, metric="accuracy")
    execution.advance()
    execution.advance()
    execution.close()
    file = records.store.root / records.key(trial.id, "metrics.parquet")
    whole = file.read_bytes()
    if damage == "lost":
        file.unlink()
    else:
        table = {
            "empty": b"",
            "truncated": whole[: len(whole) // 2],
            "other columns": encode_table(pa.table({"x": [1]})),
        }
        file.write_bytes(table[damage])
    record = finish(Execution(trial, train_three, records, metric="accuracy"))
    assert (record.status, record.step, record.metrics) == (Status.DONE, 3, {"accuracy": 0.3})
    assert [row["step"] for row in records.metrics(trial.id)] == [1, 2, 3]


def test_ids_of_trials_are_one_level(records):
    with refused(ValueError, match="slash"):
        records.key("../x", "record.json")


DATASET = Manifest(
    "d",
    "/x",
    "image",
    {"train": (Shard("a.parquet", 100, 1, "aa"),)},
    ("cat",),
    {"image": {"dtype": "uint8", "shape": [8, 8, 1]}},
    Folds(2),
    counts={"train": {"groups": 5}},
)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("a.parquet", "../../a", r"splits\.train\.0\.file: .* points outside its folder"),
        ("a.parquet", "a\\u001b[2J", r"splits\.train\.0\.file: "),
        ("100", "1e400", r"splits\.train\.0\.rows: "),
        ("100", "-1", r"splits\.train\.0\.rows: "),
        ('"cat"', "7", r"classes\.0: "),
        ('"image": {', '"../../image": {', r"columns\.\.\./\.\./image.*: .* has a slash"),
        ('"shape"', '"sharp"', r"columns\.image: .*an array column has a dtype and a shape"),
        ('"uint8"', "8", r"columns\.image: .*an array column has a dtype and a shape"),
        ("8,", "-8,", r"columns\.image: .*a shape is of sizes"),
        ("8,", "1099511627776,", r"columns\.image: .*a shape is of sizes"),
        ('{\n   "groups": 5\n  }', "5", r"counts\.train: "),
        ('"groups": 5', '"classes": [5, 6]', "a number of rows for each class"),
        ('"groups": 5', '"classes": ["5"]', "a number of rows for each class"),
        ("{", "[" * 100_000, "recursion limit"),
        ("{", "\udcff", "expected value"),
    ],
)
def test_a_manifest_passes_the_door_of_all_stored_files(before, after, problem):
    text = DATASET.to_json()
    assert before in text and Manifest.from_json(text, "/x") == DATASET
    damaged = text.replace(before, after, 1).encode(errors="surrogateescape")
    with refused(
        DataError,
        match=f"^/x/manifest.json is not a dataset manifest .*{problem}.*; stage the dataset",
    ):
        Manifest.from_json(damaged, "/x")


def test_a_manifest_of_a_size_that_nothing_writes_is_not_read(tmp_path):
    (tmp_path / "datasets/d").mkdir(parents=True)
    with (tmp_path / "datasets/d/manifest.json").open("wb") as file:
        file.truncate(2**31)  # a hole, which takes no disk
    tracemalloc.start()
    for look in (
        lambda: read_manifest(str(tmp_path / "datasets/d")),
        lambda: staged_in(str(tmp_path)),
    ):
        with refused(BrokenFileError, "manifest.json is broken (it has 2,147,483,648 bytes"):
            look()
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_a_manifest_of_a_later_release_is_said_to_be_one():
    later = DATASET.to_json().replace('"schema_version": 1', '"schema_version": 2')
    with refused(StorageError, "has format version 2, and this release reads and writes version 1"):
        Manifest.from_json(later, "/x")
