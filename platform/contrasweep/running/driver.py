"""Run or resume a study: claim its name, plan, train what has no record yet, publish."""

import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from contrasweep.code import CurrentCode
from contrasweep.config import Config
from contrasweep.data import resolve
from contrasweep.defaults import OF_STUDY, STORAGE
from contrasweep.errors import StorageError
from contrasweep.imports import require
from contrasweep.planning import learned
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.planner import Plan, plan
from contrasweep.results.results import Results
from contrasweep.running.evaluation import is_evaluated, plan_evaluation, plan_of_checkpoint
from contrasweep.running.prepare import (
    Changed,
    declared_as_before_if_refused,
    prepare,
    tracked_study,
)
from contrasweep.running.publish import clean, plan_cleaning, publish
from contrasweep.shell import command_line
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.study.evaluation import Evaluation
from contrasweep.study.file import as_study, is_declaration, named_by
from contrasweep.study.sweep import Study
from contrasweep.tracking.kinds import Addresses, checked_tracking, parted, tracking_of
from contrasweep.tracking.links import read_links
from contrasweep.tracking.mlflow.address import checked_uri
from contrasweep.tracking.process import following
from contrasweep.tracking.tracker import TrackedStudy


def run(
    study: Study | str | Path | Config | GridPlan,
    *,
    storage: str = STORAGE,
    tracking: Addresses = OF_STUDY,
    max_concurrent: int | None = None,
    extend: bool = False,
    spend: bool = False,
    retry_failed: bool = False,
    rerun: Sequence[str] = (),
    changed: Changed = "stop",
    cluster: Path | None = None,
    quiet: bool = False,
) -> Results:
    """Run the trials of a study that have no record yet, and return its results.

    Trials run on the Ray cluster in `RAY_ADDRESS`, or on this machine. The same call goes on after an interruption
    (SIGINT, SIGTERM), which raises KeyboardInterrupt once finished trials are recorded.

    Args:
        study: The study, its name (`module:NAME`), a YAML file, a mapping of its fields, or
            a plan.
        storage: Folder or `s3://bucket/prefix` for records, checkpoints and datasets.
        tracking: An MLflow store, `tensorboard:FOLDER`, `wandb:FOLDER` or your own tracker's `package.module:Class`, or
            a list of these; None: none. Left out: the study's own `tracking`, or `sqlite:///mlflow.db`.
        max_concurrent: Trials at once, at most.
        extend: Keep the trials of another plan of this name and add to them.
        spend: Give verdicts to the comparisons of arms that are added after trials have ended. The new verdicts count
            as one more look at the results, so all comparisons are judged at a quarter of the level before. Without
            `spend` the comparisons of added arms are exploratory.
        retry_failed: Run failed trials again.
        rerun: Arms, cells (`ARM/axis=value`) or trials that run again. What they had made moves to the archive.
        changed: What is done with trials of other code: "stop", "rerun" or "accept".
        cluster: Inventory file of the hosts that the cluster has or can start, with their prices. Without it, trials
            are placed on the hosts that Ray lists.
        quiet: Show no progress, only failures and warnings.

    Returns:
        The results as they stand. `Results.stopped` says so where a budget has ended the run.

    Raises:
        ContrasweepError: The input is wrong; nothing was written.

    Example:
        >>> results = cs.run(study, tracking=None)  # all of its trials are there, so nothing is trained
        >>> results.compare("ocl", "scl").difference > 0
        True
    """
    # The address is made absolute, because workers have another working directory.
    storage = open_store(storage).uri
    if storage.startswith("memory://"):
        raise StorageError(
            f"storage {storage} is seen by this process alone, and trials run in others; take a folder"
        )
    planned = study if isinstance(study, GridPlan) else plan(study, storage=storage)
    declared = planned.study
    # Those of the command, else those that the study declares.
    trackers = checked_tracking(tracking_of(tracking, declared.tracking), notify=declared.notify)
    if not trackers.store.is_none:
        require("mlflow")
    records = StudyRecords(storage, declared.name)
    records.store.check_writable()
    code = CurrentCode(declared.functions)
    with exclusive_driver(records) as lease, declared_as_before_if_refused(records, extend=extend):
        prepared = prepare(
            planned,
            records,
            code,
            extend=extend,
            retry_failed=retry_failed,
            rerun=rerun,
            changed=changed,
            spend=spend,
        )
        tracked = tracked_study(planned, storage, prepared.document)
        # Train what has no record yet, on datasets that lie where all nodes reach them.
        trained = None
        stopped = ""
        gap = ""
        if not prepared.complete:
            trained = planned.relocated(
                partial(resolve, folds=declared.folds, storage=storage, write=True)
            )
            # Imported here because it brings Ray, which a finished study does not need.
            from contrasweep.running.engine.training import train

            # A process of its own, the follower, shows the run in the trackers.
            with following(trackers, tracked, lease.records) as follower:
                stopped = train(
                    trained, prepared, lease.records, code, lease, max_concurrent, cluster, quiet
                )
                follower.outcome = "interrupted" if stopped else "complete"
            gap = follower.gap  # what the trackers lack, as a line
        results = replace(Results.load(records.study, storage), stopped=stopped)
        recorded = {**results.trial_records, **results.search_records}
        # Later plans know from this run how much memory a trial takes.
        if trained is not None:
            learned.write(records, recorded.values())
        # Every record was there before this run.
        if not (stopped or quiet) and recorded.keys() <= prepared.finished:
            print(_nothing_to_train(results.name, recorded.values()), file=sys.stderr)
        # Networks are evaluated, as the study declares it, once all of them are trained.
        complete = results.complete and not stopped
        if complete:
            options = {"max_concurrent": max_concurrent, "cluster": cluster, "quiet": quiet}
            results, complete = _evaluate_declared(results, planned, options)
        published = publish(results, trackers, tracked, trained=trained, gap=gap)
        # Checkpoints are deleted last, because the evaluations and the models in MLflow are made of them.
        # `keep_checkpoints_of` says which trials keep checkpoints, `keep` which of its checkpoints such a trial keeps.
        # With `keep: none` a trial keeps none, so no trial keeps any.
        trials = "none" if declared.keep == "none" else declared.keep_checkpoints_of
        if complete and trials != "all":
            clean(results, plan_cleaning(results, trials))
        return published


def _nothing_to_train(study: str, recorded: Collection[Record]) -> str:
    """Return the message that each trial of `study` has its record, with the number of records by status.

    Where trials have failed it adds that `--retry-failed` runs these again.
    """
    counts = Counter(record.status for record in recorded)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    line = f"nothing to train: every trial of {study} has its record, {statuses}"
    if any(status.failed for status in counts):
        line += "; --retry-failed runs what failed again"
    return line


def _evaluate_declared(results: Results, planned: Plan, options: Config) -> tuple[Results, bool]:
    """Run the evaluations that a study declares; return its results with their scores, and whether all are complete.

    An evaluation that has its scores already does not run again. `options` are those of `run`.
    """
    complete = True
    # Networks are loaded only by code that these values name: a storage is not trusted.
    named_values = named_by(planned.study, [trial.config for trial in planned.example_trials])
    for evaluation in planned.study.evaluate or ():
        if not is_evaluated(results, evaluation):
            scores = _score(results, plan_evaluation(results, evaluation, named_values), options)
            complete = complete and scores.complete
            results = Results.load(results.name, results.records.storage)
    return results, complete


def _score(results: Results, scoring: GridPlan, options: Config) -> Results:
    """Run the evaluation `scoring`, a study that no tracker shows, and return its results; note it in `results`' study.

    `results` are those of the study whose networks are scored. `options` are those of `run`.
    """
    results.records.add_evaluation(scoring.study.name)
    return _run_evaluation(scoring, results.records.storage, None, **options)


def evaluate(
    study: Study | str | Path,
    *,
    on: Sequence[str] = (),
    function: str = "",
    storage: str = STORAGE,
    tracking: Addresses = OF_STUDY,
    **options: Any,
) -> tuple[Results, Results]:
    """Score every network that a study has kept, on other data or by code of your own.

    The evaluations are a study of their own in the storage, whose trials run, resume and fail as any other's. What has
    been evaluated is not evaluated again, unless its network or the code has changed.

    Args:
        study: The study, `module:NAME` or a YAML file. If it uses no code of your own, its name in the storage is
            enough; code that only a storage names is not imported.
        on: Names of staged datasets of images with labels.
        function: The dotted path of `f(model, data, trial) -> {metric: number}`, in place of the shipped scores. It may
            return a second mapping, score -> one value per test item.
        storage: The storage that the study lies in.
        tracking: The trackers whose runs of the study get the scores. Left out: the MLflow store that shows the study
            already, if that is the study's `tracking` or `sqlite:///mlflow.db`.
        options: Passed to `run`: `max_concurrent`, `cluster`, `quiet`.

    Returns:
        The results of the study, with the scores as metrics (`DATASET/knn1`, `FUNCTION/METRIC`); and the results of
        the study that scored its networks.

    Raises:
        SpecError: There is nothing to evaluate, or nothing to evaluate it with.
        DataError: A dataset is not staged.
    """
    storage = open_store(storage).uri
    # Without a declaration, `study` is the name of a study in the storage.
    declared = as_study(study) if not isinstance(study, str) or is_declaration(study) else None
    name = declared.name if declared else str(study)
    results = Results.load(name, storage)
    # Score the networks.
    evaluation = Evaluation(list(on), function)
    evaluation.check(partial(resolve, folds=results.document.folds, storage=storage))
    named_values = named_by(declared) if declared else ()
    scores = _score(results, plan_evaluation(results, evaluation, named_values), options)
    # The results, loaded again, have the scores, which trackers show too.
    results = Results.load(name, storage)
    records = StudyRecords(storage, name)
    if tracking == OF_STUDY:
        tracking = _where_shown(
            records, tracking_of(tracking, declared.tracking if declared else None)
        )
    return publish(results, checked_tracking(tracking), TrackedStudy.stored(records)), scores


def _where_shown(records: StudyRecords, addresses: Addresses) -> Addresses:
    """Return `addresses` if one of them is the MLflow store in which the study is shown already, else None.

    None means that scores are not tracked. The storage says where the study is shown, but the storage is not trusted,
    so only an address that the user has given is used. Where the study is shown at another address, a line on standard
    error says so.
    """
    shown = read_links(records).tracking
    if not shown:
        return None
    stores, _ = parted(addresses)
    if any(checked_uri(store, connect=False) == shown for store in stores):
        return addresses
    print(
        f"the scores are not in MLflow: the storage says that the study is shown at {shown}, and the command does not; "
        f"if that is yours, add them by {command_line('sync', records.study, tracking=shown)}",
        file=sys.stderr,
    )
    return None


def evaluate_checkpoint(
    checkpoint: str | Path,
    model: str,
    *,
    on: Sequence[str],
    function: str = "",
    name: str = "",
    storage: str = STORAGE,
    tracking: Addresses = OF_STUDY,
    **options: Any,
) -> Results:
    """Score a network that was trained elsewhere, in a study of its own with one trial.

    Args:
        checkpoint: A file, or a folder of files. The storage keeps a copy.
        model: The dotted path of `load(path) -> torch.nn.Module`, which maps images (n, channels, height, width; uint8)
            to embeddings (n, dimensions).
        on: Names of staged datasets of images with labels.
        function: As in `evaluate`.
        name: The name of the study. Default: the name of the checkpoint's file, with what it is evaluated on.
        storage: The storage of the study.
        tracking: Where the study is tracked. Left out: nowhere.
        options: Passed to `run`: `max_concurrent`, `cluster`, `quiet`.

    Returns:
        The results of the study.

    Raises:
        SpecError: The checkpoint or its loader cannot be read, or the name is taken.
        DataError: A dataset is not staged.
    """
    storage = open_store(storage).uri
    evaluation = Evaluation(list(on), function)
    evaluation.check(partial(resolve, folds=None, storage=storage))
    planned = plan_of_checkpoint(name, model, Path(checkpoint), evaluation, storage)
    return _run_evaluation(planned, storage, None if tracking == OF_STUDY else tracking, **options)


def _run_evaluation(
    planned: GridPlan, storage: str, tracking: Addresses, **options: Any
) -> Results:
    """Run the study `planned`, an evaluation of networks, and return its results.

    Its trials that have failed, or are of other code, run again. `options` are those of `run`.
    """
    options = {"extend": True, "changed": "rerun", "retry_failed": True, **options}
    return run(planned, storage=storage, tracking=tracking, **options)
