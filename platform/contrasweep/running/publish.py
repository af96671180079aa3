"""Publish a finished study to MLflow: table, report and each arm's best model; return the results with run URLs."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from contrasweep.data.manifest import Manifest
from contrasweep.errors import StorageError
from contrasweep.results.results import Results
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Record, Status
from contrasweep.tracking import StudyPages, TrackedStudy, Tracker, TrackingAddress, load_checkpoint, sync, write_links
from contrasweep.trial import Trial

FLUSH_TIMEOUT_S = 20.0  # what was logged last is sent by then, or the report has fewer links
MAX_MODELS = 8  # of the first arms, where there are very many


def publish(
    results: Results,
    tracker: Tracker,
    tracking: TrackingAddress,
    tracked: TrackedStudy,
    datasets: Mapping[str, Manifest],
    *,
    ran: bool,
) -> Results:
    """Log files and models to the study's runs, replay the trials that interrupted runs left out, and keep the runs'
    URLs in the storage; the results with these URLs. Models (one for each arm) are logged only if a trial `ran`."""
    from contrasweep.report import write_files  # brings SciPy along, for which a plan need not wait

    if not isinstance(tracker, StudyPages):
        if (gap := tracker.close()) is not None:
            print(gap, file=sys.stderr)
        return results
    tracker.flush(FLUSH_TIMEOUT_S)
    with tempfile.TemporaryDirectory() as folder:
        files, note = write_files(_linked(results, tracker, tracking), Path(folder))
        tracker.log_study_artifacts(files, note=note, metrics=_means(results))
        for record in _best(results) if ran else ():
            _log_model(record, results, tracker, datasets)
        gap = tracker.close()
    if gap is not None:
        print(gap, file=sys.stderr)
    elif set(tracker.run_ids()) < {*results.trial_records, *results.search_records}:
        try:
            sync(results.records, tracking, tracked)
        except StorageError as error:  # what was trained is in the records all the same
            print(error, file=sys.stderr)
    return _linked(results, tracker, tracking)


def _linked(results: Results, tracker: StudyPages, tracking: TrackingAddress) -> Results:
    """The results with the run URLs that the tracker knows, which are kept in the storage too."""
    urls = {trial_id: url for trial_id in tracker.run_ids() if (url := tracker.run_url(trial_id))}
    write_links(results.records, tracking, tracker.run_url(), urls)
    return replace(results, run_urls=urls)


def _means(results: Results) -> dict[str, float]:
    """The mean of each arm, by `<metric>/<arm>`: what the study's own run shows beside its trials."""
    cells = results.table(rows="arm", columns=[]).cells
    return {f"{results.metric}/{row[0]}": cell.mean for (row, _), cell in cells.items() if cell.mean is not None}


def _best(results: Results) -> Iterator[Record]:
    """The best finished trial of each arm."""
    sign = 1 if results.document.mode == "max" else -1
    for arm in results.document.arms[:MAX_MODELS]:
        done = [r for r in results.trial_records.values() if r.arm == arm and r.status == Status.DONE]
        if done:
            yield max(done, key=lambda r: sign * r.metrics[results.metric])


def _log_model(record: Record, results: Results, tracker: StudyPages, datasets: Mapping[str, Manifest]) -> None:
    """Log the trial's newest checkpoint as a model of its run. A failure is printed, and nothing is lost by it."""
    try:
        data = datasets[record.data.digest]
        trial = Trial(record.study, record.arm, record.trainable, record.config, data, record.fold, record.seed)
        with tempfile.TemporaryDirectory() as folder:
            saved = Checkpoints(results.records.store, results.records.key(trial.id, "checkpoint")).fetch(Path(folder))
            module = load_checkpoint(trial, Path(folder)) if saved else None
        if saved and module is not None:
            tracker.log_model(trial.id, module, step=saved.step)
    except Exception as error:  # a trainable of somebody else's, or a package that only the workers have
        print(
            f"the model of arm {record.arm} is not in MLflow ({type(error).__name__}: {error}); its checkpoint is in "
            f"the storage",
            file=sys.stderr,
        )
