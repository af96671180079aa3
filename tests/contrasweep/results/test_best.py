"""Each arm's best settings: those that were confirmed, with their scores; and a study that runs them again."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import yaml
from made_up import declared, train, trained
from refusals import refused
from sweeps import ARMS, drive, finished, record_of, sweep, value_of

import contrasweep as cs
from contrasweep.reporting import render
from contrasweep.reporting.trials import trials_of_sweep
from contrasweep.results.search import rerun, search_frame
from contrasweep.running.prepare import study_document
from contrasweep.storage.record import Status


@pytest.mark.parametrize("search_folds", [None, [0, 2]])
def test_the_best_of_a_search_is_what_was_confirmed_with_both_scores(tmp_path, search_folds):
    results, trials = finished(sweep(search_folds=search_folds), tmp_path)
    best = results.best().set_index("arm")
    for arm in ARMS:
        searched = defaultdict(list)
        for t in (t for t in trials if t.arm == arm and t.seed != 1000):
            searched[t.config["lr"]].append(value_of(t))
        confirmed = [t for t in trials if t.arm == arm and t.seed == 1000]
        assert best.loc[arm, "lr"] == confirmed[0].config["lr"]
        assert best.loc[arm, "searched"] == pytest.approx(max(map(np.mean, searched.values())))
        assert best.loc[arm, "mean"] == pytest.approx(np.mean([value_of(t) for t in confirmed]))
        assert best.loc[arm, "configurations"] == len(searched)
        assert best.loc[arm, "n"] == len(confirmed)


def test_trials_of_a_search_with_another_seed_are_of_no_configuration(tmp_path):
    """The study was extended by another seed of its search, which comes to the same configurations."""
    study = sweep(
        searcher="random",
        arms={"short": replace(ARMS["short"], space={"lr": cs.Choice([0.1, 0.2, 0.3, 0.4, 0.5])})},
    )
    drive(replace(study, confirm_seeds=[7]), tmp_path)
    again = replace(study, search_seed=4, search_folds=[0])
    results, trials = finished(again, tmp_path)
    searched = [t for t in trials if t.seed == 4]
    assert len(searched) == 5 and sorted(results.search["value"]) == sorted(map(value_of, searched))
    assert results.spent()["short"].startswith("5 of 5 configurations, 20 epochs")
    planned = cs.plan(again, storage=str(tmp_path))
    assert planned.totals(results.all_records)["ended"] == 5 + 2
    phases = trials_of_sweep(results)["phase"].value_counts()
    assert dict(phases) == {"search": 10, "confirmation": 4}


def test_a_configuration_has_failed_where_one_of_its_folds_has(tmp_path):
    results, _ = finished(sweep(search_folds=[0, 2]), tmp_path)
    records = list(results.search_records.values())
    for bad in records:
        frame = search_frame(
            [replace(r, status=Status.FAILED) if r is bad else r for r in records], results.document
        )
        assert list(frame["status"]).count("failed") == 1 and 2 * len(frame) == len(records)


def test_a_configuration_that_lacks_a_fold_is_still_to_run_and_no_best(tmp_path):
    results, trials = finished(sweep(search_folds=[0, 2]), tmp_path, stop_after=3)
    half = results.search.set_index("arm").loc[trials[1].arm]
    assert half["status"] == "pending" and np.isnan(half["value"])
    assert [best.arm for best in results.best_settings] == [trials[0].arm]


def test_none_and_whole_numbers_that_others_lack_are_values_of_their_settings(tmp_path):
    def record(trial, notes, status):
        score = float(trial.config["once"] is None) + int(trial.id[:4], 16) / 1e6
        return record_of(trial, notes, status, metrics={"accuracy": score})

    space = {"lr": cs.Float(0.1, 1.0), "once": cs.Choice([None, "x"])}
    space["k"] = cs.Int(1, 3, when={"once": "x"})
    study = sweep(
        arms={"a": cs.Arm("made_up:train", space=space)}, searcher="random", trials_per_arm=40
    )
    results, _ = finished(study, tmp_path, record=record)
    assert {*results.search["once"]} == {None, "x"}
    importance = results.importance().set_index("setting")
    assert importance.loc["once", "share"] > 0
    assert set(importance["configurations"]) == {40}, "with and without the whole number"


def test_yaml_is_a_study_of_the_confirmed_settings_on_fresh_seeds(tmp_path):
    """On the study's own seeds the settings have a score already, on the searched fold one that is too good."""
    study = sweep(
        arms={**ARMS, "more": cs.Arm("toy:train", space={"epochs": cs.Int(2, 3)})},
        search_seed=1001,
        labels={"more": "More epochs"},
    )
    results, trials = finished(study, tmp_path)
    file = tmp_path / "best.yaml"
    file.write_bytes(render(results, "yaml"))
    assert (
        "# The settings were chosen on fold 0, where scores are too good by the choice."
        in file.read_text()
    )
    again = cs.plan(file, storage=str(tmp_path))
    assert again.study.labels == study.labels
    confirmed = {(t.arm, t.fold): t.config for t in trials if t.seed in study.confirm_seeds}
    planned = {
        (t.arm, t.fold): t.config for t in again.trials
    }  # on all folds; confirmed is on unsearched ones
    assert confirmed and {key: planned[key] for key in confirmed} == confirmed
    assert len({t.seed for t in again.trials}) == len(study.confirm_seeds)
    assert not {t.seed for t in again.trials} & {t.seed for t in trials}


def test_yaml_of_a_command_has_its_own_fields_and_plans_the_same_trials(tmp_path):
    command = ["python", "-c", "print()", "{args}", "--seed", "{seed}"]
    given = {"metrics": ["acc {accuracy}"], "names": {"lr": "rate"}}
    space = {"lr": cs.Float(0.1, 1.0)}
    arms = {
        name: cs.Arm("", {"x": name}, space, command=command, **given, resources={"cpus": 2})
        for name in "ab"
    }
    results, trials = finished(sweep(arms=arms), tmp_path)
    fields = yaml.safe_load(render(results, "yaml"))
    arm = fields["arms"]["a"]
    assert list(arm) == ["resources", "command", "metrics", "names", "config"]
    assert arm.items() >= (given | {"command": command}).items() and arm["resources"]["cpus"] == 2
    again = cs.plan(fields | {"seeds": [1000]}, storage=str(tmp_path))
    confirmed = {t.id for t in trials if t.seed == 1000}
    assert len(confirmed) == 4 and confirmed <= {t.id for t in again.trials}


def test_yaml_needs_a_trial_that_was_trained_to_its_end(tmp_path):
    results, _ = finished(sweep(), tmp_path, stop_after=0)
    with refused(
        cs.SpecError, match=r"needs a trial that was trained .*contrasweep status toy-sweep"
    ):
        render(results, "yaml")


@pytest.mark.parametrize("kind", [cs.AblationGrid, cs.Sweep])
def test_fresh_seeds_of_a_study_that_grows_are_none_that_it_may_use(storage, kind):
    seeds = {cs.AblationGrid: {"seeds": [0]}, cs.Sweep: {"confirm_seeds": [5], "trials_per_arm": 3}}
    space = {cs.AblationGrid: {}, cs.Sweep: {"lr": cs.Float(0.1, 1)}}
    arms = {"a": cs.Arm("toy:train", space=space[kind])}
    grows = cs.Replicates(first=6, step=6, most=12)
    study = kind("g", arms, "digits-lt", folds=3, replicates=grows, **seeds[kind])
    fresh = rerun([], study_document(cs.plan(study, storage=storage)))["seeds"]
    assert len(fresh) == len(study.all_seeds) and min(fresh) > max(study.all_seeds)


def test_a_setting_of_a_grid_that_is_best_without_a_value_has_none(tmp_path, storage):
    grid = cs.AblationGrid("g", {"a": cs.Arm(train)}, "digits-lt", axes={"clip": [2, None]})
    score = lambda t: 0.5 if t.config["clip"] is None else 0.1  # noqa: E731
    trained(cs.plan(grid, storage=storage), tmp_path, score)
    again = yaml.safe_load(render(cs.load("g", storage=storage), "yaml"))
    assert again["arms"]["a"]["config"] == {"clip": None}


def test_a_grid_over_datasets_has_no_one_best_cell(tmp_path, storage):
    grid = cs.AblationGrid(
        "g", {"a": cs.Arm("toy:train")}, "digits-lt", axes={"data": ["digits-lt", "digits"]}
    )
    declared(cs.plan(grid, storage=storage), tmp_path)
    with refused(cs.SpecError, "no one best cell"):
        render(cs.load("g", storage=storage), "yaml")
