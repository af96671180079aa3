"""A study of thousands of trials, read at once: its records and its reports, each compacted into one file.

    <study>/compact/records.parquet    trial_id, etag, record (its JSON)
    <study>/compact/curves.parquet     trial_id, etag, step, time, the metrics

An object store takes minutes for ten thousand small objects and a second for two files. Both are derived and may be
deleted: a row counts only while its `etag` is the one that the trial's record.json has now (`Store.etags`), and
what belongs to a record is written before it and never after. So nobody need invalidate them, and no lock is taken:
whoever reads a study much of which they lack writes them anew, where the storage lets it.
"""

import contextlib
import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contrasweep.errors import StorageError
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords

RECORDS, CURVES = "compact/records.parquet", "compact/curves.parquet"
MIN_OBJECTS_TO_COMPACT = 200  # read singly before a file is written: a small study needs none
RECOMPACT_FRACTION = 0.1  # of the trials: a growing study is compacted ever more rarely
THREADS = 16


def read_records(records: StudyRecords, etags: Mapping[str, str]) -> dict[str, Record]:
    """The records of the trials in `etags` (trial id -> etag, from `record_etags`)."""
    table = _gather(
        records, RECORDS, etags, list(etags), "record.json", lambda data: pa.table({"record": [data.decode()]})
    )
    if not len(table):
        return {}
    ids, texts = table["trial_id"].to_pylist(), table["record"].to_pylist()
    return {trial_id: records.parsed(trial_id, text) for trial_id, text in zip(ids, texts, strict=True)}


def read_curves(records: StudyRecords, etags: Mapping[str, str], trial_ids: Iterable[str]) -> pd.DataFrame:
    """Every report of `trial_ids`: trial_id, step, time, and the metrics; NaN where a report did not give one."""

    def decode(data: bytes) -> pa.Table:
        return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)

    table = _gather(records, CURVES, etags, list(dict.fromkeys(trial_ids)), "metrics.parquet", decode)
    frame: pd.DataFrame = table.drop_columns(["etag"]).to_pandas(strings_to_categorical=True)
    return frame if len(frame) else frame.assign(step=[], time=[])


def record_etags(records: StudyRecords) -> dict[str, str]:
    """Trial id -> etag of its record, for every trial that has one."""
    by_key = records.store.etags(f"{records.study}/trials/", "record.json")
    return {key.split("/")[-2]: etag for key, etag in by_key.items()}


def _gather(
    records: StudyRecords,
    name: str,
    etags: Mapping[str, str],
    wanted: list[str],
    single: str,
    decode: Callable[[bytes], pa.Table],
) -> pa.Table:
    """The rows of `wanted` trials: from the compacted file `name` where it has them as they are now, else from each
    trial's own file `single`."""

    def fetch(trial_id: str) -> bytes | None:
        try:
            return records.store.read(records.key(trial_id, single))
        except FileNotFoundError:
            return None

    kept = _load(records, name, etags)
    have = set(kept["trial_id"].unique().to_pylist())
    missing = [trial_id for trial_id in wanted if trial_id not in have]
    with ThreadPoolExecutor(THREADS) as pool:
        fetched = zip(missing, pool.map(fetch, missing), strict=True)
        fresh = {trial_id: decode(data) for trial_id, data in fetched if data is not None}
    whole = pa.concat_tables([kept, _with_etags(fresh, etags)], promote_options="default")
    if sum(trial_id in etags for trial_id in missing) >= max(MIN_OBJECTS_TO_COMPACT, RECOMPACT_FRACTION * len(etags)):
        _store(records, name, whole.filter(pc.is_valid(whole["etag"])))
    return whole.filter(pc.is_in(whole["trial_id"], pa.array(wanted, pa.string()))) if have - set(wanted) else whole


def _with_etags(tables: Mapping[str, pa.Table], etags: Mapping[str, str]) -> pa.Table:
    """All `tables` as one, with the columns trial_id and etag (null for a trial without a record)."""
    ids, lengths = list(tables), [len(table) for table in tables.values()]
    own = {"trial_id": ids, "etag": [etags.get(trial_id) for trial_id in ids]}
    whole = pa.concat_tables(tables.values(), promote_options="default").combine_chunks() if tables else pa.table({})
    columns = {
        name: pa.array(np.repeat(np.array(values, dtype=object), lengths), pa.string()) for name, values in own.items()
    }
    return pa.table(columns | {name: whole[name] for name in whole.column_names})


def _load(records: StudyRecords, name: str, etags: Mapping[str, str]) -> pa.Table:
    """The rows that still hold; none where the file is missing or cannot be read."""
    empty = pa.table({"trial_id": pa.array([], pa.string()), "etag": pa.array([], pa.string())})
    if len(etags) < MIN_OBJECTS_TO_COMPACT:
        return empty
    try:
        table = pq.read_table(io.BytesIO(records.store.read(f"{records.study}/{name}")))
    except (FileNotFoundError, pa.ArrowException):
        return empty
    if "etag" not in table.column_names:  # an earlier release wrote it
        return empty
    now = pa.array([f"{trial_id} {etag}" for trial_id, etag in etags.items()], pa.string())
    return table.filter(pc.is_in(pc.binary_join_element_wise(table["trial_id"], table["etag"], " "), now))


def _store(records: StudyRecords, name: str, table: pa.Table) -> None:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    with contextlib.suppress(StorageError):  # a storage that one may only read is read without
        records.store.write(f"{records.study}/{name}", sink.getvalue())
