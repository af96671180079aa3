"""The files of a study in its storage: records, metrics, checkpoints. Everything else can be made from them again.

<study>/study.json                          the resolved spec, versions, plan digest
<study>/code/<digest>.zip, .json            sources and modules of the code that made trials; see `code_files`
<study>/evaluations/<name>                  empty: the study of this name evaluates the networks of this one
<study>/given/<digest>/<step>/...           a checkpoint from elsewhere that is evaluated; its latest.json names it
<study>/archive/<when>/...               what was archived on purpose; see `archive`
<study>/trials/<id>/metrics.parquet         every report
<study>/trials/<id>/system.parquet          what it used over time: memory, GPU, the host's cores
<study>/trials/<id>/items.parquet           one value per test item, where the trainable gives them
<study>/trials/<id>/attempt.json            who trains it, or did last; see `attempts`
<study>/trials/<id>/log.txt                 what it printed; <study>/trials/<id>/stack.txt: where it hung
<study>/trials/<id>/artifacts/...           files that the trainable gives
<study>/trials/<id>/checkpoint/<step>/...   newest usable checkpoint; checkpoint/latest.json names it, written last
<study>/records/<id>/record.json            WRITTEN LAST: a trial with a record is done, any other is not

Records have a folder of their own, so that an object store lists one key for each trial to say which are done.
"""

import functools
import shlex
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from contrasweep.errors import BrokenFileError, SpecError
from contrasweep.imports import check_no_imports
from contrasweep.rows import ItemColumns, Row
from contrasweep.storage.json_file import MAX_BYTES
from contrasweep.storage.names import check_file_name, check_name
from contrasweep.storage.parquet_file import (
    Check,
    check_columns,
    decode_table,
    encode_table,
    is_number,
    is_value,
)
from contrasweep.storage.record import RECORD_FILE, Record
from contrasweep.storage.store import LocalStore, Store, open_store
from contrasweep.storage.study_document import STUDY_FILE, StudyDocument

REPORTS = {"step": pa.types.is_integer, "time": pa.types.is_floating}
"""Columns that metrics.parquet must have, each with a check of its type."""
GROUP = "group"
"""Name of the items that are no scores but say which group each test item belongs to."""
REPORT_COLUMNS = ("step", "time", "trial_id", "etag")
"""Columns that are no metrics, in metrics.parquet or where reports of many trials are in one table."""

MAX_TRIAL_READ = 2**28
"""The most bytes of metrics.parquet, system.parquet or items.parquet of a trial that are read."""
MAX_TRIAL_VALUES = 20_000_000
"""The most values in one of these files: a million reports of twenty metrics."""

SYSTEM_FILE = "system.parquet"
RECORD = "record.json"
ATTEMPT = "attempt.json"
LOG = "log.txt"
"""What a trial printed; no file where it printed nothing."""
STACK = "stack.txt"
"""What a trial was doing when it did not report any more; no file where it always did."""


def study_names(storage: str, file: str = "study.json") -> list[str]:
    """Return the names of the studies of a storage, sorted: those of all folders with this `file`."""
    return sorted(key.split("/")[0] for key in open_store(storage).etags("", file))


class StudyRecords:
    """The files of one study in one storage: its document, and its trials' records, reports and items."""

    def __init__(self, storage: str, study: str, *, patient: bool = False) -> None:
        """Open the storage at the folder or address `storage` for a study, which need not exist there.

        With `patient`, the server of an s3:// address is known to be there, so that an outage is waited for.
        `SpecError` where `study` is no valid name, or `storage` no valid address.
        """
        try:
            check_name(study)
        except ValueError as error:
            raise SpecError(f"there can be no study of this name: {error}", place="STUDY") from None
        self.storage = storage
        self.study = study
        self.store: Store = open_store(storage, patient=patient)
        if isinstance(self.store, LocalStore):
            check_no_imports(self.store.root)

    def key(self, trial_id: str, name: str) -> str:
        """Return the key of the file `name` of a trial: `grid/trials/3f2a/log.txt`; for "" the trial's folder.

        Raises `ValueError` where the id or the name would lead out of the trial's folder.
        """
        check_name(trial_id)
        if name:
            check_file_name(name)
        folder = "records" if name == RECORD else "trials"
        return f"{self.study}/{folder}/{trial_id}/{name}"

    def claim(self, document: StudyDocument) -> StudyDocument:
        """Write `document` to study.json, unless it is there already; return it with its `origin`.

        `origin` identifies the study: a random text that it gets when it is first written, and keeps. `StorageError`
        where nothing can be written.
        """
        present = self.document()
        origin = present.origin if present and present.origin else uuid.uuid4().hex
        document = replace(document, origin=origin)
        if present != document:
            self.store.check_writable()
            self.store.write(f"{self.study}/study.json", STUDY_FILE.encode(document))
        return document

    def document(self) -> StudyDocument | None:
        """Return the content of study.json; None if the study was never run here. `BrokenFileError` if it is broken."""
        return STUDY_FILE.find(
            self.store, f"{self.study}/study.json", self.remedy(STUDY_FILE.remedy)
        )

    def etags(self) -> dict[str, str]:
        """Return trial id -> etag, a text that changes with the record, for every trial that has a record."""
        # A key is <study>/records/<id>/record.json.
        by_key = self.store.etags(f"{self.study}/records/", RECORD)
        return {key.split("/")[-2]: etag for key, etag in by_key.items()}

    def finished(self) -> set[str]:
        """Return the ids of the trials that have a record."""
        return set(self.etags())

    def begun(self) -> set[str]:
        """Return the ids of the trials that have a checkpoint and no record, so that they can be resumed."""
        # A trial with a checkpoint has the file <study>/trials/<id>/checkpoint/latest.json.
        keys = self.store.list(f"{self.study}/trials/")
        begun = {key.split("/")[-3] for key in keys if key.endswith("/checkpoint/latest.json")}
        # Without checkpoints the records need not be listed.
        return begun - self.finished() if begun else begun

    def given_checkpoint_key(self, digest: str) -> str:
        """Return the key of the folder of a checkpoint that was made elsewhere.

        `digest` is that of its files. Raises `ValueError` where it is no valid name.
        """
        return f"{self.study}/given/{check_name(digest)}"

    def evaluations(self) -> list[str]:
        """Return the names of the studies that evaluate the networks of this one (`add_evaluation`)."""
        return [key.rpartition("/")[2] for key in self.store.list(f"{self.study}/evaluations/")]

    def add_evaluation(self, name: str) -> None:
        """Note that the study `name` evaluates the networks of this one: write an empty file with its name."""
        self.store.write(f"{self.study}/evaluations/{name}", b"")

    def with_files(self) -> set[str]:
        """Return the ids of all trials that have a file besides record.json, whether or not they have a record."""
        folder = f"{self.study}/trials/"
        return {key.removeprefix(folder).partition("/")[0] for key in self.store.list(folder)}

    def read(self, trial_ids: Iterable[str]) -> dict[str, Record]:
        """Return trial id -> record, for those of `trial_ids` that have one; `BrokenFileError` if any is broken."""
        with ThreadPoolExecutor(16) as pool:
            records = pool.map(self.read_one, trial_ids)
            return {record.trial_id: record for record in records if record is not None}

    def read_one(self, trial_id: str) -> Record | None:
        """Return the record of a trial; None if it has none. `BrokenFileError` if it is broken, or of another trial."""
        try:
            data = self.record_bytes(trial_id)
        except FileNotFoundError:
            return None
        return self.parsed(trial_id, data)

    def record_bytes(self, trial_id: str) -> bytes:
        """Return the content of a trial's record.json, unchecked; `FileNotFoundError` where there is none."""
        return self.store.read(self.key(trial_id, RECORD), MAX_BYTES)

    def parsed(self, trial_id: str, data: bytes) -> Record:
        """Return the record in `data`, the content of a trial's record.json.

        `BrokenFileError` if it is broken, or if it is the record of another trial.
        """
        file = f"{self.store.uri}/{self.key(trial_id, RECORD)}"
        remedy = self.remedy(RECORD_FILE.remedy)
        record = RECORD_FILE.decode(data, file, remedy)
        if record.trial_id != trial_id:
            raise BrokenFileError(file, f"it is the record of trial {record.trial_id}", remedy)
        return record

    def remedy(self, text: str) -> str:
        """Return `text`, which says what to do about a broken file, with this study and storage in place of STUDY.

        So a user can copy the command in it: `contrasweep verify grid --storage runs --repair`.
        """
        return text.replace("STUDY", shlex.join([self.study, "--storage", self.storage]))

    def write(self, record: Record) -> None:
        """Write a trial's record, in place of one that it has. A trial with a record counts as finished."""
        self.store.write(self.key(record.trial_id, RECORD), record.to_json())

    def create(self, record: Record) -> bool:
        """Write a trial's record, unless another attempt has written one; return whether it was written."""
        return self.store.write(self.key(record.trial_id, RECORD), record.to_json(), if_absent=True)

    def reopen(self, trial_id: str) -> None:
        """Delete the record of a trial, so that it can be resumed from its checkpoint; its reports stay."""
        self.store.delete(self.key(trial_id, RECORD))

    def write_metrics(self, trial_id: str, rows: list[Row], name: str = "metrics.parquet") -> None:
        """Write all reports of a trial, a row each, in place of those that it has, to its file `name`.

        A row has step, time (unix seconds) and metrics; a metric that it lacks is null in the file.
        """
        # The columns: those of all rows, in the order in which they are first met.
        names = {"step": None, "time": None}
        for row in rows:
            names |= dict.fromkeys(row)
        table = pa.table(
            {column: pa.array([row.get(column) for row in rows], _kind(column)) for column in names}
        )
        self.store.write(self.key(trial_id, name), encode_table(table))

    def metrics(self, trial_id: str, name: str = "metrics.parquet") -> list[Row]:
        """Return the reports of a trial as `write_metrics` was given them; [] where there are none.

        `BrokenFileError` where the file is broken.
        """
        try:
            table = self.metrics_table(trial_id, self._read(trial_id, name), name)
        except FileNotFoundError:
            return []
        return [
            {column: value for column, value in row.items() if value is not None}
            for row in table.to_pylist()
        ]

    def metrics_table(self, trial_id: str, data: bytes, name: str = "metrics.parquet") -> pa.Table:
        """Return the table in `data`, the content of a trial's metrics.parquet or system.parquet (`name`).

        `step` is an integer, every other column a float. `BrokenFileError` if it is broken.
        """
        file = f"{self.store.uri}/{self.key(trial_id, name)}"
        remedy = self.remedy(RECORD_FILE.remedy)
        table = decode_table(data, file, remedy, REPORTS, is_number, MAX_TRIAL_VALUES)
        try:
            schema = _report_schema(tuple(table.column_names))
            # A cast takes a third of the time of reading the file, so it is made only where it is needed.
            if not table.schema.equals(schema, check_metadata=True):
                table = table.cast(schema)
            # A trial's own file has no such columns: in a table of many trials they say which trial a row is from.
            if {"trial_id", "etag"}.intersection(table.column_names) or table["step"].null_count:
                raise ValueError("its columns are not those of reports")
        except (pa.ArrowException, ValueError) as error:
            raise BrokenFileError(file, str(error), remedy) from None
        return table

    def write_system(self, trial_id: str, rows: list[Row]) -> None:
        """Write what a trial used over time, a row every few seconds.

        A row has step (seconds since the trial began), time (unix seconds) and the quantities of
        `contrasweep.cluster.usage.Meter.timeline`.
        """
        self.write_metrics(trial_id, rows, SYSTEM_FILE)

    def system(self, trial_id: str) -> list[Row]:
        """Return the rows that `write_system` was given; [] where there are none. Errors are as for `metrics`."""
        return self.metrics(trial_id, SYSTEM_FILE)

    def write_encoded_items(self, trial_id: str, data: bytes) -> None:
        """Write items.parquet of a trial from the bytes that `encode_items` returned."""
        self.store.write(self.key(trial_id, "items.parquet"), data)

    def items(self, trial_id: str, expected: Iterable[str] = ()) -> ItemColumns:
        """Return name -> array with one value for each test item; {} where the trainable gave none.

        `expected` are the names of items in the trial's record. `BrokenFileError` where the file is broken or lacks one
        of these.
        """
        name = "items.parquet"
        file = f"{self.store.uri}/{self.key(trial_id, name)}"
        remedy = self.remedy(RECORD_FILE.remedy)
        try:
            data = self._read(trial_id, name)
        except FileNotFoundError:
            if set(expected):
                raise BrokenFileError(file, "it is missing", remedy) from None
            return {}
        table = decode_table(data, file, remedy, _item_checks(expected), is_value, MAX_TRIAL_VALUES)
        return {item: table[item].to_numpy() for item in table.column_names}

    def _read(self, trial_id: str, name: str) -> bytes:
        """Return the content of a trial's file; `BrokenFileError` where it has more than `MAX_TRIAL_READ` bytes.

        `FileNotFoundError` where there is none.
        """
        return self.store.read(self.key(trial_id, name), MAX_TRIAL_READ)

    def artifact(self, trial_id: str, name: str, to: Path) -> Path:
        """Fetch the artifact `name` of a trial to the file `to`, whose folder is made; return `to`.

        `FileNotFoundError` where there is no such artifact, `ValueError` where the name would lead out of the trial's
        folder.
        """
        key = self.key(trial_id, f"artifacts/{check_file_name(name)}")
        to.parent.mkdir(parents=True, exist_ok=True)
        self.store.get_file(key, to)
        return to


def encode_items(items: ItemColumns) -> bytes:
    """Return the content of items.parquet; `items` is name -> array with one value for each test item.

    Raises `TypeError`, `ValueError`, `OverflowError` or `pyarrow.ArrowException` where they are no such values.
    """
    table = pa.table({name: pa.array(values) for name, values in items.items()})
    check_columns(table.schema, _item_checks(items), None)
    return encode_table(table)


def _item_checks(items: Iterable[str]) -> dict[str, Check]:
    """Return for each column of items the check of its type: scores are numbers, but the column `group` may be text.

    Columns of an evaluation have a prefix, as in `mnist/group`; only the last part of such a name counts.
    """
    return {item: is_value if item.rpartition("/")[2] == GROUP else is_number for item in items}


@functools.lru_cache(maxsize=256)  # trials of a study report the same metrics
def _report_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the schema of reports with these columns."""
    return pa.schema([(name, _kind(name)) for name in columns])


def _kind(column: str) -> pa.DataType:
    """Return the type of a column of reports: `step` is an integer, all others are floats."""
    return pa.int64() if column == "step" else pa.float64()
