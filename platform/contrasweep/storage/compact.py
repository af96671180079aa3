"""A study of thousands of trials, read at once: its records and its reports, compacted into few files.

    <study>/compact/<kind>/<digest>.parquet    trial_id, etag, and what the kind has, of some thousand trials

An object store takes minutes for ten thousand small objects and a second for a few large ones. These files are called
parts. They may be deleted, since they are made from the trials' own files.

No part is ever invalidated, and no lock is taken. A row counts only while its `etag` is the one that the trial's
record.json has now (`StudyRecords.etags`); the other files of a trial are written before its record and never after.
The driver writes parts at its end. A reader that finds many trials in no part writes one, if the storage lets it. A
part is named by the digest of its trials and etags, so that two processes that compact the same trials write the same
part. A row without a step is of a trial that has no such file, so that nobody asks for the file again.
"""

import contextlib
import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.parquet_file import decode_table, encode_table, is_number, is_text
from contrasweep.storage.record import Record
from contrasweep.storage.records import MAX_TRIAL_READ, SYSTEM_FILE, StudyRecords

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
MIN_OBJECTS_TO_COMPACT = 200
"""A reader writes a part after it has read at least so many trials from their own files; a small study has no part."""
RECOMPACT_FRACTION = 0.1
"""The same as a fraction of the study's trials, so that a large study is compacted more rarely."""
TRIALS_PER_LISTING = 200  # a page of a listing holds a thousand keys, and a trial has about five
TRIALS_PER_TABLE = 500  # are joined at a time: ten thousand tables of a dozen rows take a gigabyte
THREADS = 16  # that wait for an object store
PART_TRIALS = 2_500
"""Trials in a full part. A part with less than half of that is joined with the next trials to a new one."""
KINDS = ("records", "curves", "system")
"""What is compacted: records, reports, and what trials used over time."""
RECORDS, CURVES, SYSTEMS = KINDS


_TYPES = {
    "trial_id": pa.string(),
    "etag": pa.string(),
    "record": pa.large_binary(),
    "step": pa.int64(),
}
"""Types of the named columns; all other columns are numbers."""
_IDS = {"trial_id": is_text, "etag": is_text}
"""The columns that the parts of every kind have, each with a check of its type."""
_STEPS = {**_IDS, "step": pa.types.is_integer}
"""The same for the kinds whose rows are reports or measurements."""
_COLUMNS = {RECORDS: {**_IDS, "record": pa.types.is_large_binary}, CURVES: _STEPS, SYSTEMS: _STEPS}
"""Kind -> the columns that its parts must have, each with a check of its type."""
_FILES = {CURVES: "metrics.parquet", SYSTEMS: SYSTEM_FILE}
"""Kind -> the trial's own file that its rows are from; those of `RECORDS` are from record.json."""


def read_records(
    records: StudyRecords,
    broken: list[BrokenFileError] | None = None,
    only: Collection[str] | None = None,
    etags: Mapping[str, str] | None = None,
) -> dict[str, Record]:
    """Return the records of the trials in `etags`, or of those that are in `only`.

    Args:
        records: The study's records.
        broken: A list to which the errors of broken files are added, whose trials are then left out; None: such an
            error is raised.
        only: Ids of the trials that are wanted; None: all in `etags`.
        etags: Trial id -> etag of every trial that has a record; None: as they are now (`StudyRecords.etags`).

    Returns:
        Trial id -> record.
    """
    # No table is made for a new study, because the first PyArrow array imports pandas, which is slow.
    etags = records.etags() if etags is None else etags
    if not etags:
        return {}
    wanted_ids = [trial_id for trial_id in etags if only is None or trial_id in only]
    table = _gather(records, RECORDS, etags, wanted_ids, broken)
    pa.default_memory_pool().release_unused()  # reading took several times what the table takes
    by_id: dict[str, Record] = {}
    shared: dict[object, object] = {}  # value, or the text of a dict -> the first equal value
    # Rows become Python objects some hundred at a time. Each batch is freed after that, so nothing else may hold it.
    batches = table.to_batches(max_chunksize=TRIALS_PER_TABLE)
    del table
    while batches:
        for row in batches.pop(0).to_pylist():
            trial_id = row["trial_id"]
            with _collected(broken):
                try:
                    record = records.parsed(trial_id, row["record"])
                    by_id[trial_id] = record
                    # Replicates have equal settings and versions, which take most of a record's memory: equal values
                    # become one object. A frozen record may be changed here, because it stays equal to what it was.
                    for name in ("config", "versions", "data", "code", "notes"):
                        value = getattr(record, name)
                        key = repr(value) if isinstance(value, dict) else value
                        object.__setattr__(record, name, shared.setdefault(key, value))
                except BrokenFileError:
                    # A part may have any content, so the trial's own file decides.
                    by_id |= records.read([trial_id])
    pa.default_memory_pool().release_unused()
    return by_id


def read_evaluations(
    records: StudyRecords, broken: list[BrokenFileError] | None
) -> dict[str, list[Record]]:
    """Return trial id -> records of the evaluations that scored its network.

    Trials whose network was not scored are left out. `broken` is as in `read_records`.
    """
    by_source: dict[str, list[Record]] = {}
    # An evaluation is a trial of another study, whose config names the study and the trial with the network.
    for name in records.evaluations():
        other = StudyRecords(records.storage, name)
        for record in read_records(other, broken).values():
            if record.status.counts and record.config.get("study") == records.study:
                by_source.setdefault(str(record.config.get("source")), []).append(record)
    return by_source


def scores_of(record: Record, evaluations: Mapping[str, Sequence[Record]]) -> list[Record]:
    """Return the evaluations of the network of this record's trial; `evaluations` is what `read_evaluations` returned.

    The setting `trained` of an evaluation is the time when the training of its network ended. Where that is not the end
    of this record, the evaluation scored an older network of the trial, and is left out.
    """
    return [
        score
        for score in evaluations.get(record.trial_id, ())
        if score.config.get("trained") == record.ended
    ]


def with_scores(record: Record, evaluations: Mapping[str, Sequence[Record]]) -> Record:
    """Return the record of a trial with the scores of its evaluations as further metrics and items.

    A score has a slash in its name, `digits/knn1`; an evaluation's other metrics are left out. Without evaluations the
    record is returned as it is.
    """
    evaluated = scores_of(record, evaluations)
    if not evaluated:
        return record
    metrics = dict(record.metrics)
    items = list(record.items)
    for evaluation in evaluated:
        metrics |= {name: value for name, value in evaluation.metrics.items() if "/" in name}
        items += evaluation.items
    return replace(record, metrics=metrics, items=tuple(items))


def read_curves(
    records: StudyRecords,
    etags: Mapping[str, str],
    trial_ids: Iterable[str],
    broken: list[BrokenFileError] | None = None,
    kind: str = CURVES,
) -> "pd.DataFrame":
    """Return every report of these trials as a frame: trial_id, step, time, and a column for each metric.

    With `kind` `SYSTEMS` the rows say what the trials used over time instead, with a column for each quantity. A value
    is NaN where a report lacks the metric. Trials without reports have no rows. `etags` are those of all trials of the
    study; `broken` is as in `read_records`.
    """
    import pandas as pd

    table = _gather(records, kind, etags, list(dict.fromkeys(trial_ids)), broken)
    # Converted a column at a time, so that the curves of a large study are not in memory twice.
    columns: dict[str, object] = {}
    for name in table.column_names:
        column = table[name]
        table = table.drop_columns([name])
        if name == "trial_id":
            columns[name] = column.dictionary_encode().combine_chunks().to_pandas()
        elif name != "etag":
            columns[name] = column.to_numpy()
        del column
        pa.default_memory_pool().release_unused()
    frame = pd.DataFrame(columns, copy=False)
    # Without rows no file gave the columns of reports.
    return frame if len(frame) else frame.assign(step=[], time=[])


def compact_finished(records: StudyRecords) -> None:
    """Write compacted files of all trials that have a record and are in none yet, unless the study is small.

    Where the storage fails, a warning is logged and nothing is raised.
    """
    try:
        etags = records.etags()
        if len(etags) >= MIN_OBJECTS_TO_COMPACT:
            # `_gather` compacts what it reads from own files. Broken files are left out (`[]`).
            for kind in KINDS:
                _gather(records, kind, etags, list(etags), [], least=1)
    except StorageError as error:
        # readers are slower without parts, and name the broken file themselves
        log.warning("the study's files were not compacted: %s", error)


@contextlib.contextmanager
def _collected(broken: list[BrokenFileError] | None) -> Iterator[None]:
    """Add a `BrokenFileError` that the body of `with` raises to the list `broken`; where that is None, raise it."""
    try:
        yield
    except BrokenFileError as error:
        if broken is None:
            raise
        broken.append(error)


def _gather(
    records: StudyRecords,
    kind: str,
    etags: Mapping[str, str],
    wanted: list[str],
    broken: list[BrokenFileError] | None,
    least: int | None = None,
) -> pa.Table:
    """Return the rows of the `wanted` trials, and write those that were in no compacted file to a new one.

    The rows of a trial are taken from a compacted file (part) that is up to date, else from the trial's own file.

    Args:
        records: The study's records.
        kind: One of `KINDS`.
        etags: Trial id -> etag of the record, of all trials of the study. Rows of parts with another etag are stale.
        wanted: Ids of trials.
        broken: As in `read_records`.
        least: A part is written if at least so many trials were read from their own files; None: if they are so many
            that the next reader gains by it.

    Returns:
        A table with the columns of the kind. A trial whose file is broken or missing has no row.
    """
    parts = read_parts(records, kind, etags) if len(etags) >= MIN_OBJECTS_TO_COMPACT else []
    compacted = frozenset[str]().union(*(part.trials for part in parts))
    not_compacted = [trial_id for trial_id in wanted if trial_id not in compacted]
    fresh = _rows_from_own_files(records, kind, etags, not_compacted, broken)
    # Files of a trial without a record may still change, so they are never compacted.
    recorded = fresh.filter(pc.is_valid(fresh["etag"]))
    least = least or max(MIN_OBJECTS_TO_COMPACT, int(RECOMPACT_FRACTION * len(etags)))
    if pc.count_distinct(recorded["trial_id"]).as_py() >= least:
        write_parts(records, kind, parts, recorded)
    tables = [*(part.rows for part in parts), fresh]
    del parts, fresh, recorded
    parts_have_others = not compacted.issubset(wanted)
    # One table after the other, because a filter makes a copy, and all tables together are large.
    for i, table in enumerate(tables):
        if parts_have_others:
            table = table.filter(pc.is_in(table["trial_id"], pa.array(wanted, pa.string())))
        # A row without a step says that the trial has no such file.
        if kind != RECORDS:
            table = table.filter(pc.is_valid(table["step"]))
        tables[i] = table
    return pa.concat_tables(tables, promote_options="default")


def _rows_from_own_files(
    records: StudyRecords,
    kind: str,
    etags: Mapping[str, str],
    trial_ids: list[str],
    broken: list[BrokenFileError] | None,
) -> pa.Table:
    """Return the rows of trials from the trials' own files, with the columns `trial_id` and `etag` added.

    `etag` is that of the trial's record, and null where it has no record. A trial that has no file of this kind gets
    one row whose step is null; with the kind `RECORDS` it gets no row. `broken` is as in `read_records`.
    """
    # Short trials have no system.parquet, and a request for a missing file costs as much as a page of a listing. A page
    # has TRIALS_PER_LISTING trials. So where more trials are read than there are pages, the listing is cheaper.
    if kind == SYSTEMS and len(trial_ids) * TRIALS_PER_LISTING > len(etags):
        keys = records.store.etags(f"{records.study}/trials/", SYSTEM_FILE)
        with_files = {key.split("/")[-2] for key in keys}
    else:
        with_files = set(trial_ids)

    def fetch(trial_id: str) -> pa.Table | BrokenFileError | None:
        """Return the rows of a trial, None where it has no record to read, or the error of its broken file.

        The error is returned and not raised, because this runs in a thread; the caller raises it.
        """
        try:
            if trial_id in with_files:
                return _single(records, kind, trial_id)
        except FileNotFoundError:
            pass
        except BrokenFileError as error:
            return error
        return None if kind == RECORDS else pa.table({"step": pa.nulls(1, pa.int64())})

    # Tables of few rows take much memory each, so they are joined some hundred at a time.
    whole = [empty_rows(kind)]
    with ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, len(trial_ids), TRIALS_PER_TABLE):
            chunk = trial_ids[first : first + TRIALS_PER_TABLE]
            tables = list[pa.Table]()
            for trial_id, fetched in zip(chunk, pool.map(fetch, chunk), strict=True):
                with _collected(broken):
                    if isinstance(fetched, BrokenFileError):
                        raise fetched
                    if fetched is not None:
                        ids = pa.array([trial_id] * len(fetched), pa.string())
                        tables.append(fetched.append_column("trial_id", ids))
            if tables:
                joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
                row_etags = [etags.get(trial_id) for trial_id in joined["trial_id"].to_pylist()]
                whole.append(joined.append_column("etag", pa.array(row_etags, pa.string())))
    return pa.concat_tables(whole, promote_options="default")


def _single(records: StudyRecords, kind: str, trial_id: str) -> pa.Table:
    """Return the rows in a trial's own file; where the file has none, one row whose step is null.

    With the kind `RECORDS` that is one row with the bytes of record.json. `FileNotFoundError` where there is no file,
    `BrokenFileError` where it is broken.
    """
    if kind == RECORDS:
        return pa.table({"record": pa.array([records.record_bytes(trial_id)], pa.large_binary())})
    data = records.store.read(records.key(trial_id, _FILES[kind]), MAX_TRIAL_READ)
    table = records.metrics_table(trial_id, data, _FILES[kind])
    return table if len(table) else pa.table({"step": pa.nulls(1, pa.int64())})


@dataclass(frozen=True)
class Part:
    """A compacted file, which has the rows of many trials: those `rows` of it that are up to date."""

    key: str
    rows: pa.Table
    trials: frozenset[str]  # the ids in `rows`


def empty_rows(kind: str) -> pa.Table:
    """Return a table without rows, with the columns that compacted files of this kind (one of `KINDS`) have."""
    return pa.schema([(column, _TYPES[column]) for column in _COLUMNS[kind]]).empty_table()


def kind_of(key: str) -> str | None:
    """Return the kind of the compacted file with the key `key`, relative to its study; None for any other file.

    `compact/curves/4f.parquet` gives `curves`.
    """
    folder, _, name = key.removeprefix("compact/").partition("/")
    if key.startswith("compact/") and key.endswith(".parquet") and folder in KINDS and name:
        return folder
    return None


def read_parts(records: StudyRecords, kind: str, etags: Mapping[str, str]) -> list[Part]:
    """Return the parts of a kind, with the rows that are still valid; each trial is in one part at most.

    A part that cannot be read is returned without rows: its trials are then read from their own files.
    """
    keys = sorted(
        key
        for key in records.store.list(f"{records.study}/compact/{kind}")
        if kind_of(key.removeprefix(f"{records.study}/")) == kind
    )
    if not keys:
        return []
    # A row is valid if its trial and etag, joined to one text, are among these.
    valid = pa.array([f"{trial_id} {etag}" for trial_id, etag in etags.items()], pa.string())

    parts = list[Part]()
    ids_taken = frozenset[str]()
    # One part after the other, because reading one takes several times the memory of its rows.
    for key in keys:
        table = _read(records, key, kind)
        texts = pc.binary_join_element_wise(table["trial_id"], table["etag"], " ")
        rows = table.filter(pc.is_in(texts, valid))
        trials = frozenset(rows["trial_id"].unique().to_pylist())
        # Two drivers may have compacted the same trials: then the first part keeps them.
        repeated = trials & ids_taken
        if repeated:
            are_repeated = pc.is_in(rows["trial_id"], pa.array(sorted(repeated), pa.string()))
            rows = rows.filter(pc.invert(are_repeated))
        parts.append(Part(key, rows, trials - ids_taken))
        ids_taken |= trials
        del table
        pa.default_memory_pool().release_unused()
    return parts


def _read(records: StudyRecords, key: str, kind: str) -> pa.Table:
    """Return all rows of a part, stale ones too, with the types that all parts have.

    A table without rows where the part is missing or broken.
    """
    try:
        table = decode_part(records.store.read(key), f"{records.store.uri}/{key}", kind)
        return table.cast(
            pa.schema([(column, _TYPES.get(column, pa.float64())) for column in table.column_names])
        )
    except (FileNotFoundError, BrokenFileError, pa.ArrowException):
        return empty_rows(kind)


def decode_part(data: bytes, file: str, kind: str) -> pa.Table:
    """Return the table in `data`, the content of a compacted file of this kind; `file` is its name for errors.

    `BrokenFileError` where it is broken, or has other columns than the kind.
    """
    remedy = "delete it, and it is made again from the trials' own files"
    # Records have the named columns alone, the other kinds numbers too.
    others = None if kind == RECORDS else is_number
    return decode_table(data, file, remedy, _COLUMNS[kind], others)


def write_parts(records: StudyRecords, kind: str, parts: Sequence[Part], fresh: pa.Table) -> None:
    """Write `fresh`, the rows of trials that are in no compacted file, to one or more new ones.

    Of the files `parts`, those that are less than half full are joined with the new ones, and then deleted. Errors of
    the storage are ignored, because a reader may not be allowed to write.
    """
    small = [part for part in parts if len(part.trials) < PART_TRIALS // 2]
    rows = pa.concat_tables([*(part.rows for part in small), fresh], promote_options="default")
    # A new part has the rows of at most `PART_TRIALS` trials, all rows of each.
    with contextlib.suppress(StorageError):
        trials = rows["trial_id"].unique()
        for first in range(0, len(trials), PART_TRIALS):
            in_part = pc.is_in(rows["trial_id"], trials[first : first + PART_TRIALS])
            part_rows = rows.filter(in_part).combine_chunks()
            key = f"{records.study}/compact/{kind}/{_name(part_rows)}.parquet"
            records.store.write(key, encode_table(part_rows))
        for part in small:
            records.store.delete(part.key)


def _name(rows: pa.Table) -> str:
    """Return the name of a compacted file with these rows: 32 hexadecimal digits.

    It is a digest of the trials' ids and etags. So two processes that compact the same trials write the same file.
    """
    pairs = set(zip(rows["trial_id"].to_pylist(), rows["etag"].to_pylist(), strict=True))
    text = "\n".join(f"{trial_id} {etag}" for trial_id, etag in sorted(pairs))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
