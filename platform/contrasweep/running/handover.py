"""What is left to do when the last trial has ended: table, report and best models go to MLflow, its addresses to the
results."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from contrasweep.data.manifest import Manifest
from contrasweep.results.results import Results
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Record, Status
from contrasweep.tracking import StudyFacts, Tracker, load_checkpoint, sync, write_links
from contrasweep.trial import Trial

SETTLE_S = 20.0  # what was told last is sent by then, or the report has fewer links
MOST_MODELS = 8


def hand_over(
    found: Results, tracker: Tracker, tracking: str, facts: StudyFacts, datasets: Mapping[str, Manifest], *, ran: bool
) -> Results:
    """Files and models onto the study's runs, what earlier interrupted runs left out onto the tracker, and the
    runs' addresses into the storage and the results. Models (one an arm) only if something `ran`."""
    from contrasweep.report import write_files  # brings SciPy along, for which a plan need not wait

    if tracking == "none":
        tracker.close()
        return found
    tracker.settle(SETTLE_S)
    with tempfile.TemporaryDirectory() as folder:
        files, note = write_files(_linked(found, tracker, tracking), Path(folder))
        tracker.log_study_artifacts(files, note=note, metrics=_means(found))
        for record in _best(found) if ran else ():
            _log_model(record, found, tracker, datasets)
        gap = tracker.close()
    if gap is not None:
        print(gap, file=sys.stderr)
    elif set(tracker.run_ids()) < {*found.found, *found.others}:
        sync(found.records, tracking, facts)
    return _linked(found, tracker, tracking)


def _linked(found: Results, tracker: Tracker, tracking: str) -> Results:
    """The results with the addresses that the tracker knows, which are kept in the storage too."""
    urls = {trial_id: url for trial_id in tracker.run_ids() if (url := tracker.run_url(trial_id))}
    write_links(found.records, tracking, tracker.run_url(), urls)
    return replace(found, run_urls=urls)


def _means(found: Results) -> dict[str, float]:
    """The mean of each arm, by `<metric>/<arm>`: what the study's own run shows beside its trials."""
    cells = found.table(rows="arm", columns=[]).cells
    return {f"{found.metric}/{row[0]}": cell.mean for (row, _), cell in cells.items() if cell.mean is not None}


def _best(found: Results) -> Iterator[Record]:
    """The best finished trial of each arm, of the first arms where there are very many."""
    sign = 1 if found.document.mode == "max" else -1
    for arm in found.document.arms[:MOST_MODELS]:
        done = [r for r in found.found.values() if r.arm == arm and r.status == Status.DONE]
        if done:
            yield max(done, key=lambda r: sign * r.metrics[found.metric])


def _log_model(record: Record, found: Results, tracker: Tracker, datasets: Mapping[str, Manifest]) -> None:
    """Its newest checkpoint as a model of its run. Whatever hinders that is told, and nothing is lost by it."""
    try:
        data = datasets[record.data.digest]
        trial = Trial(record.study, record.arm, record.trainable, record.config, data, record.fold, record.seed)
        with tempfile.TemporaryDirectory() as folder:
            saved = Checkpoints(found.records.store, found.records.key(trial.id, "checkpoint")).fetch(Path(folder))
            module = load_checkpoint(trial, Path(folder)) if saved else None
        if saved and module is not None:
            tracker.log_model(trial.id, module, step=saved.step)
    except Exception as error:  # a trainable of somebody else's, or a package that only the workers have
        print(
            f"the model of arm {record.arm} is not in MLflow ({type(error).__name__}: {error}); its checkpoint is in "
            f"the storage",
            file=sys.stderr,
        )
