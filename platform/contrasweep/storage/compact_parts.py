"""The compacted files of a study, in parts of some thousand trials: what has not changed is never written again.

    <study>/compact/<kind>/<digest>.parquet    trial_id, etag, and what the kind has

A part is named by the digest of the trials and etags in it, so two that write the same trials write the same part. A
row without a step stands for a trial that has no such file, so that nobody asks for it again.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.parquet_file import decode_table, encode_table, is_number, is_text
from contrasweep.storage.records import StudyRecords

PART_TRIALS = 2_500
"""Trials in a part that is full. One with fewer than half of that is written anew with what comes next."""
RECORDS, CURVES, SYSTEMS = KINDS = ("records", "curves", "system")
THREADS = 8


def _is_content(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind))


_IDS = {"trial_id": is_text, "etag": is_text}
_STEPS = {**_IDS, "step": pa.types.is_integer}
_COLUMNS = {RECORDS: {**_IDS, "record": _is_content}, CURVES: _STEPS, SYSTEMS: _STEPS}


@dataclass(frozen=True)
class Part:
    """A compacted file: its key, and its rows of trials whose records are as they were when it was written."""

    key: str
    rows: pa.Table
    trials: frozenset[str]

    @property
    def full(self) -> bool:
        """Whether it stays as it is when more trials are compacted."""
        return len(self.trials) >= PART_TRIALS // 2


def empty_rows(kind: str) -> pa.Table:
    """No rows of a kind."""
    own = {"record": pa.array([], pa.large_binary())} if kind == RECORDS else {"step": pa.array([], pa.int64())}
    return pa.table({"trial_id": pa.array([], pa.string()), "etag": pa.array([], pa.string()), **own})


def kind_of(key: str) -> str | None:
    """The kind of compacted file that `key` below a study is; None where it is none."""
    folder, _, name = key.removeprefix("compact/").partition("/")
    return folder if key.startswith("compact/") and key.endswith(".parquet") and folder in KINDS and name else None


def read_parts(records: StudyRecords, kind: str, etags: Mapping[str, str], *, ids_of_full: bool = False) -> list[Part]:
    """The parts of a kind with the rows that hold; no trial stands in two. One that cannot be read has no rows, because
    it can be made again. With `ids_of_full`, rows of full parts are trial_id and etag alone."""
    keys = sorted(
        key for key in records.store.list(f"{records.study}/compact/{kind}") if _kind_below(records, key) == kind
    )
    if not keys:
        return []
    now = pa.array([f"{trial_id} {etag}" for trial_id, etag in etags.items()], pa.string())

    def read(key: str) -> Part:
        table = _read(records, key, kind)
        rows = table.filter(pc.is_in(pc.binary_join_element_wise(table["trial_id"], table["etag"], " "), now))
        part = Part(key, rows, frozenset(rows["trial_id"].unique().to_pylist()))
        return replace(part, rows=rows.select(list(_IDS))) if ids_of_full and part.full else part

    parts, taken = list[Part](), frozenset[str]()
    with ThreadPoolExecutor(THREADS) as pool:
        for part in pool.map(read, keys):
            if twice := part.trials & taken:
                others = pc.invert(pc.is_in(part.rows["trial_id"], pa.array(sorted(twice), pa.string())))
                part = Part(part.key, part.rows.filter(others), part.trials - taken)
            parts.append(part)
            taken |= part.trials
    return parts


def _read(records: StudyRecords, key: str, kind: str) -> pa.Table:
    """All rows of a part; none where it is missing or broken."""
    try:
        table = decode_part(records.store.read(key), f"{records.store.uri}/{key}", kind)
        return table.cast(pa.schema([(column, _type(column)) for column in table.column_names]))
    except (FileNotFoundError, BrokenFileError, pa.ArrowException):
        return empty_rows(kind)


def decode_part(data: bytes, file: str, kind: str) -> pa.Table:
    """The table in the content of a compacted file; `BrokenFileError` where it is broken."""
    remedy = "delete it, and it is made again from the trials' own files"
    return decode_table(data, file, remedy, _COLUMNS[kind], None if kind == RECORDS else is_number)


def write_parts(records: StudyRecords, kind: str, parts: Sequence[Part], fresh: pa.Table) -> None:
    """Write the rows `fresh`, all of trials that are in no part, together with those of the parts that are not full,
    which are deleted then. Nothing is said of a storage that one may only read."""
    small = [part for part in parts if not part.full]
    rows = pa.concat_tables([*(part.rows for part in small), fresh], promote_options="default")
    written = set[str]()
    with contextlib.suppress(StorageError):
        for chunk in _chunks(rows):
            key = f"{records.study}/compact/{kind}/{_name(chunk)}.parquet"
            records.store.write(key, encode_table(chunk))
            written.add(key)
        for part in small:
            if part.key not in written:
                records.store.delete(part.key)


def _chunks(rows: pa.Table) -> Iterator[pa.Table]:
    trials = rows["trial_id"].unique()
    for first in range(0, len(trials), PART_TRIALS):
        yield rows.filter(pc.is_in(rows["trial_id"], trials[first : first + PART_TRIALS])).combine_chunks()


def _name(rows: pa.Table) -> str:
    pairs = set(zip(rows["trial_id"].to_pylist(), rows["etag"].to_pylist(), strict=True))
    return hashlib.sha256("\n".join(f"{trial_id} {etag}" for trial_id, etag in sorted(pairs)).encode()).hexdigest()[:32]


def _kind_below(records: StudyRecords, key: str) -> str | None:
    return kind_of(key.removeprefix(f"{records.study}/"))


def _type(column: str) -> pa.DataType:
    kinds = {"trial_id": pa.string(), "etag": pa.string(), "record": pa.large_binary(), "step": pa.int64()}
    return kinds.get(column, pa.float64())
