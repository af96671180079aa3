"""`sync`: the records of a study shown in MLflow. Idempotent: what is there already is not sent again."""

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from contrasweep.errors import SpecError, StorageError
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.links import write_links
from contrasweep.tracking.mlflow import address
from contrasweep.tracking.mlflow.description import describe_run, row_points
from contrasweep.tracking.mlflow.server import Run, Server, TrackingError
from contrasweep.tracking.tracked_study import TrackedStudy

HTTP_CONNECTIONS = 8


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
    uri: str,
    study: TrackedStudy | None = None,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> SyncSummary:
    """Bring MLflow at `uri` up to the records; `StorageError` if it does not take them.

    Without `study`, what the records and study.json tell of it is used. `on_progress(done, of)`.
    """
    begun, uri = time.time(), address.checked_uri(uri)
    if uri == "none":
        raise SpecError("there is nothing to bring up to date without tracking", place="tracking", value=uri)
    records_by_id = records.read(records.finished())
    server = Server(uri, _with_all_keys(study or _tracked_study(records), records_by_id))
    server.began = min((record.started for record in records_by_id.values()), default=begun)
    try:
        server.connect()
        outdated = [record for record in records_by_id.values() if not server.is_current(record)]
        added = sum(record.trial_id not in server.runs for record in outdated)
        with ThreadPoolExecutor(HTTP_CONNECTIONS if address.is_server(uri) else 1) as pool:
            for done, _ in enumerate(pool.map(lambda record: _replay(server, record, records), outdated), 1):
                if on_progress is not None:
                    on_progress(done, len(outdated))
        server.end_study(max((record.ended for record in records_by_id.values()), default=None))
        write_links(records, uri, server.url(), {i: url for i in records_by_id if (url := server.url(i))})
    except TrackingError as error:
        raise StorageError(f"tracking {address.without_password(uri)}: {error}") from None
    return SyncSummary(
        records.study,
        uri,
        added,
        len(outdated) - added,
        len(records_by_id) - len(outdated),
        time.time() - begun,
        server.url(),
    )


def write_record(server: Server, run: Run, record: Record, records: StudyRecords) -> None:
    """Fill a run with what the storage has of its trial and it has not, and end it."""
    server.fill(run, row_points(records.metrics(record.trial_id)))
    with _artifacts(records, record) as files:
        server.finish(run, record, files, complete=True)


@contextmanager
def _artifacts(records: StudyRecords, record: Record) -> Iterator[dict[str, Path]]:
    """The trial's artifacts as local files, by name; gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield {name: records.artifact(record.trial_id, name, Path(folder) / name) for name in record.artifacts}


def _replay(server: Server, record: Record, records: StudyRecords) -> None:
    server.drop_finished(record.trial_id)
    run = server.ensure(describe_run(server.study, record), record.started)
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
