"""Studies whose trials have the same ids and other values: joined, each shows its own numbers, however it is asked."""

import itertools
import json
import tempfile
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from command_line import contrasweep
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import contrasweep as cs
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.planning.grid import make_plan
from contrasweep.report import FORMATS, render, report_data, write_report
from contrasweep.results.items import by_item
from contrasweep.running.prepare import study_document
from contrasweep.storage.code_files import write_code
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Cause, CodeRef, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.links import LINKS_FILE, Links

SHARDS = {"train": (Shard("a", 100, 1, "aa"),), "test": (Shard("b", 9, 1, "bb"),)}
ENDS = (None, Cause.METHOD, Cause.HOST_LOST, "pending")
STUDIES = st.lists(
    st.fixed_dictionaries(
        {
            "arms": st.sets(st.sampled_from("abc"), min_size=1).map(sorted),
            "seeds": st.sets(st.integers(0, 4), min_size=1, max_size=4).map(sorted),
            "ends": st.lists(st.sampled_from(ENDS), min_size=1, max_size=5),
            "items": st.booleans(),
        }
    ),
    min_size=2,
    max_size=3,
)
A_STEP, SYSTEM_STEP = {"step": 1, "time": 5.0}, {"step": 2, "time": 7.0}


def train(trial, resume=None):
    yield


def made(folder, name, arms=("a", "b"), seeds=range(8), ends=(None,), items=False, folds=None, axes=(8,), **fields):
    """Write a study of made-up trials: equal settings give equal ids in all studies, and every value is the study's."""
    data = Manifest("d", "/nowhere", "image", SHARDS, folds=Folds(folds) if folds else None)
    axes = {"batch_size": list(axes)} if len(axes) > 1 else {}
    fields = {"seeds": list(seeds), "folds": folds, "metric": "accuracy"} | fields
    grid = cs.AblationGrid(name, {arm: cs.Arm(train) for arm in arms}, "d", axes=axes, **fields)
    plan, records = make_plan(grid, lambda _: data), StudyRecords(folder, name)
    records.claim(study_document(plan))
    write_planned(records, plan.to_frame())
    for trial, end in zip(plan.trials, itertools.cycle(ends), strict=False):
        if end == "pending":
            continue
        rng = np.random.default_rng([int(trial.id, 16), *name.encode()])
        scores = rng.random(4)
        score = float(scores.mean())
        records.write_metrics(trial.id, [A_STEP | {"accuracy": score / 2}, {"step": 2, "time": 6.0, "accuracy": score}])
        records.write_system(trial.id, [SYSTEM_STEP | {"gpu_memory_gib": score}])
        measured = {"seconds": 10 * score, "gpu_memory_gib": score, "started": 1.0, "ended": 2.0 + score}
        if end is None:
            measured |= {"metrics": {"accuracy": score}}
        if items:
            records.write_items(trial.id, {"accuracy": scores})
            measured |= {"items": ("accuracy",)}
        status = Status.DONE if end is None else Status.FAILED
        records.write(Record.of(trial, status=status, cause=end, error=None if end is None else name, **measured))
    runs = {trial.id: f"http://mlflow/{name}/{trial.id}" for trial in plan.trials}
    LINKS_FILE.write(records.store, f"{name}/mlflow.json", asdict(Links("http://mlflow", "", runs)))
    return plan


def split(trial_id):
    study, _, own = trial_id.partition("/")
    return study, own


def equal(one, other):
    """Whether two frames have the same rows, in any order; a column without a value may be missing."""
    one, other = (frame.dropna(axis="columns", how="all") for frame in (one, other))
    columns = sorted(one.columns)
    assert columns == sorted(other.columns)

    def rows(frame):
        return sorted(frame[columns].astype("object").map(repr).to_numpy().tolist())

    return rows(one) == rows(other)


@pytest.mark.long
@settings(max_examples=40, deadline=None, phases=[Phase.generate])  # an example takes too long to be made smaller
@given(STUDIES, st.sampled_from([None, 3]), st.sampled_from([(8,), (8, 16)]))
def test_every_number_of_joined_studies_is_that_of_its_part(declared, folds, axes):
    with tempfile.TemporaryDirectory() as folder:
        names = [f"s{i}" for i in range(len(declared))]
        for name, fields in zip(names, declared, strict=True):
            made(folder, name, folds=folds, axes=axes, **fields)
        parts = {name: cs.load(name, storage=folder) for name in names}
        for order in (names, names[::-1]):
            _check(cs.load(order, storage=folder), parts, folds)


def _check(joined, parts, folds):
    frame, axes = joined.to_frame(), joined.axes
    assert len(frame) == len(set(frame["trial_id"])) == sum(len(part.planned) for part in parts.values())
    curves, system = joined.curves(), joined.system()
    for name, part in parts.items():
        of_part = part.to_frame()
        named = of_part.assign(trial_id=f"{name}/" + of_part["trial_id"], arm=f"{name}/" + of_part["arm"])
        mine = frame[frame["trial_id"].str.startswith(f"{name}/")]
        assert equal(mine, named)
        for whole, own in ((curves, part.curves()), (system, part.system())):
            ids = whole["trial_id"].astype(str)
            assert equal(
                whole[ids.str.startswith(f"{name}/")], own.assign(trial_id=f"{name}/" + own["trial_id"].astype(str))
            )
        assert equal(
            joined.curves([mine["trial_id"].iloc[0]]).drop(columns="trial_id"),
            part.curves([of_part["trial_id"].iloc[0]]).drop(columns="trial_id"),
        )
        for trial, record in part.trial_records.items():
            theirs = joined.trial_records[f"{name}/{trial}"]
            assert (theirs.study, theirs.trial_id, theirs.arm) == (name, trial, f"{name}/{record.arm}")
            assert (theirs.metrics, theirs.error, theirs.ended) == (record.metrics, record.error, record.ended)
            assert joined.etags[f"{name}/{trial}"] == part.etags[trial]
            assert {k: list(v) for k, v in joined.items(f"{name}/{trial}").items()} == {
                k: list(v) for k, v in part.items(trial).items()
            }
        _check_tables(joined, name, part)
    done = joined.frame.groupby("arm")["status"].agg(lambda statuses: set(statuses) == {"done"})
    of_arm = {arm: rows.set_index([*axes, "fold", "seed"])["accuracy"] for arm, rows in frame.groupby("arm")}
    for pair in joined.table([*axes, "arm"], []).pairs:
        a, b = (of_arm[arm] for arm in (pair.a, pair.b))
        at = {axis: int(value) for axis, value in pair.context}
        if done[pair.a] and done[pair.b]:
            apart = (a - b).dropna()
            apart = apart.xs(at["batch_size"], level="batch_size") if at else apart
            assert pair.comparison.difference == pytest.approx(apart.mean())


def _check_tables(joined, name, part):
    for rows, columns in ((["arm"], []), ([*joined.axes], ["arm"])):
        if not rows:
            continue
        whole, own = joined.table(rows, columns), part.table(rows, columns)
        for (row, column), cell in own.cells.items():
            place = (row, (f"{name}/{column[0]}",)) if columns else ((f"{name}/{row[0]}",), column)
            theirs = whole.cells[place]
            for field in ("mean", "n", "least", "most", "statuses", "deviation"):
                assert getattr(theirs, field) == pytest.approx(getattr(cell, field)), (place, field)
            told = {(r.trial_id, r.status, r.value, r.url) for r in theirs.replicates}
            assert told == {(f"{name}/{r.trial_id}", r.status, r.value, r.url) for r in cell.replicates}
    by_study = joined.table("study", "arm") if not joined.axes else None
    for (row, column), cell in (by_study.cells if by_study else {}).items():
        if row == (name,):
            assert cell.mean == pytest.approx(part.table(["arm"], []).cells[column, ()].mean)
