"""Finished studies of made-up numbers, which no engine has trained and whose data is nowhere."""

import itertools
from dataclasses import asdict

import numpy as np

import contrasweep as cs
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.planning.grid import make_plan
from contrasweep.running.prepare import study_document
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Cause, Record, Status
from contrasweep.storage.records import StudyRecords, encode_items
from contrasweep.tracking.links import LINKS_FILE, Links

SHARDS = {"train": (Shard("a", 100, 1, "aa"),), "test": (Shard("b", 9, 1, "bb"),)}
ENDS = (None, Cause.METHOD, Cause.HOST_LOST, "pending")
A_STEP = {"step": 1, "time": 5.0}
SYSTEM_STEP = {"step": 2, "time": 7.0}


def train(trial, resume=None):
    yield


def nowhere(folds=5, kind="image", name="d", **fields):
    """A dataset of 100 rows that lie nowhere."""
    splits = {"train": SHARDS["train"]}
    return Manifest(name, "/nowhere", kind, splits, folds=Folds(folds) if folds else None, **fields)


def declared(plan, storage):
    """What a run does before it trains: the plan is the storage's. Returns it with the study's records."""
    records = StudyRecords(str(storage), plan.study.name)
    records.claim(study_document(plan))
    write_planned(records, plan.to_frame())
    return plan, records


def trained(plan, storage, value, **fields):
    """The same, and each trial has ended with the accuracy, or all metrics, that `value` says of it."""
    plan, records = declared(plan, storage)
    for trial in plan.trials:
        metrics = value(trial)
        metrics = metrics if isinstance(metrics, dict) else {"accuracy": metrics}
        records.write(Record.of(trial, status=Status.DONE, metrics=metrics, **fields))
    return plan, records


def made(
    folder,
    name,
    arms=("a", "b"),
    seeds=range(8),
    ends=(None,),
    items=False,
    folds=None,
    axes=(8,),
    **fields,
):
    """Write a study of made-up trials and return its plan.

    Equal settings give equal ids in all studies, and every value is the study's own. `ends` are what becomes of its
    trials in turn: done (None), pending, or failed by a cause.
    """
    data = Manifest("d", "/nowhere", "image", SHARDS, folds=Folds(folds) if folds else None)
    axes = {"batch_size": list(axes)} if len(axes) > 1 else {}
    fields = {"seeds": list(seeds), "folds": folds, "metric": "accuracy"} | fields
    grid = cs.AblationGrid(name, {arm: cs.Arm(train) for arm in arms}, "d", axes=axes, **fields)
    plan, records = declared(make_plan(grid, lambda _: data), folder)
    for trial, end in zip(plan.trials, itertools.cycle(ends), strict=False):
        if end == "pending":
            continue
        scores = np.random.default_rng([int(trial.id, 16), *name.encode()]).random(4)
        score = float(scores.mean())
        records.write_metrics(
            trial.id,
            [A_STEP | {"accuracy": score / 2}, {"step": 2, "time": 6.0, "accuracy": score}],
        )
        records.write_system(trial.id, [SYSTEM_STEP | {"gpu_memory_gib": score}])
        measured = {
            "seconds": 10 * score,
            "gpu_memory_gib": score,
            "started": 1.0,
            "ended": 2.0 + score,
        }
        if end is None:
            measured |= {
                "metrics": {"accuracy": score} | ({"even": score} if trial.seed % 2 == 0 else {})
            }
        if items:
            records.write_encoded_items(trial.id, encode_items({"accuracy": scores}))
            measured |= {"items": ("accuracy",)}
        status = Status.DONE if end is None else Status.FAILED
        records.write(
            Record.of(
                trial, status=status, cause=end, error=None if end is None else name, **measured
            )
        )
    runs = {trial.id: f"http://mlflow/{name}/{trial.id}" for trial in plan.trials}
    LINKS_FILE.write(records.store, f"{name}/mlflow.json", asdict(Links("http://mlflow", "", runs)))
    return plan
