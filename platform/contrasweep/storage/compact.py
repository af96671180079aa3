"""A study of thousands of trials, read at once: its records and its reports, each compacted into one file.

    <study>/compact/records.parquet    trial_id, etag, record (its JSON)
    <study>/compact/curves.parquet     trial_id, etag, step, time, the metrics
    <study>/compact/system.parquet     trial_id, etag, step, time, what was in use

An object store takes minutes for ten thousand small objects and a second for two files. Both are derived and may be
deleted: a row counts only while its `etag` is the one that the trial's record.json has now (`Store.etags`), and
what belongs to a record is written before it and never after. So nobody need invalidate them, and no lock is taken:
whoever reads a study much of which they lack writes them anew, where the storage lets it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.parquet_file import decode_table, encode_table, is_number, is_text
from contrasweep.storage.read_limit import MAX_TRIAL_READ
from contrasweep.storage.record import Record
from contrasweep.storage.records import SYSTEM, StudyRecords

if TYPE_CHECKING:
    import pandas as pd

RECORDS, CURVES, SYSTEMS = "compact/records.parquet", "compact/curves.parquet", "compact/system.parquet"
MIN_OBJECTS_TO_COMPACT = 200  # read singly before a file is written: a small study needs none
RECOMPACT_FRACTION = 0.1  # of the trials: a growing study is compacted ever more rarely
THREADS = 16


def _is_content(kind: pa.DataType) -> bool:
    return is_text(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_IDS = {"trial_id": is_text, "etag": is_text}
_STEPS = {**_IDS, "step": pa.types.is_integer}
_COLUMNS = {RECORDS: {**_IDS, "record": _is_content}, CURVES: _STEPS, SYSTEMS: _STEPS}


def read_records(
    records: StudyRecords, etags: Mapping[str, str], broken: list[BrokenFileError] | None = None
) -> dict[str, Record]:
    """The records of the trials in `etags` (trial id -> etag, from `record_etags`). What is broken is left out and
    added to `broken`; without such a list it is raised."""
    if not etags:
        return {}  # a plan of a new study need not wait for pandas, which PyArrow imports with its first array

    def content(trial_id: str, data: bytes) -> pa.Table:
        return pa.table({"record": pa.array([data], pa.large_binary())})

    table = _gather(records, RECORDS, etags, list(etags), "record.json", content, broken)
    known = {}
    for trial_id, data in zip(table["trial_id"].to_pylist(), table["record"].to_pylist(), strict=True):
        with _collected(broken):
            known[trial_id] = records.parsed(trial_id, data)
    return known


def read_curves(
    records: StudyRecords,
    etags: Mapping[str, str],
    trial_ids: Iterable[str],
    broken: list[BrokenFileError] | None = None,
) -> "pd.DataFrame":
    """Every report of `trial_ids`: trial_id, step, time, and the metrics; NaN where a report did not give one.
    `broken` as in `read_records`."""
    wanted = list(dict.fromkeys(trial_ids))
    table = _gather(records, CURVES, etags, wanted, "metrics.parquet", records.metrics_table, broken)
    frame: pd.DataFrame = table.drop_columns(["etag"]).to_pandas(strings_to_categorical=True)
    return frame if len(frame) else frame.assign(step=[], time=[])


def read_system(
    records: StudyRecords, etags: Mapping[str, str], trial_ids: Iterable[str], broken: list[BrokenFileError]
) -> "pd.DataFrame":
    """What `trial_ids` used over time: trial_id, step, time, and what was in use; `broken` as in `read_records`."""
    there = {key.split("/")[-2] for key in records.store.etags(f"{records.study}/trials/", SYSTEM)}
    wanted = [trial_id for trial_id in dict.fromkeys(trial_ids) if trial_id in there]  # short trials have none
    table = _gather(records, SYSTEMS, etags, wanted, SYSTEM, records.system_table, broken)
    frame: pd.DataFrame = table.drop_columns(["etag"]).to_pandas(strings_to_categorical=True)
    return frame


@contextlib.contextmanager
def _collected(broken: list[BrokenFileError] | None) -> Iterator[None]:
    """What is broken goes into the list, or is raised where there is none."""
    try:
        yield
    except BrokenFileError as error:
        if broken is None:
            raise
        broken.append(error)


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
    decode: Callable[[str, bytes], pa.Table],
    broken: list[BrokenFileError] | None,
) -> pa.Table:
    """The rows of `wanted` trials: from the compacted file `name` where it has them as they are now, else from each
    trial's own file `single`."""

    def fetch(trial_id: str) -> bytes | BrokenFileError | None:
        try:
            return records.store.read(records.key(trial_id, single), MAX_TRIAL_READ)
        except FileNotFoundError:
            return None
        except BrokenFileError as error:
            return error

    kept = _load(records, name, etags)
    have = set(kept["trial_id"].unique().to_pylist())
    missing = [trial_id for trial_id in wanted if trial_id not in have]
    with ThreadPoolExecutor(THREADS) as pool:
        fresh = {}
        for trial_id, data in zip(missing, pool.map(fetch, missing), strict=True):
            with _collected(broken):
                if isinstance(data, BrokenFileError):
                    raise data
                if data is not None:
                    fresh[trial_id] = decode(trial_id, data)
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
    """The rows that still hold; none where the file is missing or cannot be read, because it can be made again."""
    empty = pa.table({"trial_id": pa.array([], pa.string()), "etag": pa.array([], pa.string())})
    if name == RECORDS:
        empty = empty.append_column("record", pa.array([], pa.large_binary()))
    if len(etags) < MIN_OBJECTS_TO_COMPACT:
        return empty
    try:
        table = decode_compact(records.store.read(f"{records.study}/{name}"), name)
        table = table.cast(pa.schema([(column, _kind(column)) for column in table.column_names]))
    except (FileNotFoundError, BrokenFileError, pa.ArrowException):
        return empty
    now = pa.array([f"{trial_id} {etag}" for trial_id, etag in etags.items()], pa.string())
    return table.filter(pc.is_in(pc.binary_join_element_wise(table["trial_id"], table["etag"], " "), now))


def decode_compact(data: bytes, name: str) -> pa.Table:
    """The table in the content of one of the compacted files; `BrokenFileError` where it is broken."""
    remedy = "delete it, and it is made again from the trials' own files"
    return decode_table(data, name, remedy, _COLUMNS[name], None if name == RECORDS else is_number)


def _kind(column: str) -> pa.DataType:
    kinds = {"trial_id": pa.string(), "etag": pa.string(), "record": pa.large_binary(), "step": pa.int64()}
    return kinds.get(column, pa.float64())


def _store(records: StudyRecords, name: str, table: pa.Table) -> None:
    with contextlib.suppress(StorageError):  # a storage that one may only read is read without
        records.store.write(f"{records.study}/{name}", encode_table(table))
