"""A study of thousands of trials, read at once: its records and its reports, compacted into few files.

    <study>/compact/<kind>/<digest>.parquet    trial_id, etag, and what the kind has, of some thousand trials

An object store takes minutes for ten thousand small objects and a second for a few large ones. The files, parts, are
derived and may be deleted: a row counts only while its `etag` is the one that the trial's record.json has now
(`StudyRecords.etags`), and what belongs to a record is written before it and never after. So nobody need invalidate
them, and no lock is taken: the driver writes them at its end, and whoever reads a study much of which they lack
writes what is missing, where the storage lets it. A part is named by the digest of the trials and etags in it, so two
that write the same trials write the same part. A row without a step stands for a trial that has no such file, so that
nobody asks for it again.
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
from contrasweep.storage.records import MAX_TRIAL_READ, SYSTEM, StudyRecords

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
MIN_OBJECTS_TO_COMPACT = 200
"""Trials that are read singly at least before a part is written: a small study needs none."""
RECOMPACT_FRACTION = 0.1
"""The same as a fraction of the study's trials: whoever reads a growing study compacts it ever more rarely."""
TRIALS_PER_LISTING = 200  # a page of a listing holds a thousand keys, and a trial has about five
TRIALS_PER_TABLE = 500  # joined at a time: ten thousand tables of a dozen rows take a gigabyte
THREADS = 16  # that wait for an object store
PART_TRIALS = 2_500
"""Trials in a part that is full. One with fewer than half of that is written anew with what comes next."""
RECORDS, CURVES, SYSTEMS = KINDS = ("records", "curves", "system")


_TYPES = {
    "trial_id": pa.string(),
    "etag": pa.string(),
    "record": pa.large_binary(),
    "step": pa.int64(),
}
"""Of the named columns; all others are numbers."""
_IDS = {"trial_id": is_text, "etag": is_text}
_STEPS = {**_IDS, "step": pa.types.is_integer}
_COLUMNS = {RECORDS: {**_IDS, "record": pa.types.is_large_binary}, CURVES: _STEPS, SYSTEMS: _STEPS}
_FILES = {CURVES: "metrics.parquet", SYSTEMS: SYSTEM}


def read_records(
    records: StudyRecords,
    etags: Mapping[str, str],
    broken: list[BrokenFileError] | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Record]:
    """Return the records of the trials in `etags`, or of those that are in `only`.

    Args:
        records: The study's records.
        etags: Trial id -> etag of every trial that has a record (`StudyRecords.etags`).
        broken: Gets the errors of broken files, whose trials are left out; without it they are raised.
        only: Ids of the trials that are wanted; None: all in `etags`.

    Returns:
        Trial id -> record.
    """
    if not etags:
        return {}  # a plan of a new study need not wait for pandas, which PyArrow imports with its first array
    wanted_ids = [trial_id for trial_id in etags if only is None or trial_id in only]
    # Rows of parts where these have them, of the trials' own files otherwise.
    table = _gather(records, RECORDS, etags, wanted_ids, broken)
    pa.default_memory_pool().release_unused()  # reading took several times what the table takes
    by_id: dict[str, Record] = {}
    # what replicates have alike is kept once: it is most of a record's memory
    shared: dict[object, object] = {}
    batches = table.to_batches(max_chunksize=TRIALS_PER_TABLE)
    del table
    while batches:
        for row in batches.pop(0).to_pylist():
            with _collected(broken):
                trial_id = row["trial_id"]
                try:
                    record = by_id[trial_id] = records.parsed(trial_id, row["record"])
                except BrokenFileError:  # a part may say anything: the trial's own file counts
                    by_id |= records.read([trial_id])
                    continue
                for name in ("config", "versions", "data", "code", "notes"):
                    value = getattr(record, name)
                    known = repr(value) if isinstance(value, dict) else value
                    object.__setattr__(record, name, shared.setdefault(known, value))
    pa.default_memory_pool().release_unused()
    return by_id


def read_evaluations(
    records: StudyRecords, broken: list[BrokenFileError] | None = None
) -> dict[str, list[Record]]:
    """Return trial id -> records of the trials that scored the network which this trial of the study has trained.

    Trials that scored nothing are no keys. `broken` is as in `read_records`.
    """
    by_source: dict[str, list[Record]] = {}
    for name in records.evaluations():
        other = StudyRecords(records.storage, name)
        for record in read_records(other, other.etags(), broken).values():
            if record.status.counts and record.config.get("study") == records.study:
                by_source.setdefault(str(record.config.get("source")), []).append(record)
    return by_source


def scores_of(record: Record, evaluations: Mapping[str, Sequence[Record]]) -> list[Record]:
    """Return the evaluations of a trial's network, of what `read_evaluations` returned.

    `trained` in their config is when the network that they scored had ended. It differs from the record's where the
    trial was trained again since: these are left out.
    """
    return [
        score
        for score in evaluations.get(record.trial_id, ())
        if score.config.get("trained") == record.ended
    ]


def with_scores(record: Record, evaluations: Mapping[str, Sequence[Record]]) -> Record:
    """Return the record of a trial with the scores of its evaluations as further metrics and items.

    A score has a slash in its name, `digits/knn1`; other metrics of an evaluation are its own. Without evaluations the
    record is returned as it is.
    """
    scored = scores_of(record, evaluations)
    metrics = {
        name: value for score in scored for name, value in score.metrics.items() if "/" in name
    }
    items = tuple(name for score in scored for name in score.items)
    if scored:
        return replace(record, metrics={**record.metrics, **metrics}, items=(*record.items, *items))
    return record


def read_curves(
    records: StudyRecords,
    etags: Mapping[str, str],
    trial_ids: Iterable[str],
    broken: list[BrokenFileError] | None = None,
    kind: str = CURVES,
) -> "pd.DataFrame":
    """Return every report of these trials as a frame: trial_id, step, time, and a column for each metric.

    With `kind` `SYSTEMS` the rows are of what they used over time instead, with a column for each quantity. NaN where a
    report did not give a metric. Trials without reports have no rows. `etags` are those of the whole study; `broken` is
    as in `read_records`.
    """
    import pandas as pd

    table = _gather(records, kind, etags, list(dict.fromkeys(trial_ids)), broken)
    # A column at a time, so that a big study's curves are not in memory twice.
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
    return frame if len(frame) else frame.assign(step=[], time=[])


def compact_finished(records: StudyRecords) -> None:
    """Compact the trials that have a record and are in no part yet.

    Nothing is done for a small study. A storage that fails is said in the log; nothing is raised.
    """
    try:
        etags = records.etags()
        if len(etags) >= MIN_OBJECTS_TO_COMPACT:
            for kind in KINDS:
                _gather(records, kind, etags, list(etags), [], least=1)
    except StorageError as error:  # reports are slower without, and say what is broken
        log.warning("the study's files were not compacted: %s", error)


@contextlib.contextmanager
def _collected(broken: list[BrokenFileError] | None) -> Iterator[None]:
    """While open, append the error of a broken file to the list `broken`; without a list, let it pass."""
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
    """Return the rows of `wanted` trials: from the compacted files where these are up to date, else from their own.

    Args:
        records: The study's records.
        kind: One of `KINDS`.
        etags: Trial id -> etag of the record of all trials of the study: a row with any other is taken for stale.
        wanted: Ids of trials.
        broken: As in `read_records`.
        least: Where so many trials were read from their own files, they are compacted; None: as many as make it worth
            a reader's while.

    Returns:
        A table with the columns of the kind. A trial whose file is broken, or that has none, has no row.
    """
    parts = read_parts(records, kind, etags) if len(etags) >= MIN_OBJECTS_TO_COMPACT else []
    compacted = frozenset[str]().union(*(part.trials for part in parts))
    fresh = _fresh(
        records, kind, etags, [trial_id for trial_id in wanted if trial_id not in compacted], broken
    )
    # Files of a trial without a record may still change, so they are never compacted.
    recorded = fresh.filter(pc.is_valid(fresh["etag"]))
    # Whoever reads many trials that are in no part leaves them compacted for the next reader.
    least = least or max(MIN_OBJECTS_TO_COMPACT, int(RECOMPACT_FRACTION * len(etags)))
    if pc.count_distinct(recorded["trial_id"]).as_py() >= least:
        write_parts(records, kind, parts, recorded)
    tables = [*(part.rows for part in parts), fresh]
    del parts, fresh, recorded
    # One table after the other: to filter is to copy, and all of them together are large.
    for place, table in enumerate(tables):
        # Parts may have trials that were not asked for.
        if compacted - set(wanted):
            table = table.filter(pc.is_in(table["trial_id"], pa.array(wanted, pa.string())))
        # A row without a step says that the trial has no such file.
        tables[place] = table if kind == RECORDS else table.filter(pc.is_valid(table["step"]))
    return pa.concat_tables(tables, promote_options="default")


def _fresh(
    records: StudyRecords,
    kind: str,
    etags: Mapping[str, str],
    trial_ids: list[str],
    broken: list[BrokenFileError] | None,
) -> pa.Table:
    """Return the rows of trials from their own files, with the etag of their record; null where it has none yet.

    A trial without such a file has one row without a step; of `RECORDS` it has none. `broken` is as in `read_records`.
    """
    # Short trials have no file of what they used: where many are read, one listing says which have one.
    if kind == SYSTEMS and len(trial_ids) * TRIALS_PER_LISTING > len(etags):
        with_files = {
            key.split("/")[-2] for key in records.store.etags(f"{records.study}/trials/", SYSTEM)
        }
    else:
        with_files = set(trial_ids)

    def fetch(trial_id: str) -> pa.Table | BrokenFileError | None:
        """Return the rows of a trial, or the error of a broken file; None where its record is missing."""
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
            several = trial_ids[first : first + TRIALS_PER_TABLE]
            tables = list[pa.Table]()
            for trial_id, table in zip(several, pool.map(fetch, several), strict=True):
                with _collected(broken):
                    if isinstance(table, BrokenFileError):
                        raise table
                    if table is not None:
                        ids = pa.array([trial_id] * len(table), pa.string())
                        tables.append(table.append_column("trial_id", ids))
            if tables:
                joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
                tags = [etags.get(trial_id) for trial_id in joined["trial_id"].to_pylist()]
                whole.append(joined.append_column("etag", pa.array(tags, pa.string())))
    return pa.concat_tables(whole, promote_options="default")


def _single(records: StudyRecords, kind: str, trial_id: str) -> pa.Table:
    """Return the content of a trial's own file as rows; one without a step where it has none.

    `FileNotFoundError` where there is no file, `BrokenFileError` where it is broken.
    """
    if kind == RECORDS:
        return pa.table({"record": pa.array([records.record_bytes(trial_id)], pa.large_binary())})
    data = records.store.read(records.key(trial_id, _FILES[kind]), MAX_TRIAL_READ)
    table = records.metrics_table(trial_id, data, _FILES[kind])
    return table if len(table) else pa.table({"step": pa.nulls(1, pa.int64())})


@dataclass(frozen=True)
class Part:
    """A compacted file: its key, and the rows of trials whose records have not changed since it was written.

    `trials` are the ids in `rows`.
    """

    key: str
    rows: pa.Table
    trials: frozenset[str]


def empty_rows(kind: str) -> pa.Table:
    """Return a table without rows, with the named columns of the kind (one of `KINDS`)."""
    return pa.schema([(column, _TYPES[column]) for column in _COLUMNS[kind]]).empty_table()


def kind_of(key: str) -> str | None:
    """Return the kind of compacted file that `key` (relative to its study) is; None where it is none.

    `compact/curves/4f.parquet` gives `curves`.
    """
    folder, _, name = key.removeprefix("compact/").partition("/")
    if key.startswith("compact/") and key.endswith(".parquet") and folder in KINDS and name:
        return folder
    return None


def read_parts(records: StudyRecords, kind: str, etags: Mapping[str, str]) -> list[Part]:
    """Return the parts of a kind, with the rows that are still valid; each trial is in one part at most.

    A part that cannot be read has no rows, because it can be made again.
    """
    keys = sorted(
        key
        for key in records.store.list(f"{records.study}/compact/{kind}")
        if kind_of(key.removeprefix(f"{records.study}/")) == kind
    )
    if not keys:
        return []
    # A row is valid where its trial and etag, as one text, are among those of now.
    valid = pa.array([f"{trial_id} {etag}" for trial_id, etag in etags.items()], pa.string())

    parts = list[Part]()
    ids_taken = frozenset[str]()
    # One part after the other: reading one takes several times the memory of its rows.
    for key in keys:
        table = _read(records, key, kind)
        rows = table.filter(
            pc.is_in(pc.binary_join_element_wise(table["trial_id"], table["etag"], " "), valid)
        )
        trials = frozenset(rows["trial_id"].unique().to_pylist())
        # Two drivers may have compacted the same trials: the first part keeps them.
        if twice := trials & ids_taken:
            again = pc.is_in(rows["trial_id"], pa.array(sorted(twice), pa.string()))
            rows = rows.filter(pc.invert(again))
        parts.append(Part(key, rows, trials - ids_taken))
        ids_taken |= trials
        del table
        pa.default_memory_pool().release_unused()
    return parts


def _read(records: StudyRecords, key: str, kind: str) -> pa.Table:
    """Return all rows of a part, stale ones too, with the types that rows of other parts have.

    None of them where the part is missing or broken.
    """
    try:
        table = decode_part(records.store.read(key), f"{records.store.uri}/{key}", kind)
        return table.cast(
            pa.schema([(column, _TYPES.get(column, pa.float64())) for column in table.column_names])
        )
    except (FileNotFoundError, BrokenFileError, pa.ArrowException):
        return empty_rows(kind)


def decode_part(data: bytes, file: str, kind: str) -> pa.Table:
    """Return the table in the content `data` of the compacted file `file` of this kind.

    `BrokenFileError` where it is broken, or has other columns than the kind.
    """
    remedy = "delete it, and it is made again from the trials' own files"
    return decode_table(data, file, remedy, _COLUMNS[kind], None if kind == RECORDS else is_number)


def write_parts(records: StudyRecords, kind: str, parts: Sequence[Part], fresh: pa.Table) -> None:
    """Write the rows `fresh`, of trials that are in no part, together with those of parts less than half full.

    These parts are deleted then, after the new ones are there. Nothing is said of a storage that one may only read.
    """
    small = [part for part in parts if len(part.trials) < PART_TRIALS // 2]
    rows = pa.concat_tables([*(part.rows for part in small), fresh], promote_options="default")
    with contextlib.suppress(StorageError):
        trials = rows["trial_id"].unique()
        for first in range(0, len(trials), PART_TRIALS):
            in_chunk = pc.is_in(rows["trial_id"], trials[first : first + PART_TRIALS])
            chunk = rows.filter(in_chunk).combine_chunks()
            records.store.write(
                f"{records.study}/compact/{kind}/{_name(chunk)}.parquet", encode_table(chunk)
            )
        for part in small:
            records.store.delete(part.key)


def _name(rows: pa.Table) -> str:
    """Return the name of a part with these rows: a digest, 32 hexadecimal digits, of its trials and their etags."""
    pairs = set(zip(rows["trial_id"].to_pylist(), rows["etag"].to_pylist(), strict=True))
    return hashlib.sha256(
        "\n".join(f"{trial_id} {etag}" for trial_id, etag in sorted(pairs)).encode()
    ).hexdigest()[:32]
