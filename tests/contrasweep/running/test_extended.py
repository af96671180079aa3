"""`run SWEEP --extend` trains what is new, comes to what the larger sweep comes to, and counts a look only then."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import valued
from counting_trial import finish

from contrasweep import Arm, ContrasweepError, Float, Replicates, Sweep
from contrasweep.cluster.packing import Footprint
from contrasweep.code import CurrentCode
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.driver import run
from contrasweep.running.engine.interim_source import InterimSource
from contrasweep.running.prepare import prepare
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.record import CodeRef, Phase
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import ArmBudget
from contrasweep.tuning.source import NextTrial

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("running"),
    pytest.mark.usefixtures("ray_core"),
]


def arm(low, high):
    return Arm("valued:train", space={"lr": Float(low, high)})


def declared(**fields):
    base = {
        "name": "grown",
        "arms": {"near": arm(0.2, 0.5), "far": arm(3.0, 5.0)},
        "data": "digits-lt",
        "folds": 3,
        "trials_per_arm": 2,
        "confirm_seeds": [100, 101],
        "searcher": "random",
    }
    return Sweep(**base | fields)


GROWING = {"replicates": Replicates(first=4, step=4, most=8), "folds": 5}
"""What is decided at its first look needs no second one. One of the five folds is the search's; of three folds two are
left, which decide hardly anything."""
EPOCHS = {"trials_per_arm": None, "budget": ArmBudget(epochs=3)}
KINDS: dict[str, tuple[dict[str, Any], Callable[[Sweep], dict[str, Any]], int]] = {
    "arm": ({}, lambda s: {"arms": s.arms | {"third": s.arms["far"]}}, 0),
    "seeds": ({}, lambda s: {"confirm_seeds": [100, 101, 102]}, 1),
    "trials": ({}, lambda s: {"trials_per_arm": 4}, 0),
    "epochs": (EPOCHS, lambda s: {"budget": ArmBudget(epochs=6)}, 0),
    "arm, looked at": (
        GROWING,
        lambda s: {"arms": s.arms | {"third": s.arms["far"]}},
        0,
    ),
    "trials, looked at": (GROWING, lambda s: {"trials_per_arm": 4}, 0),
}
"""By what grows: fields of the sweep, what is declared instead of them, and looks that this counts."""


def begun(study, storage, *, extend=False):
    planned = plan(study, storage=str(storage))
    records = StudyRecords(str(storage), study.name)
    code = CurrentCode(planned.study.functions)
    prepared = prepare(planned, records, code, extend=extend, retry_failed=False)
    source = planned.source(records, prepared.finished)
    if study.replicates:
        source = InterimSource(planned, source, records, lambda _: None)
    return prepared, source, records, code


def interrupted(study, storage, *, extend=False):
    """What a run leaves that is interrupted before its first trial has reported."""
    prepared, source, _, _ = begun(study, storage, extend=extend)
    assert not prepared.complete and isinstance(source.next(), NextTrial)


def looks(storage):
    log = read_looks(StudyRecords(str(storage), "grown"))
    return 0 if log is None or log.spending != "extended" else len(log.looks)


def trained(results):
    """Of every trial of search and table, what became of it."""
    everything = {**results.trial_records, **results.search_records}
    return {i: (str(record.status), record.metrics["accuracy"]) for i, record in everything.items()}


def from_scratch(study, storage):
    """What a study comes to in an empty storage, each trial trained in this process."""
    _, source, records, code = begun(study, storage)
    while isinstance(answer := source.next(), NextTrial):
        version = code.of(answer.trial.trainable, answer.trial.config).version
        options = {"metric": study.metric, "notes": answer.notes, "code": CodeRef(version.digest)}
        source.done(finish(Execution(answer.trial, valued.train, records, **options)))
    return Results.load(study.name, str(storage))


def table(results):
    columns = ["trial_id", "arm", "fold", "seed", "status", "accuracy"]
    return sorted(map(tuple, results.to_frame()[columns].to_numpy().tolist()))


@pytest.mark.parametrize(("kind", "ctrl_c"), [(kind, kind != "arm") for kind in KINDS])
def test_an_extended_sweep_comes_to_what_the_larger_sweep_comes_to(tmp_path, capsys, kind, ctrl_c):
    fields, more, counted = KINDS[kind]
    grown = tmp_path / "grown"
    small = declared(**fields)
    large = dataclasses.replace(small, **more(small))
    if ctrl_c:
        interrupted(small, grown)
    first = run(small, storage=str(grown), tracking=None)
    assert first.complete and looks(grown) == 0
    if ctrl_c:
        interrupted(large, grown, extend=True)
        second = run(large, storage=str(grown), tracking=None)
    else:
        second = run(large, storage=str(grown), tracking=None, extend=True)
    assert second.complete and len(trained(second)) > len(trained(first))
    assert trained(first).items() <= trained(second).items(), "nothing is trained twice"
    assert looks(grown) == counted
    whole = from_scratch(large, tmp_path / "whole")
    if (
        "looked at" not in kind
    ):  # there, which arm gets how many replicates follows from the order of looks
        assert table(second) == table(whole)
    assert {i for i, r in whole.search_records.items() if r.notes.phase is Phase.SEARCH} <= trained(
        second
    ).keys()
    capsys.readouterr()
    again = run(large, storage=str(grown), tracking=None, extend=True)
    assert "nothing to train: " in capsys.readouterr().err
    assert table(again) == table(second) and looks(grown) == counted


def test_more_gpu_hours_are_spent(storage):
    def study(hours):
        return declared(trials_per_arm=None, budget=ArmBudget(trials=6, gpu_hours=hours))

    def searched(results):
        return sum(record.notes.phase is Phase.SEARCH for record in results.search_records.values())

    assert searched(run(study(1e-9), storage=storage, tracking=None)) < 12
    assert searched(run(study(1.0), storage=storage, tracking=None, extend=True)) == 12


def test_an_extension_that_trained_nothing_counts_no_look_once_it_is_withdrawn(tmp_path, storage):
    small = declared()
    run(small, storage=storage, tracking=None)
    interrupted(dataclasses.replace(small, confirm_seeds=[100, 101, 102]), tmp_path, extend=True)
    assert looks(tmp_path) == 1
    results = run(small, storage=storage, tracking=None, extend=True)
    assert looks(tmp_path) == 0 and results.complete


def test_an_extension_that_is_refused_changes_no_declaration(tmp_path, storage):
    small = declared()
    run(small, storage=storage, tracking=None)
    folder = tmp_path / "grown"
    before = {file: file.read_bytes() for file in folder.glob("*.*") if file.name != "live.json"}
    large = dataclasses.replace(small, confirm_seeds=[100, 101, 102])
    vast = {
        a: dataclasses.replace(one, resources=Footprint(host_memory_gib=1e6))
        for a, one in large.arms.items()
    }
    candidate = next(folder.glob("search/*/*.json"))
    whole = candidate.read_text()
    for content, study, says in (
        (whole.replace('"lr"', '"rate"'), large, "is broken"),
        (whole, dataclasses.replace(large, arms=vast), "must fit one host"),
    ):
        candidate.write_text(content)
        with pytest.raises(ContrasweepError, match=says):
            run(study, storage=storage, tracking=None, extend=True)
        assert {
            file: file.read_bytes() for file in folder.glob("*.*") if file.name != "live.json"
        } == before
    assert Results.load("grown", storage).complete
