"""Publish a finished study to MLflow: table, report and each arm's best model; return the results with run URLs."""

import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from contrasweep.data.manifest import Manifest
from contrasweep.errors import StorageError
from contrasweep.results.results import Results
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Record
from contrasweep.tracking.kinds import Trackers
from contrasweep.tracking.links import read_links, write_shown
from contrasweep.tracking.mlflow.models import load_checkpoint, log_model
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.sync import sync
from contrasweep.tracking.tracker import TrackedStudy, TrackingError
from contrasweep.trial import Trial
from contrasweep.version import __version__

MAX_MODELS = 8  # of the first arms, where there are very many


def publish(
    results: Results,
    trackers: Trackers,
    tracked: TrackedStudy,
    datasets: Mapping[str, Manifest],
    *,
    ran: bool,
    gap: str = "",
) -> Results:
    """Log files and models to the study's runs in MLflow; return the results with the URLs of the runs.

    Models, one for each arm, are logged only if a trial `ran`; else trackers are first brought up to what the storage
    has. `gap` says what the tracker lacks after the run. A sqlite file that has shown all of this study, and was not
    written to since, is left alone: to import MLflow takes longer than all else that a finished study needs.
    """
    if trackers.is_none:
        return results
    links = read_links(results.records)
    if not ran and links.shown and links.shown == _shown(results, trackers):
        return replace(results, run_urls=links.runs)
    try:
        if not ran or results.evaluations:
            sync(results.records, trackers, tracked, complete=True, compare=False)
        if not trackers.store.is_none:
            results = replace(results, run_urls=read_links(results.records).runs)
            _log(results, Server(trackers.store, tracked, results.records), datasets if ran else None)
            if not gap:
                write_shown(results.records, _shown(results, trackers))
    except StorageError as error:  # what was trained is in the records all the same
        print(error, file=sys.stderr)
    except TrackingError as error:
        print(f"the tables and models are not in MLflow at {trackers.store} ({error})", file=sys.stderr)
    return results


def _shown(results: Results, trackers: Trackers) -> str:
    """Return the digest of what both the tracking store and the storage have; "" where the store must be asked."""
    store = trackers.store.state()
    if not store or trackers.others:
        return ""
    scored = sorted((one.study, one.trial_id, one.ended) for found in results.evaluations.values() for one in found)
    state = [store, trackers.store, __version__, results.document, sorted(results.records.etags().items()), scored]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _log(results: Results, server: Server, datasets: Mapping[str, Manifest] | None) -> None:
    from contrasweep.report import write_files  # brings SciPy along, for which a plan need not wait

    server.connect(trials=False)
    with tempfile.TemporaryDirectory() as folder:
        files, note = write_files(results, Path(folder))
        server.describe_study(files, note, _means(results))
    for record in _best(results) if datasets is not None else ():
        _log_model(record, results, server, datasets or {})


def _means(results: Results) -> dict[str, float]:
    """The mean of each arm, by `<metric>/<arm>`: what the study's own run shows beside its trials."""
    cells = results.table(rows="arm", columns=[]).cells
    return {f"{results.metric}/{row[0]}": cell.mean for (row, _), cell in cells.items() if cell.mean is not None}


def _best(results: Results) -> Iterator[Record]:
    """The best finished trial of each arm."""
    sign = 1 if results.document.mode == "max" else -1
    for arm in results.document.arms[:MAX_MODELS]:
        done = [r for r in results.trial_records.values() if r.arm == arm and r.status.counts]
        if done:
            yield max(done, key=lambda r: sign * r.metrics[results.metric])


def _log_model(record: Record, results: Results, server: Server, datasets: Mapping[str, Manifest]) -> None:
    """Log the trial's newest checkpoint as a model of its run. A failure is printed, and nothing is lost by it."""
    try:
        data = datasets[record.data.digest]
        trial = Trial(record.study, record.arm, record.trainable, record.config, data, record.fold, record.seed)
        with tempfile.TemporaryDirectory() as folder:
            saved = Checkpoints(results.records.store, results.records.key(trial.id, "checkpoint")).fetch(Path(folder))
            module = load_checkpoint(trial, Path(folder)) if saved else None
        if saved and module is not None:
            log_model(server, trial.id, module, saved.step)
    except Exception as error:  # a trainable of somebody else's, or a package that only the workers have
        print(
            f"the model of arm {record.arm} is not in MLflow ({type(error).__name__}: {error}); its checkpoint is in "
            f"the storage",
            file=sys.stderr,
        )
