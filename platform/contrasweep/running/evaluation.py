"""Evaluate networks: an ordinary study whose trials load what another study, or somebody else, has trained."""

import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.data.resolving import find, resolve
from contrasweep.errors import SpecError, plural
from contrasweep.imports import import_from_here, import_path
from contrasweep.planning import networks
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.plan import Cell
from contrasweep.results.results import Results
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import EVALUATED, EVALUATION
from contrasweep.study.arm import Arm
from contrasweep.study.evaluation import Evaluation, dataset_name
from contrasweep.study.grid import AblationGrid
from contrasweep.trial import Trial

DIGEST_DIGITS = 12
"""Digits of a dataset's digest in the config of an evaluation."""
GIVEN_ARM = "given"
"""The arm of a study that evaluates a checkpoint from elsewhere."""


def plan_evaluation(
    results: Results, evaluation: Evaluation, named: Sequence[object] = ()
) -> GridPlan:
    """Return the plan of an evaluation: a trial for each finished trial of the table that has a checkpoint.

    Finished trials without a checkpoint are left out, and a line on standard error counts them. Code and data are used
    only if they are shipped or stand in `named`, the values of a declaration that the user has given (`check_named`).

    Raises `SpecError` where no trial has a checkpoint, where the study is an evaluation itself, and for a name that is
    taken.
    """
    spec = results.document.required_spec
    records = results.records
    storage = records.storage
    manifests = networks.datasets(results.document, storage, named)
    evaluable = _evaluable(results, named)
    # The study of the evaluation has the arms, axes, folds and seeds of the evaluated one. Its trainable, `EVALUATION`,
    # scores a network.
    name = f"{results.name}.{evaluation.label}"
    settings = {"data": evaluation.data, "function": evaluation.function}
    _check_names(name, settings, [name, *records.evaluations()], storage)
    # A label such as `on-digits` is shown as "on digits".
    label = evaluation.label.replace("-", " ", 1)
    planned = results.planned.set_index("trial_id")
    axes = {axis: _distinct(planned[axis].tolist()) for axis in results.axes}
    study = AblationGrid(
        name,
        {arm: Arm(EVALUATION, settings) for arm in results.document.arms},
        spec["data"],
        axes,
        folds=spec.get("folds"),
        seeds=_distinct(planned["seed"].tolist()),
        metric=_metric(evaluation),
        description=f"The networks of {results.name}, evaluated {label}",
    )
    # One trial for each network. The checkpoint's digest is part of the trial's config, and so of its id: a network
    # that was trained again is evaluated again.
    evaluated_on = _with_digests(evaluation.data, storage)
    cells: dict[str, Cell] = {}
    for record, checkpoint in evaluable:
        settings_of_trial: dict[str, object] = {
            "study": results.name,
            "trainable": record.trainable,
            "config": record.config,
            "on": evaluated_on,
            "source": record.trial_id,
            "trained": record.ended,
            "checkpoint": checkpoint,
            "function": evaluation.function,
        }
        if record.start:
            settings_of_trial["start"] = asdict(record.start)
        config = canonical.Config(settings_of_trial)
        data = networks.data_of(record, manifests)
        trial = Trial(study.name, record.arm, EVALUATION, config, data, record.fold, record.seed)
        # Trials of one arm and the same values of the axes make a cell.
        values = {axis: planned.at[record.trial_id, axis] for axis in results.axes}
        key = canonical.dumps([record.arm, values])
        earlier = cells[key].trials if key in cells else ()
        cells[key] = Cell(record.arm, values, (*earlier, trial))
    without_checkpoint = len(_finished(results)) - len(evaluable)
    if without_checkpoint:
        trials = plural(without_checkpoint, "finished trial")
        print(f"left out: {trials} without a checkpoint", file=sys.stderr)
    return GridPlan(
        study,
        tuple(cells.values()),
        sources={manifest.digest: dataset for dataset, manifest in manifests.items()},
    )


def plan_of_checkpoint(
    name: str, model: str, checkpoint: Path, evaluation: Evaluation, storage: str
) -> GridPlan:
    """Return the plan of one trial that evaluates a checkpoint from elsewhere; copy the checkpoint to the storage.

    Args:
        name: The name of the study. "": the name of the checkpoint's file, with what it is evaluated on.
        model: The dotted path of `load(path) -> network`.
        checkpoint: A file, or a folder.
        evaluation: The data and the function by which the network is scored.
        storage: The storage that keeps a copy of the checkpoint.

    Raises:
        SpecError: No data is named, `model` or the checkpoint cannot be read, or the name is taken.
    """
    import_from_here()
    import_path(model, "--model", "function")
    if not evaluation.data:
        raise SpecError(
            "a checkpoint from elsewhere is evaluated on data",
            place="--on",
            hint="for example --on digits",
        )
    evaluated_on = _with_digests(evaluation.data, storage)
    content = _content_digest(checkpoint)
    settings = {
        "data": evaluation.data,
        "function": evaluation.function,
        "model": model,
        "content": content,
    }
    # Few characters are allowed in the name of a study, so all others in the file name become hyphens.
    slug = re.sub("[^A-Za-z0-9._-]+", "-", checkpoint.stem).lstrip("._-") or GIVEN_ARM
    study = AblationGrid(
        name or f"{slug}.{evaluation.label}",
        {GIVEN_ARM: Arm(EVALUATION, settings)},
        evaluation.data[0],
        metric=_metric(evaluation),
        description=f"The checkpoint {checkpoint.name}, loaded by {model}, evaluated {evaluation.label}",
    )
    _check_names(study.name, settings, [study.name], storage)
    data = resolve(study.data, folds=None, storage=storage)
    # Copy the checkpoint to the storage. A stored checkpoint is a folder, so a single file is linked into one. It has
    # a step too, which is not known of a checkpoint from elsewhere: 1 stands for it.
    records = StudyRecords(storage, study.name)
    stored = Checkpoints(records.store, records.given_checkpoint_key(content))
    if stored.latest() is None:
        with tempfile.TemporaryDirectory() as folder:
            files = checkpoint
            if not checkpoint.is_dir():
                files = Path(folder)
                (files / checkpoint.name).symlink_to(checkpoint.resolve())
            stored.save(files, step=1)
    saved = stored.latest()
    # The only trial. It has the same fields as a trial of `plan_evaluation`; nobody knows when its network was trained.
    config = canonical.Config(
        {
            "study": study.name,
            "trainable": model,
            "config": {},
            "on": evaluated_on,
            "function": evaluation.function,
            "source": content,
            "checkpoint": saved.digest if saved else "",
            "trained": 0.0,
            "file": "" if checkpoint.is_dir() else checkpoint.name,
        }
    )
    trial = Trial(study.name, GIVEN_ARM, EVALUATION, config, data)
    return GridPlan(study, (Cell(GIVEN_ARM, {}, (trial,)),), sources={data.digest: study.data})


def _finished(results: Results) -> list[Record]:
    """Return the records of the table's trials that were trained to their end."""
    return [record for record in results.trial_records.values() if record.status.counts]


def is_evaluated(results: Results, evaluation: Evaluation) -> bool:
    """Return whether each trial of the table that was trained to its end has the scores of the evaluation.

    There must be at least one score for each of the evaluation's datasets.
    """
    return all(
        any(evaluation.gives(name, prefix) for name in record.metrics)
        for record in _finished(results)
        for prefix in evaluation.prefixes  # one for each dataset
    )


def _evaluable(results: Results, named: Sequence[object]) -> list[tuple[Record, str]]:
    """Return the trials of the table that can be evaluated, as pairs (record, digest of the newest checkpoint).

    They were trained to their end and have a checkpoint. Raises `SpecError` where there is none, and where the study is
    an evaluation itself. It is also raised where a network's code is not shipped and is not in `named`, which the user
    has named.
    """
    if results.document.evaluates:
        raise SpecError(
            "this study is an evaluation",
            place="STUDY",
            value=results.name,
            hint="name the study that it evaluates",
        )
    finished = _finished(results)
    # Raises for a record whose code may not be loaded; nothing is loaded yet.
    for record in finished:
        networks.loader(results.document, record, named)
    # The newest checkpoint of each trial is looked up in the storage, several at once.
    with ThreadPoolExecutor(16) as pool:
        checkpoints = pool.map(
            lambda record: Checkpoints.of(results.records, record.trial_id).latest(), finished
        )
        evaluable = [
            (record, saved.digest)
            for record, saved in zip(finished, checkpoints, strict=True)
            if saved
        ]
    if not evaluable:
        raise SpecError(
            "no finished trial of the study has a checkpoint",
            place="STUDY",
            value=results.name,
            hint="a method yields Report(..., checkpoint=folder), and `contrasweep clean` deletes it",
        )
    return evaluable


def _metric(evaluation: Evaluation) -> str:
    """Return the name of the metric by which the study that evaluates is judged.

    It is `evaluated` with the user's own function, and else the shipped score on the first dataset: `DATASET/knn1`.
    """
    return EVALUATED if evaluation.function else f"{dataset_name(evaluation.data[0])}/knn1"


def _check_names(study: str, settings: Config, names: Iterable[str], storage: str) -> None:
    """Raise `SpecError` where an earlier evaluation makes a name of a new evaluation ambiguous.

    There are two cases. The storage has a study with the name `study` and other settings. Or an earlier evaluation has
    another function whose dotted path ends with the same name: scores are named by it.

    `settings` are those of the new evaluation; their `function` is "" with the shipped score. `names` are the studies
    in the storage that are compared: the new one, if it is there already, and earlier evaluations.
    """
    function = str(settings["function"])
    # Each name once: the new study may be among the earlier evaluations.
    for name in dict.fromkeys(names):
        document = StudyRecords(storage, name).document()
        if document:
            for arm in document.spec.get("arms", {}).values():
                earlier = dict(arm.get("config") or {})
                earlier_function = str(earlier.get("function", ""))
                same_name = earlier_function.rpartition(":")[2] == function.rpartition(":")[2]
                if function and earlier_function != function and same_name:
                    raise SpecError(
                        "two functions of one name would give scores of one name",
                        place="--with",
                        value=function,
                        hint=f"{name} has those of {earlier_function}; give yours another name",
                    )
                if name == study and earlier != settings:
                    raise SpecError(
                        "a study of this name evaluates something else",
                        place="STUDY",
                        value=name,
                        hint="choose another",
                    )


def _content_digest(checkpoint: Path) -> str:
    """Return a digest of a checkpoint's files and their names, 16 hexadecimal digits.

    Raises `SpecError` where the files cannot be read.
    """
    # Names are relative to the checkpoint's parent folder, so that the digest stays when the checkpoint is moved.
    files = (
        sorted(path for path in checkpoint.rglob("*") if path.is_file())
        if checkpoint.is_dir()
        else [checkpoint]
    )
    try:
        parts = [
            [path.relative_to(checkpoint.parent).as_posix(), canonical.file_digest(path)]
            for path in files
        ]
    except OSError as error:
        raise SpecError(
            "the checkpoint cannot be read",
            place="--checkpoint",
            value=str(checkpoint),
            hint=error.strerror or "",
        ) from None
    if not parts:
        raise SpecError("the checkpoint has no files", place="--checkpoint", value=str(checkpoint))
    return canonical.digest(parts, 16)


def _with_digests(names: Iterable[str], storage: str) -> list[str]:
    """Return each dataset's name with the first digits of its staged digest, such as `digits#0f3a9c21b7de`."""
    manifests = {name: find(name, storage=storage) for name in names}
    return [f"{name}#{manifest.digest[:DIGEST_DIGITS]}" for name, manifest in manifests.items()]


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Return each value once, in the order of first appearance. Values may be lists and mappings."""
    # Lists and mappings cannot be keys of a dict, but their canonical texts can.
    return list({canonical.dumps(value): value for value in values}.values())
