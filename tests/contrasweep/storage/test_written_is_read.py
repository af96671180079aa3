"""What is written can be read again: any record, attempt and error text, whatever a clock or a trainable says."""

import math
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pytest
from counting_trial import finish
from hypothesis import example, given
from hypothesis import strategies as st

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.errors import BrokenFileError
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.attempts import read_begun
from contrasweep.storage.names import MAX_NAME
from contrasweep.storage.parquet_file import encode_table
from contrasweep.storage.planned import axis_column, read_planned, write_planned
from contrasweep.storage.record import (
    ERROR_BYTES,
    RECORD_FILE,
    Cause,
    CodeRef,
    Phase,
    Record,
    Status,
    TrialNotes,
)
from contrasweep.storage.records import StudyRecords, encode_items
from contrasweep.trial import Report, Trial

LABELS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=MAX_NAME)
NAMES = st.text("aZ09_-", min_size=1, max_size=MAX_NAME)
DIGESTS = st.text("0123456789abcdef", max_size=64)
COUNTS = st.integers(0, 2**53)
MEASURES = st.floats(0, 1e15)
CLOCKS = st.floats(-1e12, 1e12)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
CONFIGS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers() | FINITE | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)
TRIALS = st.builds(
    Trial,
    study=NAMES,
    arm=LABELS,
    trainable=LABELS,
    config=CONFIGS,
    data=st.builds(Manifest, LABELS, st.just("/d"), st.just("image"), st.just({})),
    fold=st.none() | COUNTS,
    seed=st.integers(0, 2**63 - 1),
)
NOTES = st.builds(
    TrialNotes,
    phase=st.none() | st.sampled_from(Phase),
    candidate=st.none() | COUNTS,
    gpus=st.none() | MEASURES,
    gpu_type=st.none() | LABELS,
    refused_by=st.none() | TEXTS,
)
ERRORS = st.none() | st.builds(
    lambda text, times: text * times,
    st.text(st.characters(), max_size=20),
    st.sampled_from([1, 99, ERROR_BYTES]),
)
MEASURED = st.fixed_dictionaries(
    {},
    optional={
        "metrics": st.dictionaries(LABELS, st.floats(), max_size=4),
        "step": COUNTS,
        "seconds": st.floats(-1e12, 1e12),
        "started": CLOCKS,
        "ended": CLOCKS,
        "attempts": COUNTS,
        "error": ERRORS,
        "cause": st.none() | st.sampled_from(Cause),
        "host": st.text(st.characters()),
        "gpu_memory_gib": st.none() | MEASURES,
        "items": st.lists(LABELS, max_size=3).map(tuple),
        "artifacts": st.lists(NAMES, max_size=3).map(tuple),
        "notes": NOTES,
        "versions": st.dictionaries(LABELS, LABELS, max_size=3),
        "code": st.builds(
            CodeRef, DIGESTS, LABELS, st.booleans(), st.lists(DIGESTS, max_size=3).map(tuple)
        ),
        "unused_settings": st.lists(
            st.text(st.characters(), max_size=2 * MAX_NAME), max_size=3
        ).map(tuple),
    },
)
TRIAL = Trial("s", "a", "m:f", {}, Manifest("d", "/d", "image", {}))


def comparable(record):
    """NaN is not equal to itself."""
    metrics = {
        name: "NaN" if math.isnan(value) else value for name, value in record.metrics.items()
    }
    return replace(record, metrics=metrics)


@given(
    TRIALS,
    st.sampled_from([Status.DONE, Status.PRUNED, Status.FAILED, Status.INFEASIBLE]),
    MEASURED,
)
@example(TRIAL, Status.FAILED, {"error": "é" * ERROR_BYTES})
@example(TRIAL, Status.FAILED, {"error": "\udcff" * ERROR_BYTES})
@example(TRIAL, Status.DONE, {"started": 9.0, "ended": -7200.0, "seconds": -1.0})
def test_any_record_that_is_written_is_read_back(trial, status, measured):
    record = Record.of(trial, status=status, **measured)
    content = record.to_json()
    assert comparable(RECORD_FILE.decode(content, "record.json")) == comparable(record)
    assert len((record.error or "").encode()) <= ERROR_BYTES
    if {"started", "ended"} <= measured.keys():
        assert 0 <= record.started <= record.ended


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.integers(0, ERROR_BYTES))
def test_a_long_error_keeps_its_head_and_its_tail_and_says_how_much_is_left_out(unit, more):
    error = f"Traceback: {unit}" + "x" * (ERROR_BYTES + more) + f"{unit} the end"
    kept = Record.of(TRIAL, status=Status.FAILED, error=error).error
    assert kept.startswith(f"Traceback: {unit}x") and kept.endswith(f"x{unit} the end")
    head = kept.split("\n--- ")[0]
    mark = kept.split("\n--- ")[1].split("\n")[0]
    tail = kept.split("left out here\n")[1]
    left_out = len(error.encode()) - len(head.encode()) - len(tail.encode())
    assert mark == f"{left_out:,} bytes are left out here"


@pytest.mark.parametrize("kept", range(0, 60, 7))
def test_no_part_of_a_password_is_left_where_a_long_error_is_cut(kept):
    """The cut goes through each part of an address: `kept` of its characters stand before it, or behind it."""
    address = " https://ada:hunter2@example.org/weights.safetensors "
    filled = "x" * (ERROR_BYTES // 2 - 50 - kept)
    for error in (
        filled + address + "x" * ERROR_BYTES,
        "x" * ERROR_BYTES + address + filled,
    ):
        record = Record.of(TRIAL, status=Status.FAILED, error=error)
        assert "ada" not in record.error and "unter" not in record.error


def test_a_trial_that_raises_70_mb_blocks_nothing(records):
    def prints_its_tensor(trial, resume=None):
        yield Report(1, {"accuracy": 0.5})
        raise ValueError("x" * 70_000_000)

    record = finish(Execution(TRIAL, prints_its_tensor, records, metric="accuracy"))
    assert records.read_one(TRIAL.id) == record and record.status == "failed"
    assert "in prints_its_tensor\n" in record.error and "ValueError: xxx" in record.error
    assert len(record.to_json()) < 2 * ERROR_BYTES


def test_a_clock_before_1970_leaves_a_record_and_a_claim_that_are_read(records, monkeypatch):
    def one(trial, resume=None):
        yield Report(1, {"accuracy": 0.5})

    monkeypatch.setattr("time.time", lambda: -7200.0)
    execution = Execution(TRIAL, one, records, metric="accuracy")
    execution.advance()
    begun = read_begun(records, TRIAL.id)
    assert begun is not None and begun[0].id == TRIAL.id
    record = execution.advance().record
    assert record is not None and record.status == "done" and records.read_one(TRIAL.id) == record


@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_a_step_that_numpy_counted_is_one(records, kind):
    """It had been a fault of the machine, tried again and again: no JSON file holds such a number."""
    np = pytest.importorskip("numpy")

    def counted(trial, resume=None):
        for step in np.arange(1, 3, dtype=kind):
            yield Report(step, {"accuracy": np.float32(0.5)})

    record = finish(Execution(TRIAL, counted, records, metric="accuracy"))
    assert (record.status, record.step) == ("done", 2) and records.read_one(TRIAL.id) == record


@pytest.mark.parametrize("step", [2.0, 1.5, float("nan"), None, "2", 2**53 + 1, 2**70])
def test_what_no_file_takes_for_a_step_ends_its_trial_alone(records, step):
    def odd(trial, resume=None):
        yield Report(2**53, {"accuracy": 0.5})
        yield Report(step, {"accuracy": 0.6})

    record = finish(Execution(TRIAL, odd, records, metric="accuracy"))
    assert (record.status, record.step) == ("failed", 2**53) and records.read_one(
        TRIAL.id
    ) == record
    assert "a step is a whole number up to 2**53" in record.error


AXIS_VALUES = st.none() | st.booleans() | st.integers() | FINITE | TEXTS | st.lists(COUNTS)


@given(st.lists(AXIS_VALUES, min_size=1, max_size=5))
@example([None, 2])
@example([1, 0.5])
@example([2**60 + 1, 0.5])
@example([True, None, False])
def test_the_values_of_an_axis_are_read_as_they_were_declared(tmp_path_factory, values):
    """Pandas makes 1.0 of a 1 beside a .5, and NaN of None beside numbers: other values, and other trials."""
    rows = {"arm": "a", "x": axis_column(values), "fold": None, "seed": 0}
    ids = [f"t{place}" for place in range(len(values))]
    records = StudyRecords(str(tmp_path_factory.mktemp("s")), "s")
    write_planned(records, pd.DataFrame({"trial_id": ids, **rows}))
    assert canonical.dumps(list(read_planned(records)["x"])) == canonical.dumps(values)
    assert [type(value) for value in read_planned(records)["x"].tolist()] == list(map(type, values))


@pytest.mark.parametrize("prefix", ["", "digits/"])
def test_groups_of_items_may_be_texts_also_those_of_an_evaluation(records, prefix):
    items = {f"{prefix}group": ["a", "b"], f"{prefix}hits": [0.0, 1.0]}
    records.write_encoded_items("t", encode_items(items))
    assert {name: values.tolist() for name, values in records.items("t", items).items()} == items
    texts = {f"{prefix}hits": ["a", "b"]}
    with pytest.raises(ValueError, match=r"hits' is of type string"):
        encode_items(texts)
    records.write_encoded_items("t", encode_table(pa.table(texts)))
    with pytest.raises(BrokenFileError):
        records.items("t", [f"{prefix}hits"])


def test_what_a_trial_uses_later_only_is_kept_too(tmp_path):
    records = StudyRecords(str(tmp_path), "s")
    rows = [{"step": 1, "time": 1.0}, {"step": 2, "time": 2.0, "gpu_memory_gib": 0.5}]
    records.write_system("t", rows)
    assert records.system("t") == rows
