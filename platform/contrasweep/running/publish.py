"""What follows the last trial: tables, reports and best models go to MLflow, and checkpoints are deleted."""

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from contrasweep.cluster.memory import GIB
from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.markdown_text import markdown_text
from contrasweep.planning.planner import Plan
from contrasweep.results.results import Results
from contrasweep.storage import compact
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import Record, RecordsById
from contrasweep.storage.records import StudyRecords, study_names
from contrasweep.study.file import named_by
from contrasweep.study.trust import check_named
from contrasweep.tracking.kinds import Trackers
from contrasweep.tracking.links import read_links, write_shown
from contrasweep.tracking.mlflow.models import load_checkpoint, log_model
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.sync import sync
from contrasweep.tracking.tracker import TrackedStudy, TrackingError
from contrasweep.trial import Trial
from contrasweep.version import __version__

MAX_MODELS = 8
"""The most models that are logged: those of the first arms."""


def publish(
    results: Results,
    trackers: Trackers,
    tracked: TrackedStudy,
    *,
    trained: Plan | None = None,
    synced: bool = False,
    gap: str = "",
) -> Results:
    """Log files and models to the study's runs in MLflow; return the results with the URLs of the runs.

    Args:
        results: The results of the study.
        trackers: Where the study is shown.
        tracked: What trackers show of the study.
        trained: The plan that was trained just now, of whose arms models are logged. None: no models, and trackers
            first get all that the storage has.
        synced: The trackers have all of the study's records and scores already.
        gap: What the trackers lack after the run, as a line; "" where they lack nothing.
    """
    if trackers.is_none:
        return results
    # To import MLflow takes longer than all else of a finished study. A sqlite file that shows the whole study, and was
    # not written to since, is therefore left alone. `links.shown` is the digest of the states when all was shown last.
    links = read_links(results.records)
    if trained is None and links.shown and links.shown == _states_digest(results, trackers):
        return replace(results, run_urls=links.runs)
    try:
        # While trials were trained the follower has synced all but the scores of evaluations, which came after it.
        if not synced and (trained is None or results.evaluations):
            sync(results.records, trackers, tracked, complete=True)
        if not trackers.store.is_none:
            results = replace(results, run_urls=read_links(results.records).runs)
            _log(results, Server(trackers.store, tracked, results.records), trained)
            # As long as the store lacks something, it does not count as one that shows the whole study.
            if not gap:
                write_shown(results.records, _states_digest(results, trackers))
    except StorageError as error:  # what was trained is in the records all the same
        print(error, file=sys.stderr)
    except TrackingError as error:
        print(
            f"the tables and models are not in MLflow at {trackers.store} ({error})",
            file=sys.stderr,
        )
    return results


def _states_digest(results: Results, trackers: Trackers) -> str:
    """Return a digest that changes whenever the tracking store, or the study in the storage, has changed.

    While it stays the same, `publish` has nothing new to write. It is "" where changes cannot be seen: the tracking
    store is a server, or there are trackers beside MLflow.
    """
    store = trackers.store.state()
    if not store or trackers.others:
        return ""
    scored = sorted(
        (score.study, score.trial_id, score.ended)
        for evaluations in results.evaluations.values()
        for score in evaluations
    )
    state = [
        store,
        trackers.store,
        __version__,
        results.document,
        sorted(results.records.etags().items()),
        scored,
        results.notes,
    ]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _log(results: Results, server: Server, trained: Plan | None) -> None:
    """Write the study's figures and tables to MLflow, and the networks of the best trials of `trained` as models.

    `trained` is the plan that was trained just now; None: no models are written.
    """
    # Imported here because it brings SciPy, which takes long.
    from contrasweep.reporting import write_files

    server.connect(trials=False)
    with tempfile.TemporaryDirectory() as folder:
        files, note = write_files(results, Path(folder))
        server.describe_study(
            files, "\n\n".join([note, *map(markdown_text, results.notes)]), _means(results)
        )
    if trained is not None:
        for record in islice(_best(results), MAX_MODELS):
            _log_model(record, results, server, trained)


def _means(results: Results) -> dict[str, float]:
    """Return `<metric>/<arm>` -> the arm's mean, for each arm that has one; the study's own run in MLflow shows it."""
    # The key of a cell has the labels of its row, here the arm alone, and those of its column.
    cells = results.table(rows="arm", columns=[]).cells
    return {
        f"{results.metric}/{arm}": cell.mean
        for ((arm,), _), cell in cells.items()
        if cell.mean is not None
    }


def _best(results: Results) -> Iterator[Record]:
    """Yield the record of the best finished trial of each arm that has one."""
    yield from filter(None, map(results.best_trial, results.document.arms))


def _log_model(record: Record, results: Results, server: Server, trained: Plan) -> None:
    """Log the newest checkpoint of a trial as a model of its run in MLflow; a failure is only printed.

    A record in a storage is not trusted: the network is loaded by code that the plan names itself, in its trainables
    and in the settings of its study and trials.
    """
    try:
        data = trained.datasets[record.data.digest]
        # A record of another trainable is of no trial of this plan.
        if record.trainable != trained.study.arms[record.arm].path:
            return
        named_values = named_by(trained.study, [trial.config for trial in trained.example_trials])
        check_named(record.config, named_values, "config", "name it in the study, or ")
        trial = Trial.of(record, data)
        with tempfile.TemporaryDirectory() as folder:
            saved = Checkpoints.of(results.records, trial.id).fetch(Path(folder))
            module = load_checkpoint(trial, Path(folder)) if saved else None
        if saved and module is not None:
            log_model(server, record, module, saved.step)
    # Loading runs the user's code, and may need a package that only the workers have.
    except Exception as error:
        print(
            f"the model of arm {record.arm} is not in MLflow ({type(error).__name__}: {error}); its checkpoint is in "
            f"the storage",
            file=sys.stderr,
        )


KeptCheckpoints = Literal["best_of_arm", "confirmed", "none"]
"""The finished trials whose checkpoints stay: the best of each arm, all in the table, or none."""


@dataclass(frozen=True)
class Cleaning:
    """What cleaning a study deletes.

    The trials with the ids `trials` lose their checkpoints: the files `keys` of the storage, together `gib` GiB. `kept`
    is how many trials keep theirs. `lost` are sentences on what becomes impossible afterwards.
    """

    study: str
    kept: int
    trials: tuple[str, ...]
    keys: tuple[str, ...]
    gib: float
    lost: tuple[str, ...]


def plan_cleaning(results: Results, keep: KeptCheckpoints) -> Cleaning:
    """Return which checkpoints are to be deleted, so that of the finished trials only those of `keep` have one.

    `keep` names trials: the best of each arm, those that confirm a search, or none. Trials that go on from their
    checkpoints keep them: those that have not finished, that failed, or whose arm is still searched.
    """
    # trial id -> key in the storage -> bytes, of each file of a checkpoint
    records = results.records
    folder = f"{results.name}/trials/"
    sizes: dict[str, dict[str, int]] = {}
    for key, size in records.store.sizes(folder).items():
        trial_id, _, path = key.removeprefix(folder).partition("/")
        if path.startswith("checkpoint/"):
            sizes.setdefault(trial_id, {})[key] = size
    # Trials whose checkpoints stay: with "none" nobody's, with "confirmed" those of all trials in the table.
    stay: set[str] = set()
    if keep == "best_of_arm":
        stay = {record.trial_id for record in _best(results)}
    elif keep == "confirmed":
        stay = {*results.trial_records}
    # A searched arm without a trial in the table: its search goes on.
    still_searched: set[str] = set()
    if results.document.search:
        still_searched = {*results.document.arms} - {*results.planned["arm"]}
    # Trials that were trained to their end and have a checkpoint, without arms whose search goes on.
    finished = {}
    for trial, record in results.all_records.items():
        if record.status.trained and record.arm not in still_searched and trial in sizes:
            finished[trial] = record
    deleted = finished.keys() - stay
    keys = []
    for trial in sorted(deleted):
        # The marker latest.json is deleted first, because it says that its checkpoint is whole.
        keys += sorted(sizes[trial], key=lambda key: not key.endswith("/latest.json"))
    gib = sum(sum(sizes[trial].values()) for trial in deleted) / GIB
    # What becomes impossible, which the user is told before anything is deleted.
    lost = [*_impossible(finished, deleted)]
    # Arms of other studies start from networks of this one.
    other_studies = study_names(records.storage) if deleted else ()
    for name in other_studies:
        try:
            lost += _broken_start(results.name, StudyRecords(records.storage, name), deleted)
        except BrokenFileError as error:  # it ends no run of this study
            lost.append(f"start: whether {name} starts from these networks is not known: {error}")
    return Cleaning(
        results.name,
        kept=len(finished) - len(deleted),
        trials=tuple(sorted(deleted)),
        keys=tuple(keys),
        gib=gib,
        lost=tuple(lost),
    )


def clean(results: Results, cleaning: Cleaning) -> None:
    """Delete the files that `plan_cleaning` names; after an interruption the next cleaning deletes the rest."""
    for key in cleaning.keys:
        results.records.store.delete(key)


def _broken_start(study: str, records: StudyRecords, deleted: set[str]) -> Iterator[str]:
    """Yield a sentence if another study cannot be trained again once networks of `study` are deleted; else nothing.

    `records` is the other study in the storage. `deleted` are ids of trials of `study` whose networks are to be
    deleted.
    """
    document = records.document()
    if document is None:
        return
    # The studies whose networks its arms start from. `start` returns {"start": {"study": ..., ...}}, or {}.
    studies = [document.start(arm).get("start", {}).get("study") for arm in document.arms]
    if study not in studies:
        return
    # The deleted networks that its recorded trials started from.
    recorded = compact.read_records(records, broken=[])
    started_from = set()
    for record in recorded.values():
        if record.start and record.start.study == study and record.start.trial in deleted:
            started_from.add(record.start.trial)
    # Trials of its plan without a record could not begin without these networks.
    not_ended = len({*read_planned(records)["trial_id"]} - recorded.keys())
    unfinished = f", and {not_ended} of its trials have not ended" if not_ended else ""
    starts = f"it starts from {len(started_from)} of these networks{unfinished}"
    yield f"start: {records.study} cannot be trained again: {starts}"


def _impossible(finished: RecordsById, deleted: set[str]) -> Iterator[str]:
    """Yield sentences on what will be impossible after the checkpoints of the trials `deleted` are deleted.

    `finished` is trial id -> record of the trained trials that have a checkpoint now. Nothing is yielded where
    `deleted` is empty.
    """
    if not deleted:
        return
    # Arms without any checkpoint afterwards.
    arms = {record.arm for record in finished.values()}
    arms -= {finished[trial].arm for trial in finished.keys() - deleted}
    yield f"evaluate: {len(deleted)} of {len(finished)} networks cannot be evaluated any more"
    if arms:
        yield f"load_model, a model in MLflow: no network is left of {', '.join(sorted(arms))}"
    yield "resume: nothing changes; what has not finished, and what failed, keeps its checkpoint"
