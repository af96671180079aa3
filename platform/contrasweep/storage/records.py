"""What a study leaves in the storage: records, metrics, checkpoints. The storage is the truth.

<study>/study.json                          the resolved spec, versions, plan digest
<study>/code/<digest>.zip, .json            sources and modules of the code that made trials; see `code_files`
<study>/superseded/<when>/trials/<id>/...   what was put aside on purpose; see `superseded`
<study>/trials/<id>/metrics.parquet         every report
<study>/trials/<id>/items.parquet           one value per test item, where the trainable gives them
<study>/trials/<id>/artifacts/...           files that the trainable gives
<study>/trials/<id>/checkpoint/<step>/...   newest usable checkpoint; checkpoint/latest.json names it, written last
<study>/trials/<id>/record.json             WRITTEN LAST: a trial with a record is done, any other is not
"""

import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from contrasweep.errors import SpecError, StorageError
from contrasweep.storage.record import Record
from contrasweep.storage.store import Store, open_store
from contrasweep.storage.study_document import StudyDocument

T = TypeVar("T")


class StudyRecords:
    """The records of one study in one storage."""

    def __init__(self, storage: str, study: str) -> None:
        self.storage, self.study = storage, study
        self.store: Store = open_store(storage)

    def key(self, trial_id: str, name: str) -> str:
        """The key of one of a trial's objects."""
        return f"{self.study}/trials/{trial_id}/{name}"

    def claim(self, document: StudyDocument, *, extend: bool = False) -> None:
        """Write study.json, or check that the one there declares the same plan.

        With `extend` the new plan may be a larger one: records already there are kept by their content.
        """
        known = self.document()
        if known is not None and known.plan_digest != document.plan_digest and not extend:
            raise SpecError(
                "a study of this name with another plan is in this storage",
                place="name",
                value=self.study,
                hint=f"choose another name or --storage than {self.storage}, or pass --extend to keep its trials and "
                f"add to them",
            )
        if known is None or (known.plan_digest, known.format_version) != (
            document.plan_digest,
            document.format_version,
        ):
            self.store.check_writable()
            self.store.write(f"{self.study}/study.json", document.to_json())

    def document(self) -> StudyDocument | None:
        """study.json, or None if this study was never run here."""
        key = f"{self.study}/study.json"
        try:
            return self._parsed(key, StudyDocument.from_json, self.store.read(key))
        except FileNotFoundError:
            return None

    def finished(self) -> set[str]:
        """Ids of the trials that have a record."""
        return {key.split("/")[-2] for key in self.store.list(f"{self.study}/trials/") if key.endswith("/record.json")}

    def begun(self) -> set[str]:
        """Ids of the trials that have a checkpoint and no record."""
        names: dict[str, set[str]] = {"record.json": set(), "checkpoint/latest.json": set()}
        prefix = f"{self.study}/trials/"
        for key in self.store.list(prefix):
            trial_id, _, name = key.removeprefix(prefix).partition("/")
            if name in names:
                names[name].add(trial_id)
        return names["checkpoint/latest.json"] - names["record.json"]

    def read(self, trial_ids: Iterable[str]) -> dict[str, Record]:
        """The records of those of `trial_ids` that have one."""
        with ThreadPoolExecutor(16) as pool:
            records = pool.map(self.read_one, trial_ids)
            return {record.trial_id: record for record in records if record is not None}

    def read_one(self, trial_id: str) -> Record | None:
        """The record of a trial, or None if it has none; `StorageError` if it is broken."""
        try:
            data = self.store.read(self.key(trial_id, "record.json"))
        except FileNotFoundError:
            return None
        return self.parsed(trial_id, data)

    def parsed(self, trial_id: str, data: bytes | str) -> Record:
        """The record in the content of a trial's record.json; `StorageError` that names the file if it is broken."""
        return self._parsed(self.key(trial_id, "record.json"), Record.from_json, data)

    def _parsed(self, key: str, parse: Callable[[bytes | str], T], data: bytes | str) -> T:
        try:
            return parse(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{self.storage}/{key} is broken ({error}); remove it and run again") from None
        except StorageError as error:
            raise StorageError(f"{self.storage}/{key} {error}") from None

    def write(self, record: Record) -> None:
        """Write a trial's record; with it the trial is finished."""
        self.store.write(self.key(record.trial_id, "record.json"), record.to_json())

    def reopen(self, trial_id: str) -> None:
        """Drop the record of a trial: it is not finished any more, and goes on from its checkpoint."""
        self.store.delete(self.key(trial_id, "record.json"))

    def write_metrics(self, trial_id: str, rows: list[dict[str, Any]]) -> None:
        """All reports of a trial: one row each, columns step, time (unix) and the metrics (float64)."""
        self.store.write(self.key(trial_id, "metrics.parquet"), _table_bytes(_wide(rows)))

    def metrics(self, trial_id: str) -> list[dict[str, Any]]:
        """Reports as written; [] where there are none. A metric that a report did not give is absent from it."""
        try:
            table = pq.read_table(io.BytesIO(self.store.read(self.key(trial_id, "metrics.parquet"))))
        except FileNotFoundError:
            return []
        return [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]

    def write_items(self, trial_id: str, items: Mapping[str, Any]) -> None:
        """Write what a trainable gave for each test item: a column per name, a value per item."""
        self.store.write(
            self.key(trial_id, "items.parquet"), _table_bytes(pa.table({k: pa.array(v) for k, v in items.items()}))
        )

    def items(self, trial_id: str) -> dict[str, Any]:
        """One array per name, one value per test item; {} where the trainable gave none."""
        try:
            table = pq.read_table(io.BytesIO(self.store.read(self.key(trial_id, "items.parquet"))))
        except FileNotFoundError:
            return {}
        return {name: table[name].to_numpy() for name in table.column_names}

    def artifact(self, trial_id: str, name: str, to: Path) -> Path:
        """Fetch one artifact to the file `to`."""
        to.parent.mkdir(parents=True, exist_ok=True)
        self.store.get_file(self.key(trial_id, f"artifacts/{name}"), to)
        return to


def _wide(rows: list[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(["step", "time", *(name for row in rows for name in row)])
    kinds = {"step": pa.int64()}
    return pa.table({n: pa.array([row.get(n) for row in rows], kinds.get(n, pa.float64())) for n in names})


def _table_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()
