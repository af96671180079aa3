"""Sweeps: what is refused, what is planned, and searches through real Ray that are interrupted and go on."""

import dataclasses
import math
import sys
import tempfile
import types
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_up import nowhere
from refusals import refused
from sweeps import ARMS, drive, finished, record_of, step_by_step, sweep, value_of

from contrasweep import Arm, Float, SpecError
from contrasweep.data.manifest import Folds, Shard
from contrasweep.errors import BrokenFileError
from contrasweep.planning.planner import plan
from contrasweep.planning.sweep import make_sweep_plan
from contrasweep.reporting.trials import trials_of_sweep
from contrasweep.results.search import start_notes
from contrasweep.running.prepare import study_document
from contrasweep.storage.record import Phase
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import LogEntry
from contrasweep.study.base import NO_RESULT, StudyBase
from contrasweep.study.trainables import SettingsOfArms
from contrasweep.tuning.design import SweepDesign
from contrasweep.tuning.source import Finished
from contrasweep.tuning.sweep_source import CANDIDATE_FILE, SweepSource


def test_every_arm_gets_the_same_budget_in_turns(tmp_path):
    ended, confirmed = drive(sweep(), tmp_path)
    searched = [trial.arm for trial, notes in ended if notes.phase == "search"]
    assert [list(c.best) for c in confirmed] == [["short"], ["short", "long"]]
    assert searched == ["short", "long"] * 5
    assert [(t.fold, t.seed) for t, _ in ended[:10]] == [(0, 0)] * 10
    rest = [(t.arm, t.fold, t.seed) for t, notes in ended[10:] if notes.phase == "confirm"]
    assert sorted(rest) == [(arm, fold, 1000) for arm in ("long", "short") for fold in (1, 2)]
    best = max((t for t, n in ended[:10] if t.arm == "long"), key=value_of)
    assert confirmed[-1].best["long"] == best.config


def test_a_candidate_that_is_not_of_its_space_is_a_broken_file(tmp_path, storage):
    drive(sweep(), tmp_path, stop_after=3)
    key = f"toy-sweep/search/{plan(sweep()).search_digest('long')}/000000.json"
    store = StudyRecords(storage, "toy-sweep").store
    for forged in ({"lr": 99.0}, {"epochs": 3}):
        CANDIDATE_FILE.write(store, key, {"config": forged})
        with refused(BrokenFileError, f"{next(iter(forged))} is not in the arm's space"):
            drive(sweep(), tmp_path)


def test_a_search_has_the_dev_split_in_the_place_of_the_test_split():
    shards = {name: (Shard(name, 9, 1, "aa"),) for name in ("train", "dev", "test")}
    for folds, tested in ((None, shards["dev"]), (3, None)):
        data = dataclasses.replace(nowhere(), splits=shards, folds=folds and Folds(folds))
        study = sweep(folds=folds)
        design = SweepDesign(study, data, SettingsOfArms(study.arms))
        for trial in [*design.search_trials("long", {"lr": 0.1}), *design.examples("long")]:
            assert trial.data.splits.get("test") == tested
        assert design.trial("long", {"lr": 0.1}, design.data, None, 0).data.splits == shards


@pytest.mark.parametrize(
    ("splits", "fields", "says"),
    [
        ("train test", {"folds": None}, "folds: a search must not look at the test split"),
        ("train dev", {"folds": None}, "confirm_on: there is no test split to confirm on"),
        ("train dev", {"confirm_on": "test"}, "confirm_on: there is no test split to confirm on"),
        ("train test", {"folds": 10}, "folds: "),
    ],
)
def test_a_sweep_on_data_without_the_rows_that_it_needs_is_refused(splits, fields, says):
    shards = {name: (Shard(name, 9, 1, "aa"),) for name in splits.split()}
    with refused(SpecError, begins=says):
        make_sweep_plan(sweep(**fields), lambda name: dataclasses.replace(nowhere(), splits=shards))


@pytest.mark.parametrize("searcher", ["tpe", "cmaes", "nsga2", "quasi-random"])
def test_an_interrupted_search_goes_on_as_if_it_were_not(tmp_path, searcher):
    study = sweep(searcher=searcher, trials_per_arm=12)
    calm, _ = drive(study, tmp_path / "calm")
    first, _ = drive(study, tmp_path / "shaken", stop_after=9)
    second, _ = drive(study, tmp_path / "shaken")
    assert len(first) + len(second) == len(calm)
    assert not {t.id for t, _ in first} & {t.id for t, _ in second}
    if searcher in ("tpe", "quasi-random"):
        assert {t.id for t, _ in first} | {t.id for t, _ in second} == {t.id for t, _ in calm}


STARTS = [{"lr": 0.1}, {"lr": 0.7}]


@pytest.mark.parametrize("searcher", ["tpe", "random", "cmaes", "grid", "hunters:Hunter"])
def test_start_points_are_tried_first_and_once_within_the_budget(tmp_path, searcher, own_searcher):
    arms = {**ARMS, "long": dataclasses.replace(ARMS["long"], start_points=STARTS)}
    study = sweep(arms=arms, searcher=searcher, trials_per_arm=6)
    first, _ = drive(study, tmp_path, stop_after=3)
    second, _ = drive(study, tmp_path)
    tried = [
        t.config["lr"]
        for t, notes in [*first, *second]
        if t.arm == "long" and notes.phase == "search"
    ]
    assert tried[:2] == [0.1, 0.7] and len(tried) == 6 and len(set(tried)) == 6
    if searcher == "grid":  # of what the budget leaves, to its end
        assert tried[-1] == max(tried)
    (note,) = start_notes(study_document(plan(study)))
    assert "start points: short 0, long 2" in note
    document = study_document(plan(sweep()))
    assert not start_notes(document)
    # Extended by another space of one arm, and by the other arm.
    before = {"long": {**document.spec["arms"]["long"], "space": {}}}
    log = (LogEntry(1.0, spec=document.spec | {"arms": before}), LogEntry(2.0, spec=document.spec))
    (note,) = start_notes(dataclasses.replace(document, log=log))
    assert note.startswith("the search of long was another before")
    other = document.spec | {"searcher": "random"}
    for spec, said in (
        (other, ["the search of short, long was"]),
        (other | {"search_seed": 7}, []),
    ):
        notes = start_notes(dataclasses.replace(document, log=(LogEntry(1.0, spec=spec),)))
        assert [note[:29] for note in notes] == said


def test_a_search_with_start_points_is_another_search_than_without():
    arms = {**ARMS, "long": dataclasses.replace(ARMS["long"], start_points=STARTS)}
    one, other = (plan(sweep(**fields)) for fields in ({}, {"arms": arms}))
    assert one.search_digest("short") == other.search_digest("short")
    assert one.search_digest("long") != other.search_digest("long")


def test_a_field_of_every_study_is_of_its_question_or_changes_no_result():
    """A field that is neither named here nor in `NO_RESULT` would make another study of every Sweep that has run."""
    shared = {field.name for field in dataclasses.fields(StudyBase)}
    asked = "alpha arms data folds metric mode reference replicates"
    assert " ".join(sorted(shared - set(NO_RESULT))) == asked
    assert set(NO_RESULT) <= shared
    asked = plan(sweep()).digest
    assert plan(sweep(alpha=0.1)).digest != asked
    for field, value in {"report_minutes": 3.0, "keep": "all", "description": "another"}.items():
        assert plan(sweep(**{field: value})).digest == asked, field


@pytest.fixture
def own_searcher(monkeypatch):
    """A searcher of somebody else's, which asks for the same place again and again."""

    class Hunter:
        def __init__(self, problem):
            self.asked = 0

        def ask(self):
            self.asked += 1
            return {"lr": 0.2 + self.asked / 100}

        def tell(self, config, value, steps=None):
            pass

        def replay(self, config):
            self.asked += 1

    module = types.ModuleType("hunters")
    module.Hunter = Hunter
    module.Lost = type("Lost", (Hunter,), {"ask": lambda self: None})
    monkeypatch.setitem(sys.modules, "hunters", module)


SCHEDULES = {
    "asha": {"reduction": 2},
    "median": {"min_trials": 2},
    "halving": {"reduction": 2, "bracket": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pruner", "slots"), [*((name, None) for name in SCHEDULES), ("halving", 4)]
)
@pytest.mark.parametrize("trainable", ["toy:train", "toy:coarse"])
@pytest.mark.parametrize("kill", [9, 26])
def test_early_stopping_outlives_the_driver(tmp_path, pruner, slots, trainable, kill):
    """Killed at any point, the search goes on from where each trial was: every step is trained once, no trial that was
    stopped goes on but by promotion, and rules that wait for all peers end exactly as without the kill. So it is, too,
    where configurations come to the same trials."""
    arms = {"long": dataclasses.replace(ARMS["long"], trainable=trainable, config={"epochs": 8})}
    study = sweep(
        arms=arms,
        searcher="random",
        pruner=pruner,
        pruner_options=SCHEDULES[pruner],
        trials_per_arm=10,
        search_folds=[0, 1],
        slots=slots,
    )
    calm = step_by_step(study, tmp_path / "calm")
    first = step_by_step(study, tmp_path / "shaken", stop_after=kill)
    second = step_by_step(study, tmp_path / "shaken")
    assert len({*first, *second}) == len(first) + len(second)
    assert {trial for trial, _ in [*first, *second]} == {trial for trial, _ in calm}
    assert len(calm) < 10 * 2 * 8
    restored = SweepSource(
        plan(study, storage=str(tmp_path)), StudyRecords(str(tmp_path / "calm"), study.name), print
    )
    assert restored.searches["long"].over
    if pruner == "halving":
        assert sorted([*first, *second]) == sorted(calm)


def test_a_search_whose_settings_come_to_few_trials_ends_below_its_budget(tmp_path):
    arms = {"long": dataclasses.replace(ARMS["long"], trainable="toy:coarse")}
    budget = {"epochs": 10**6}
    study = sweep(arms=arms, searcher="random", trials_per_arm=None, budget=budget)
    ended, _ = drive(study, tmp_path)
    searched = [trial.id for trial, notes in ended if notes.phase == "search"]
    assert 1 < len(set(searched)) == len(searched) <= 28


def test_a_configuration_is_judged_by_the_mean_over_its_folds(tmp_path):
    ended, confirmed = drive(sweep(search_folds=[0, 2]), tmp_path)
    searched = [t for t, notes in ended if notes.phase == "search" and t.arm == "short"]
    assert [t.fold for t in searched] == [0, 2] * 5
    assert confirmed[-1].best["short"] == max(searched, key=value_of).config


def test_failed_trials_are_never_the_best(tmp_path):
    ended, confirmed = drive(
        sweep(),
        tmp_path,
        statuses=lambda t: "failed" if t.config["lr"] < 0.3 and t.seed == 0 else "done",
    )
    assert all(config["lr"] >= 0.3 for config in confirmed[-1].best.values())
    ended, confirmed = drive(sweep(), tmp_path / "none", statuses=lambda t: "failed")
    assert confirmed[-1].best == {} and len(ended) == 10


@pytest.mark.parametrize("values", [(1.79e308, 1.79e308), (math.inf, -math.inf)])
def test_values_without_a_mean_are_those_of_a_failed_configuration(tmp_path, values):
    def record(trial, notes, status):
        value = value_of(trial) if trial.config["lr"] < 0.3 else values[trial.fold // 2]
        return record_of(trial, notes, status, metrics={"accuracy": value})

    results, _ = finished(sweep(search_folds=[0, 2]), tmp_path, record=record)
    assert results.search["value"].isna().any()
    for best in results.best_settings:
        assert best.settings["lr"] < 0.3 and best.searched < 2


@pytest.mark.parametrize(
    ("failing", "says", "searcher"),
    [
        ((0, 2), "no trial of its search was trained to its end (10 failed)", "random"),
        ((2,), "no configuration was trained to its end on all search folds", "random"),
        ((), "no trial of its search was trained to its end (there was none)", "hunters:Lost"),
    ],
)
def test_an_arm_without_a_best_says_why(tmp_path, storage, own_searcher, failing, says, searcher):
    study = sweep(arms={"short": ARMS["short"]}, search_folds=[0, 2], searcher=searcher)
    drive(study, tmp_path, statuses=lambda t: "failed" if t.fold in failing else "done")
    planned = plan(study, storage=storage)
    records = StudyRecords(storage, study.name)
    source = planned.source(records, records.finished())
    source.next()
    (warning,) = source.warnings()
    assert warning == f"arm short: {says}; nothing to confirm"


def test_an_arm_is_confirmed_while_others_still_search(storage):
    """With every trial of the other arm still running, a free place gets the confirmation, not nothing."""
    study = sweep(trials_per_arm=1)
    records = StudyRecords(storage, "toy-sweep")
    source = SweepSource(plan(study, storage=storage), records, lambda _: None)
    short = source.next()
    long = source.next()
    assert source.next() is None
    source.done(record_of(short.trial, short.notes))
    assert [source.next().trial.arm for _ in range(2)] == ["short"] * 2
    assert source.next() is None and not source.finished
    source.done(record_of(long.trial, long.notes))
    assert [source.next().notes.phase for _ in range(2)] == ["confirm"] * 2
    assert isinstance(source.next(), Finished)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"search_seed": 2**63}, "search_seed: input should be less than or equal to"),
        # What a sampler reads after its first random configurations, and what it does with their outcomes.
        ({"searcher_options": {"n_ei_candidates": 0}}, "searcher: TPESampler fails; ValueError"),
        ({"searcher_options": {"constraints_func": 3}}, "searcher: TPESampler fails; TypeError"),
    ],
)
def test_a_wrong_sweep_is_refused_before_anything_is_spent(storage, fields, says):
    with refused(SpecError, says):
        plan(sweep(**fields), storage=storage)


def test_a_report_lists_every_trial_of_a_sweep_with_its_settings(tmp_path):
    """Those of the confirmation too, and a setting is not taken for a metric of the same name."""

    def record(trial, notes, status):
        metrics = {
            "accuracy": value_of(trial),
            "lr": 0.0,
            "fold": 9.0,
            "seconds": 9.0,
            "phase": 9.0,
        }
        return record_of(trial, notes, status, metrics=metrics)

    results, trials = finished(sweep(), tmp_path, record=record)
    listed = trials_of_sweep(results)
    assert listed is not None and list(listed.columns[:2]) == ["phase", "lr"]
    assert listed["phase"].value_counts().to_dict() == {"search": 10, "confirmation": 4}
    shown = dict(zip(listed["trial_id"], listed["lr"], strict=True))
    assert shown == {trial.id: trial.config["lr"] for trial in trials}
    shown = dict(zip(listed["trial_id"], listed["fold"], strict=True))
    assert shown == {trial.id: trial.fold for trial in trials}
    assert 9 not in list(listed["seconds"]) and set(listed["metric.seconds"]) == {9.0}


@pytest.mark.slow
@settings(max_examples=12)
@given(
    low=st.sampled_from(["0", "0.1", "0.2"]),
    step=st.sampled_from(["0.001", "0.01", "0.03", "0.1", "0.25"]),
    count=st.integers(1, 6),
    searcher=st.sampled_from(["tpe", "grid", "random", "quasi-random", "cmaes"]),
    stopped=st.integers(1, 5),
)
@example(low="0.1", step="0.1", count=2, searcher="grid", stopped=3)
def test_a_search_in_steps_is_resumed_and_extended(low, step, count, searcher, stopped):
    """Every value of the range is tried, over an interruption and an extension."""
    high = float(Decimal(low) + count * Decimal(step))
    arms = {
        "only": Arm(
            "toy:train",
            config={"epochs": 2},
            space={"lr": Float(float(low), high, step=float(step))},
        )
    }
    with tempfile.TemporaryDirectory() as storage:
        study = sweep(arms=arms, searcher=searcher, trials_per_arm=count + 1)
        drive(study, storage, stop_after=stopped)
        drive(study, storage)
        drive(dataclasses.replace(study, confirm_seeds=[1000, 1001]), storage)
        records = StudyRecords(storage, study.name)
        searched = [
            r.config["lr"]
            for r in records.read(records.finished()).values()
            if r.notes.phase is Phase.SEARCH
        ]
        assert sorted(searched) == [
            float(Decimal(low) + i * Decimal(step)) for i in range(count + 1)
        ]
