"""`sync`: the records of a study shown in MLflow. Idempotent: what is there already is not sent again."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path

from contrasweep.errors import BrokenFileError, ContrasweepError, SpecError, StorageError
from contrasweep.rows import Row
from contrasweep.storage.record import Record
from contrasweep.storage.records import LOG, StudyRecords
from contrasweep.tracking.links import write_links
from contrasweep.tracking.mlflow.address import TrackingAddress, checked_uri
from contrasweep.tracking.mlflow.client import TrackingError
from contrasweep.tracking.mlflow.description import Point, RunDescription, describe_run, row_points
from contrasweep.tracking.mlflow.server import Run, Server
from contrasweep.tracking.mlflow.transaction import in_transactions
from contrasweep.tracking.tracked_study import TrackedStudy
from contrasweep.tracking.tracker import system_metrics

HTTP_CONNECTIONS = 8
NAMED = 3
"""Trials that could not be replayed, as far as an error lists them."""


@dataclass(frozen=True)
class SyncSummary:
    """What a sync did: trials new to MLflow, completed or replaced, and those that were right already."""

    study: str
    uri: str
    added: int
    mended: int
    unchanged: int
    seconds: float
    url: str | None

    def __str__(self) -> str:
        return (
            f"{self.study}: {self.added} trials added to MLflow, {self.mended} completed, {self.unchanged} were there, "
            f"in {self.seconds:.1f} s; {self.url}"
        )


def sync(
    records: StudyRecords,
    uri: str | TrackingAddress,
    study: TrackedStudy | None = None,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> SyncSummary:
    """Bring MLflow at `uri` up to the records; `StorageError` if it does not take them. A trial that MLflow refuses, or
    whose files cannot be read, stops none of the others: they are there when the error says which are not.

    Without `study`, what the records and study.json tell of it is used. `on_progress(done, of)`.
    """
    begun, tracking = time.time(), checked_uri(uri)
    if tracking.is_none:
        raise SpecError("there is nothing to bring up to date without tracking", place="tracking", value="none")
    records_by_id = records.read(records.finished())
    server = Server(tracking, _with_all_keys(study or _tracked_study(records), records_by_id))
    server.began = min((record.started for record in records_by_id.values()), default=begun)
    try:
        server.connect()
        outdated = [record for record in records_by_id.values() if not server.is_current(record)]
        added = sum(record.trial_id not in server.runs for record in outdated)
        failed: dict[str, str] = {}
        for done in _replayed(server, outdated, records, failed):
            if on_progress is not None:
                on_progress(done, len(outdated))
        server.end_study(max((record.ended for record in records_by_id.values()), default=None))
        write_links(records, tracking, server.url(), {i: url for i in records_by_id if (url := server.url(i))})
    except TrackingError as error:
        raise StorageError(f"tracking {tracking}: {error}") from None
    if failed:
        raise StorageError(f"tracking {tracking} lacks {_listed(failed)}; the other trials are there")
    return SyncSummary(
        records.study,
        str(tracking),
        added,
        len(outdated) - added,
        len(records_by_id) - len(outdated),
        time.time() - begun,
        server.url(),
    )


def write_record(server: Server, run: Run, record: Record, records: StudyRecords) -> None:
    """Fill a run with what the storage has of its trial and it has not, and end it."""
    used = [{"step": row["step"], "time": row["time"], **system_metrics(row)} for row in _system(records, record)]
    server.fill(run, [*row_points(records.metrics(record.trial_id)), *row_points(used)])
    with _artifacts(records, record) as files:
        server.finish(run, record, files, complete=True)


def insert_record(
    server: Server,
    description: RunDescription,
    started: float,
    points: Iterable[Point],
    record: Record,
    records: StudyRecords,
) -> None:
    """Make the run of a trial that has ended: with the `points` that its tracker has, and what else the storage has."""
    used = [{"step": row["step"], "time": row["time"], **system_metrics(row)} for row in _system(records, record)]
    known = [*points, *row_points(records.metrics(record.trial_id)), *row_points(used)]
    with _artifacts(records, record) as files:
        server.insert(description, started, known, record, files)


def _system(records: StudyRecords, record: Record) -> list[Row]:
    """What the trial used over time; nothing where that is broken."""
    try:
        return records.system(record.trial_id)
    except BrokenFileError:
        return []


@contextmanager
def _artifacts(records: StudyRecords, record: Record) -> Iterator[dict[str, Path]]:
    """The trial's artifacts as local files, by name, and what it printed; gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: records.artifact(record.trial_id, name, Path(folder) / name) for name in record.artifacts}
        with contextlib.suppress(FileNotFoundError):
            records.store.get_file(records.key(record.trial_id, LOG), Path(folder) / LOG)
            files.setdefault(LOG, Path(folder) / LOG)
        yield files


def _replayed(server: Server, outdated: list[Record], records: StudyRecords, failed: dict[str, str]) -> Iterator[int]:
    """Replay each of `outdated`; how many of them are done with, each time that there are more. Those that could not be
    replayed are noted in `failed`: id -> why."""

    def replay(record: Record) -> None:
        try:
            _replay(server, record, records)
        except TrackingError as error:
            if error.retryable and not server.is_reachable():
                raise
            failed[record.trial_id] = str(error)
        except (ContrasweepError, OSError) as error:  # the trial's files cannot be read
            failed[record.trial_id] = str(error)

    if server.uri.is_sqlite:
        yield from accumulate(len(group) for group in in_transactions(server.client, outdated, replay))
        return
    with ThreadPoolExecutor(HTTP_CONNECTIONS if server.uri.is_server else 1) as pool:
        for done, _ in enumerate(pool.map(replay, outdated), 1):
            yield done


def _listed(failed: dict[str, str]) -> str:
    """Which trials could not be replayed, and why."""
    some = "; ".join(f"{trial_id} ({' '.join(why.split())[:300]})" for trial_id, why in islice(failed.items(), NAMED))
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    return f"{len(failed)} trial{'s' if len(failed) > 1 else ''}: {some}{more}"


def _replay(server: Server, record: Record, records: StudyRecords) -> None:
    server.drop_finished(record.trial_id)
    description = describe_run(server.study, record)
    if server.inserter is not None and record.trial_id not in server.runs:
        insert_record(server, description, record.started, (), record, records)
        return
    run = server.ensure(description, record.started)
    write_record(server, run, record, records)


def _tracked_study(records: StudyRecords) -> TrackedStudy:
    """What study.json tells of the study."""
    document = records.document()
    if document is None:
        return TrackedStudy(records.study, storage=records.storage)
    return TrackedStudy(
        records.study,
        plan_digest=document.plan_digest,
        axes=document.axes,
        metric=document.metric,
        mode=document.mode,
        trials=document.trials,
        storage=records.storage,
        description=document.description,
        extra={
            "data": ", ".join(data.name for data in document.datasets),
            "arms": document.arms,
            "folds": document.folds,
        },
    )


def _with_all_keys(study: TrackedStudy, records: dict[str, Record]) -> TrackedStudy:
    keys = TrackedStudy.of(study.name, list(records.values())).keys
    return replace(study, keys=tuple(dict.fromkeys([*study.keys, *keys])))
