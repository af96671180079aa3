"""SQL over a storage: its studies, trials, reports, comparisons and decisions as views of an in-memory DuckDB.

A view is read when the query names it, from the compacted files where there are such. The database gets Arrow tables
and nothing else: it can read no file, load no extension and change no option, and one statement is run, which selects.
Its memory, its time and its answer are bounded.
"""

import datetime
import decimal
import gc
import json
import re
import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from contrasweep.errors import BrokenFileError, SpecError
from contrasweep.live.overview import overview, study_names
from contrasweep.results.ledger import FIRST, Ledger, campaign_names
from contrasweep.rows import FrameRow
from contrasweep.storage import compact
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.dotted import flatten

SECONDS = 60.0
MEMORY_GIB = 2.0
MAX_ROWS = 1_000_000
MAX_QUERY = 100_000
_TEXT, _REAL, _WHOLE = pa.string(), pa.float64(), pa.int64()
_TEXTS = pa.map_(_TEXT, _TEXT)


def _schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


SCHEMAS: Mapping[str, pa.Schema] = {
    "studies": _schema(
        **dict.fromkeys(("study", "state", "type", "question", "metric", "mode", "data", "description"), _TEXT),
        trials=_WHOLE,
        done=_WHOLE,
        failed=_WHOLE,
        running=_WHOLE,
        **dict.fromkeys(("started", "last_sign", "best"), _REAL),
        best_arm=_TEXT,
    ),
    "trials": _schema(
        **dict.fromkeys(("study", "trial_id", "arm", "trainable", "data"), _TEXT),
        fold=_WHOLE,
        seed=_WHOLE,
        status=_TEXT,
        cause=_TEXT,
        phase=_TEXT,
        value=_REAL,
        metrics=pa.map_(_TEXT, _REAL),
        config=_TEXTS,
        step=_WHOLE,
        attempts=_WHOLE,
        **dict.fromkeys(("seconds", "started", "ended", "gpu_memory_gib", "gpu_utilisation", "host_memory_gib"), _REAL),
        host=_TEXT,
        code=_TEXT,
        error=_TEXT,
    ),
    "reports": _schema(study=_TEXT, trial_id=_TEXT, step=_WHOLE, time=_REAL, metric=_TEXT, value=_REAL),
    "comparisons": _schema(
        study=_TEXT,
        context=_TEXTS,
        **dict.fromkeys(("a", "b", "metric", "verdict", "direction", "relevance", "test", "scope"), _TEXT),
        **dict.fromkeys(("difference", "low", "high", "p_value", "raw_p", "smallest_difference", "alpha"), _REAL),
        **dict.fromkeys(("n", "pairs", "unpaired", "family"), _WHOLE),
    ),
    "decisions": _schema(
        campaign=_TEXT,
        number=_WHOLE,
        **dict.fromkeys(("candidate", "digest", "verdict", "stage", "incumbent", "asked_by", "why", "reason"), _TEXT),
        kept=pa.bool_(),
        **dict.fromkeys(("screened", "estimate", "low", "high", "confidence", "p", "level"), _REAL),
        **dict.fromkeys(("seeds", "trials"), _WHOLE),
        **dict.fromkeys(("gpu_hours", "cost", "asked", "decided"), _REAL),
    ),
}
"""View -> its columns. Times are seconds since 1970; maps are read as `metrics['accuracy']`."""


@dataclass(frozen=True)
class _Stored:
    """A study; its records are read once, where a view needs them."""

    records: StudyRecords
    document: StudyDocument
    etags: dict[str, str]
    broken: list[BrokenFileError]

    @cached_property
    def recorded(self) -> dict[str, Record]:
        return compact.read_records(self.records, self.etags, self.broken)


class StorageViews:
    """The views of a storage: what each has, read once. Files that are broken are counted in `broken` and left out."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self.broken: list[BrokenFileError] = []

    def view(self, name: str) -> pa.Table:
        """Return the view `name` as a table."""
        rows: Mapping[str, Callable[[], Iterator[pa.Table]]] = {
            "studies": self._studies,
            "trials": self._trials,
            "reports": self._reports,
            "comparisons": self._comparisons,
            "decisions": self._decisions,
        }
        return pa.concat_tables([SCHEMAS[name].empty_table(), *rows[name]()])

    @cached_property
    def _stored(self) -> list[_Stored]:
        stored = []
        for name in study_names(self.storage):
            records = StudyRecords(self.storage, name)
            try:
                document = records.document()
            except BrokenFileError as error:
                self.broken.append(error)
                continue
            if document is not None:
                stored.append(_Stored(records, document, records.etags(), self.broken))
        return stored

    def _studies(self) -> Iterator[pa.Table]:
        for study in self._stored:
            document, recorded = study.document, study.recorded.values()
            seen = overview(study.records, document, recorded)
            statuses = [record.status for record in recorded]
            declared: FrameRow = {"type": document.type, "question": document.question, "mode": document.mode}
            declared |= {
                "data": ", ".join(data.name for data in document.datasets),
                "description": document.description,
            }
            counts = {"done": sum(s.counts for s in statuses), "failed": sum(s.failed for s in statuses)}
            yield _table("studies", [{**seen.to_dict(), **declared, **counts}])

    def _trials(self) -> Iterator[pa.Table]:
        configs: dict[str, list[tuple[str, str]]] = {}
        for study in self._stored:
            metric = study.document.metric
            yield _table("trials", [_trial(record, metric, configs) for record in study.recorded.values()])

    def _reports(self) -> Iterator[pa.Table]:
        for study in self._stored:
            wide = compact.read_curves(study.records, study.etags, study.etags, self.broken)
            table = pa.Table.from_pandas(wide, preserve_index=False)
            for metric in (name for name in table.column_names if name not in ("trial_id", "step", "time")):
                values = table.select(["trial_id", "step", "time", metric]).drop_null()
                texts = [pa.repeat(text, len(values)) for text in (study.records.study, metric)]
                columns = [texts[0], *values.columns[:3], texts[1], values[metric]]
                yield pa.table(columns, SCHEMAS["reports"].names).cast(SCHEMAS["reports"])

    def _comparisons(self) -> Iterator[pa.Table]:
        from contrasweep.results.results import Results

        for study in self._stored:
            name = study.records.study
            try:
                pairs = Results.load(name, self.storage).answer.pairs
            except BrokenFileError as error:
                self.broken.append(error)
                continue
            yield _table("comparisons", [{"study": name, **pair.to_dict()} for pair in pairs])

    def _decisions(self) -> Iterator[pa.Table]:
        """Yield the candidates of each campaign; what is not decided yet has no verdict."""
        for campaign in campaign_names(self.storage):
            try:
                ledger = Ledger(self.storage, campaign).read()
                yield _table("decisions", [_decision(ledger, number) for number in ledger.candidates])
            except BrokenFileError as error:
                self.broken.append(error)


def _decision(ledger: Ledger, number: int) -> FrameRow:
    asked, decided = ledger.asked(number), ledger.decision(number)
    row: FrameRow = {} if decided is None else dict(vars(decided))
    against = ledger.incumbent if decided is None else decided.incumbent
    granted = ledger.granted(number, against)
    return row | {
        "campaign": ledger.campaign,
        "number": number,
        **{name: getattr(asked, name) for name in ("candidate", "digest", "why")},
        "asked_by": asked.by,
        "incumbent": ledger.asked(against).candidate if against != FIRST else "incumbent",
        "level": granted and granted.level,
        "asked": asked.at,
        "decided": decided and decided.at,
    }


def _trial(record: Record, metric: str, configs: dict[str, list[tuple[str, str]]]) -> FrameRow:
    """Return a row of the trials; `configs` keeps the texts of settings, which many trials share."""
    written = repr(record.config)
    if (config := configs.get(written)) is None:
        texts = ((key, v if isinstance(v, str) else json.dumps(v)) for key, v in flatten(record.config).items())
        config = configs[written] = list(texts)
    return {
        **vars(record),
        "data": record.data.name,
        "value": record.metrics.get(metric) if record.status.counts else None,
        "phase": record.notes.phase,
        "metrics": list(record.metrics.items()),
        "config": config,
        "code": record.code.digest,
    }


def _table(view: str, rows: list[FrameRow]) -> pa.Table:
    schema = SCHEMAS[view]
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in schema.names}
    if "context" in columns:
        columns["context"] = [list(context.items()) for context in columns["context"]]
    return pa.table(columns, schema)


def run_query(query: str, views: StorageViews, *, seconds: float = SECONDS, max_rows: int = MAX_ROWS) -> pa.Table:
    """Return what `query`, one SELECT over the views of a storage, finds.

    Raises:
        SpecError: For a query that is wrong, that is no single SELECT, that would read anything but the views, or that
            needs more than `seconds`, `MEMORY_GIB` or `max_rows`.
        StorageError: Where the storage cannot be read.
    """
    import duckdb

    if len(query) > MAX_QUERY:
        raise SpecError(f"a query of at most {MAX_QUERY:,} characters", place="QUERY", value=f"{len(query):,}")
    options: dict[str, str | bool | int] = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # or it would find variables of this process by name
        "max_temp_directory_size": "0KiB",
        "memory_limit": f"{MEMORY_GIB:g}GiB",
        "threads": 2,
    }
    connection = duckdb.connect(":memory:")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    deadline = threading.Timer(seconds, connection.interrupt)
    deadline.daemon = True
    collects = gc.isenabled()
    gc.disable()  # what is read has no cycles, and to look for them takes a third of the time
    try:
        for name, value in options.items():
            connection.execute(f"SET {name} = '{value}'")
        connection.execute("SET lock_configuration = true")
        statements = connection.extract_statements(query)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise SpecError("a query is one SELECT, and changes nothing", place="QUERY", value=query)
        for name in SCHEMAS:
            if re.search(rf"\b{name}\b", query, re.IGNORECASE):  # what is not there is an error, never empty
                connection.register(name, views.view(name))
        _limit_memory(limits)
        deadline.start()
        return _bounded(connection.sql(query).to_arrow_reader(10_000), max_rows)
    except duckdb.InterruptException:
        hint = "narrow it with WHERE, or aggregate"
        raise SpecError(f"a query of at most {seconds:g} s", place="QUERY", value=query, hint=hint) from None
    except (duckdb.OutOfMemoryException, MemoryError, pa.ArrowMemoryError):
        hint = "narrow it with WHERE, or aggregate"
        rule = f"a query that needs at most {MEMORY_GIB:g} GiB of memory"
        raise SpecError(rule, place="QUERY", value=query, hint=hint) from None
    except duckdb.Error as error:
        hint = f"views: {', '.join(f'{name} ({chr(44).join(schema.names)})' for name, schema in SCHEMAS.items())}"
        raise SpecError(str(error), place="QUERY", value=query, hint=hint) from None
    finally:
        deadline.cancel()
        if collects:
            gc.enable()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        connection.close()


def _limit_memory(limits: tuple[int, int]) -> None:
    """Let this process have twice `MEMORY_GIB` more than now: some functions count less than they take."""
    with open("/proc/self/statm") as file:
        wanted = int(file.read().split()[0]) * resource.getpagesize() + int(2 * MEMORY_GIB * 2**30)
    soft, hard = limits
    resource.setrlimit(resource.RLIMIT_AS, (wanted if soft < 0 else min(soft, wanted), hard))


def _bounded(reader: Any, max_rows: int) -> pa.Table:
    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        if (rows := rows + batch.num_rows) > max_rows:
            hint = "narrow it with WHERE, aggregate, or add LIMIT"
            raise SpecError(f"an answer of at most {max_rows:,} rows", place="QUERY", hint=hint)
    return pa.Table.from_batches(batches, reader.schema)


def plain_rows(table: pa.Table) -> list[list[object]]:
    """Return the rows of an answer as JSON has them: maps as mappings, dates as text, decimals as numbers.

    `SpecError` for a date that Python cannot hold.
    """
    columns = []
    for number, field in enumerate(table.schema):
        try:
            columns.append([_plain(value, field.type) for value in table.column(number).to_pylist()])
        except (OverflowError, ValueError) as error:
            rule, hint = (
                f"dates of an answer lie in the years 1 to 9999 ({error})",
                "ask for text: CAST(... AS VARCHAR)",
            )
            raise SpecError(rule, place=f"QUERY, column {field.name}", hint=hint) from None
    return [list(row) for row in zip(*columns, strict=True)]


def _plain(value: Any, kind: pa.DataType) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if pa.types.is_map(kind):
        return {str(key): _plain(inner, kind.item_type) for key, inner in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [_plain(inner, kind.value_type) for inner in value]
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)
