"""Evaluate what a study has trained: an ordinary study whose trials load the networks of another one."""

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.data.names import parse
from contrasweep.data.resolving import find, resolve
from contrasweep.defaults import STORAGE
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import import_from_here, import_path
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.plan import Cell
from contrasweep.results.results import Results
from contrasweep.running.driver import run
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Record
from contrasweep.storage.store import open_store
from contrasweep.storage.study_document import EVALUATION
from contrasweep.study.arm import Arm
from contrasweep.study.grid import AblationGrid
from contrasweep.trial import Trial

DIGITS = 12
"""Of a dataset's digest in the config of an evaluation."""


def evaluate(
    study: str, *, on: Sequence[str] = (), function: str = "", storage: str = STORAGE, **options: Any
) -> tuple[Results, Results]:
    """Score every network that a study has kept, on other data or by own code.

    The evaluations are a study of their own in the storage, whose trials run, resume and fail as any other's. What has
    been evaluated is not evaluated again, unless its network or the code has changed.

    Args:
        study: The study's name.
        on: Names of staged datasets of images with labels.
        function: The dotted path of `f(model, data, trial) -> {metric: number}`, in place of the shipped scores.
        storage: The storage that the study lies in.
        options: Passed to `run`: `tracking`, `max_concurrent`, `cluster`, `quiet`.

    Returns:
        The results of the study, which have the scores as metrics (`DATASET/knn1`, `FUNCTION/METRIC`); and those of the
        evaluations.

    Raises:
        SpecError: There is nothing to evaluate, or nothing to evaluate it with.
        DataError: A dataset is not staged.
    """
    storage = open_store(storage).uri
    results = Results.load(study, storage)
    planned = plan_evaluation(results, on, function)
    if lacking := sum(record.status.counts for record in results.trial_records.values()) - planned.total:
        print(f"{lacking} finished trials have no checkpoint and are left out", file=sys.stderr)
    results.records.store.write(f"{results.name}/evaluations/{planned.study.name}", b"")
    evaluated = run(
        planned, storage=storage, extend=True, changed="rerun", retry_failed=True, **{"tracking": None, **options}
    )
    return Results.load(study, storage), evaluated


def plan_evaluation(results: Results, on: Sequence[str], function: str) -> GridPlan:
    """Return the plan of an evaluation: a trial for each finished trial of the table that has a checkpoint."""
    storage, done = results.records.storage, _evaluable(results, on, function)
    spec, frame = results.document.spec, results.planned.set_index("trial_id")
    folds = spec.get("folds") if any(record.fold is not None for record, _ in done) else None
    others = [_with_digest(name, storage, folds) for name in on]
    label = "-".join([*(["on", *on] if on else []), *(["with", function.rpartition(":")[2]] if function else [])])
    names = dict.fromkeys([spec["data"], *(spec.get("axes") or {}).get("data", ())])
    manifests = {name: resolve(name, folds=spec.get("folds"), storage=storage) for name in names}
    axes = {axis: _different(frame[axis].tolist()) for axis in results.axes}
    study = AblationGrid(
        f"{results.name}.{re.sub('[^A-Za-z0-9._-]+', '-', label)}",
        {arm: Arm(EVALUATION) for arm in results.document.arms},
        spec["data"],
        axes,
        folds=spec.get("folds"),
        seeds=_different(frame["seed"].tolist()),
        metric="evaluated" if function else f"{parse(on[0].rstrip('/').rpartition('/')[2]).folder}/knn1",
        description=f"The networks of {results.name}, evaluated {label.replace('-', ' ', 1)}",
        pilot=False,
    )
    cells: dict[str, Cell] = {}
    for record, checkpoint in done:
        shared = {"study": results.name, "trainable": record.trainable, "config": record.config, "on": others}
        own: dict[str, object] = {"start": asdict(record.start)} if record.start else {}
        own |= {"source": record.trial_id, "trained": record.ended, "checkpoint": checkpoint, "function": function}
        data = _same_data(record, manifests.values(), results.name)
        config = canonical.Config({**shared, **own})
        trial = Trial(study.name, record.arm, EVALUATION, config, data, record.fold, record.seed)
        values = {axis: frame.at[record.trial_id, axis] for axis in results.axes}
        key = canonical.dumps([record.arm, values])
        cells[key] = Cell(record.arm, values, (*(cells[key].trials if key in cells else ()), trial))
    return GridPlan(study, tuple(cells.values()), {manifest.digest: name for name, manifest in manifests.items()})


def _evaluable(results: Results, on: Sequence[str], function: str) -> list[tuple[Record, str]]:
    """The finished trials of the table that have a checkpoint, with its digest."""
    if not on and not function:
        raise SpecError("an evaluation has data, or a function", place="--on", hint="for example --on digits")
    if results.document.evaluates:
        raise SpecError("this study is an evaluation", place="STUDY", value=results.name, hint="name the one it is of")
    import_from_here()
    if function:
        import_path(function, "--with", "function")
    finished = [record for record in results.trial_records.values() if record.status.counts]
    for trainable in sorted({record.trainable for record in finished}):
        import_path(f"{trainable.partition(':')[0]}:load_model", "STUDY", "loader")
    with ThreadPoolExecutor(16) as pool:
        checkpoints = pool.map(lambda record: _checkpoint(results, record), finished)
        done = [(record, found) for record, found in zip(finished, checkpoints, strict=True) if found]
    if not done:
        raise SpecError(
            "no finished trial of the study has a checkpoint",
            place="STUDY",
            value=results.name,
            hint="a method yields Report(..., checkpoint=folder), and `contrasweep clean` deletes it",
        )
    return done


def _checkpoint(results: Results, record: Record) -> str:
    """The digest of a trial's newest checkpoint; empty where there is none."""
    saved = Checkpoints(results.records.store, results.records.key(record.trial_id, "checkpoint")).latest()
    return saved.digest if saved else ""


def _with_digest(name: str, storage: str, folds: int | None) -> str:
    """The dataset's name with its digest; an error where its images cannot be scored on so many folds."""
    manifest = find(name, storage=storage)
    if manifest.kind != "image" or not manifest.classes:
        raise SpecError("networks are scored on images with labels", place="--on", value=name, hint=manifest.kind)
    resolve(name, folds=folds, storage=storage)
    return f"{name}#{manifest.digest[:DIGITS]}"


def _different(values: Sequence[Any]) -> list[Any]:
    """The values, each once, in their order."""
    return list({canonical.dumps(value): value for value in values}.values())


def _same_data(record: Record, manifests: Any, study: str) -> Manifest:
    for manifest in manifests:
        if manifest.digest == record.data.digest:
            return manifest  # type: ignore[no-any-return]
    raise DataError(f"dataset {record.data.name!r} has other content here than when {study} was trained")
