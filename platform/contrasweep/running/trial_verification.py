"""What is wrong with the files of one trial: each is read, and what they say is set against each other."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.rows import Row, metrics_of
from contrasweep.storage.checkpoints import MARKER_FILE, Checkpoints
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

Problem = tuple[str, str, bool]
"""The file below the trial's folder, what is wrong with it, and whether running the trial again mends it."""


def trial_problems(records: StudyRecords, trial_id: str, scratch: Path) -> Iterator[Problem]:
    """Everything that is wrong with a trial. Checkpoints are fetched into the folder `scratch`."""
    try:
        record = records.read_one(trial_id)
    except StorageError as error:
        yield "record.json", _text(error), isinstance(error, BrokenFileError)
        return
    yield from _checkpoint(records, trial_id, scratch, unfinished=record is None)
    try:
        rows = records.metrics(trial_id)
    except StorageError as error:
        yield "metrics.parquet", _text(error), isinstance(error, BrokenFileError)
        return
    if record is not None:
        yield from _finished(records, record, rows)
    try:
        records.items(trial_id, record.items if record else ())
    except StorageError as error:
        yield "items.parquet", _text(error), isinstance(error, BrokenFileError)


def _finished(records: StudyRecords, record: Record, rows: list[Row]) -> Iterator[Problem]:
    if record.data.digest and not record.status.infeasible and _identity(record) != record.trial_id:
        yield "record.json", "its settings, data, fold and seed are those of another trial", True
    if rows and not _same(rows[-1], record.metrics):
        yield "metrics.parquet", "its last report is not what the record says", True
    if not rows and record.metrics:
        yield "metrics.parquet", "it is missing", True
    for name in record.artifacts:
        if not records.store.exists(records.key(record.trial_id, f"artifacts/{name}")):
            yield f"artifacts/{name}", "it is missing", True


def _checkpoint(records: StudyRecords, trial_id: str, scratch: Path, *, unfinished: bool) -> Iterator[Problem]:
    """A broken checkpoint costs an unfinished trial its steps, and a finished one nothing but its model."""
    name = "checkpoint/latest.json"
    try:
        MARKER_FILE.read(records.store, records.key(trial_id, name))
        whole = Checkpoints(records.store, records.key(trial_id, "checkpoint")).fetch(scratch) is not None
        problem = "" if whole else "its files are not those that it names"
    except FileNotFoundError:
        return
    except StorageError as error:
        problem = _text(error)
    if problem:
        yield name, problem, unfinished


def _identity(record: Record) -> str:
    """The id that a trial of the record's settings has."""
    data: Any = SimpleNamespace(digest=record.data.digest)
    trial = Trial(record.study, record.arm, record.trainable, record.config, data, record.fold, record.seed)
    return trial.id


def _same(row: Row, metrics: Mapping[str, float]) -> bool:
    reported = metrics_of(row)
    return reported.keys() == metrics.keys() and all(
        value == metrics[name] or (math.isnan(value) and math.isnan(metrics[name])) for name, value in reported.items()
    )


def _text(error: StorageError) -> str:
    return error.problem if isinstance(error, BrokenFileError) else str(error)
