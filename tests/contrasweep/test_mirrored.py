"""Where smaller values are better, everything that reads values says what it says of their mirror image."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up import made

import contrasweep as cs
from contrasweep.judging.judged import rank
from contrasweep.live.overview import overview
from contrasweep.live.state import ArmState, RunState
from contrasweep.planning.starts import Sources
from contrasweep.results.requirement import Requirement
from contrasweep.results.results import Results
from contrasweep.storage.checkpoints import Retention
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning import pruners

SCORES = np.random.default_rng(8).random((3, 8)).round(3)  # of three arms on eight seeds
SCORES += [[0.0], [0.05], [0.4]]


def test_the_best_of_a_study_is_the_best_of_its_mirror_image(tmp_path, storage):
    plan = made(tmp_path, "max", axes=(4, 8, 16))
    found = []
    made(tmp_path, "min", mode="min", axes=(4, 8, 16))
    stored = {mode: StudyRecords(storage, mode) for mode in ("max", "min")}
    for record in stored["max"].read(stored["max"].finished()).values():
        mirrored = {name: 1 - value for name, value in record.metrics.items()}
        stored["min"].write(replace(record, study="min", metrics=mirrored))
    for mode, records in stored.items():
        results = Results.load(mode, storage)
        start = cs.Start(mode, "a", trial="best")
        shown = overview(records, records.document())
        source = Sources(storage).of(start, plan.table_datasets[0], None, 0, {})
        found.append(
            (
                shown.best_arm,
                source.id,
                *(results.best_trial(arm).trial_id for arm in "ab"),
                *results.best()["batch_size"],
            )
        )
    assert found[0] == found[1]


def frame(values):
    rows = [("abc"[arm], seed) for arm in range(3) for seed in range(8)]
    return pd.DataFrame(rows, columns=["arm", "seed"]).assign(score=values.ravel())


def judged(mode, values):
    runs = frame(values)
    roles = {"metric": "score", "mode": mode}
    found = cs.judge(runs, reference="b", **roles)
    wanted = ("better", "not-worse:0.1", "not-worse:0.4", "equivalent:0.2")
    return (
        [(p.a, p.b, p.comparison.decision) for p in found.pairs],
        [found.required(Requirement.parse(text)) for text in wanted],
        [(row.arm, row.low, row.high) for row in rank(runs, **roles).rows],
    )


def best_so_far(mode, values):
    state = RunState("s", "score", mode, "", None, {}, 1.0, 0.0)
    kept = Retention("best", "score", mode)
    for arm, scores in enumerate(values):
        state.arms[f"{arm}"] = ArmState()
        for seed, value in enumerate(scores):
            state.arms[f"{arm}"].score(value, f"{seed}", mode)
    best, at = state.best
    return (
        best,
        at.best_where,
        int(np.argmax([kept.score({"score": value}) for value in values.ravel()])),
    )


def stopped(mode, values):
    rules = [pruners.build(name, mode=mode, budget=24) for name in pruners.PRUNERS]
    trials = [(f"{i}", i) for i in range(8)]
    for rule in rules:
        for trial, number in trials:
            rule.add(trial, number, 0)
    return [
        rule.on_report(t, step, values[step - 1, i])
        for rule in rules
        for step in (1, 2, 3)
        for t, i in trials
    ]


@pytest.mark.parametrize("reader", [judged, best_so_far, stopped])
def test_values_are_read_as_their_mirror_image(reader):
    assert reader("min", 2 - SCORES) == reader("max", SCORES)
