"""Tables over the groups of test items: what is pooled, what a replicate is, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest
from made_up import declared, nowhere, train
from scipy import stats

from contrasweep import AblationGrid, Arm, SpecError, StorageError, load
from contrasweep.cli import reports
from contrasweep.planning.grid import make_plan
from contrasweep.reporting import render, write_report
from contrasweep.running.prepare import study_document
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords

DATA = nowhere(3)
GROUPS = {0: ["g0"] * 4 + ["g1"] * 12, 1: ["g2"] * 6 + ["g3"] * 2 + ["g4"], 2: ["g5"] * 3 + ["g6"] * 9 + ["g7"] * 8}
"""Fold -> the group of each of its test items."""


def score(trial) -> np.ndarray:
    """Made up: what an item is worth, the same for all, a little of the seed, and arm b .1 better in all groups but
    g0."""
    names = np.array(GROUPS[trial.fold])
    items = np.random.default_rng(trial.fold).uniform(0, 0.5, len(names))
    return items + 0.01 * trial.seed + np.where(names == "g0", -0.1, 0.1) * (trial.arm == "b")


class Study:
    """2 arms x 3 folds x 2 seeds with the items above."""

    def __init__(self, storage):
        grid = AblationGrid("made-up", {"a": Arm(train), "b": Arm(train)}, "d", folds=3, seeds=[0, 1])
        self.storage, self.plan, self.records = (
            storage,
            make_plan(grid, lambda name: DATA),
            StudyRecords(storage, "made-up"),
        )
        self.records.claim(study_document(self.plan))
        write_planned(self.records, self.plan.to_frame())

    def run(self, trials=None, named=True, folds=GROUPS, also=()):
        for trial in self.plan.trials if trials is None else trials:
            items = (
                {"hits": score(trial)}
                | ({"group": folds[trial.fold]} if named else {})
                | dict.fromkeys(also, score(trial))
            )
            self.records.write_items(trial.id, items)
            self.records.write(
                Record.of(
                    trial, status=Status.DONE, metrics={"accuracy": float(score(trial).mean())}, items=tuple(items)
                )
            )
        return load("made-up", storage=self.storage)


@pytest.fixture
def study(tmp_path):
    return Study(str(tmp_path))


def of_folds(study, arm):
    """Each fold's mean score, seeds averaged, and its number of items."""
    means = [np.mean([score(t).mean() for t in study.plan.trials if (t.arm, t.fold) == (arm, f)]) for f in GROUPS]
    return np.array(means), np.array([len(names) for names in GROUPS.values()])


def test_the_mean_is_that_of_all_items_and_a_fold_is_the_replicate(study):
    built = study.run().table(over="groups")
    cell = built.cells[("b",), ()]
    every = np.concatenate([score(t) for t in study.plan.trials if t.arm == "b"])
    assert (cell.n, cell.planned, built.metric) == (6, 6, "hits")
    assert cell.mean == pytest.approx(every.mean())
    assert "folds weighted by their items, 45 test items of 8 groups" in built.to_text()


def test_folds_are_clusters_since_their_items_share_networks(study):
    """Decided item by item, what a training draws would be read as a difference between methods."""
    (pair,) = study.run().table(over="groups").pairs
    (ours, sizes), (theirs, _) = of_folds(study, "b"), of_folds(study, "a")
    d = ours - theirs
    mean = np.average(d, weights=sizes)
    error = np.std(mean + (d - mean) * sizes / sizes.mean(), ddof=1) / 3**0.5
    comparison = pair.comparison
    assert (pair.a, pair.b, comparison.test, comparison.n) == ("b", "a", "t-test", 3)
    assert comparison.difference == pytest.approx(mean) == pytest.approx(0.1 * (41 - 4) / 45)
    assert comparison.raw_p == pytest.approx(2 * stats.t.sf(mean / error, 2), rel=0.2)  # seeds differ a little
    assert (comparison.scope, comparison.verdict) == ("on new items like these", "exploratory")
    contrasted = study.run().versus("b", "a", over="groups").overall.comparison
    assert (contrasted.n, contrasted.p_value) == (3, comparison.p_value)


def test_without_names_every_item_is_one(study):
    assert "folds weighted by their items, 45 test items" in study.run(named=False).table(over="groups").to_text()


def test_a_group_in_two_folds_is_told(study):
    folds = {**GROUPS, 2: ["g0"] * 3 + GROUPS[2][3:]}
    built = study.run(folds=folds).table(over="groups")
    assert "7 groups (1 of them in several folds, so partly trained on)" in " ".join(built.to_text().split())


def test_only_replicates_that_both_arms_have_are_compared(study):
    left = next(t for t in study.plan.trials if (t.arm, t.fold, t.seed) == ("b", 1, 1))
    built = study.run([t for t in study.plan.trials if t.id != left.id]).table(over="groups")
    assert built.cells[("b",), ()].statuses == {"done": 5, "pending": 1}
    (pair,) = built.pairs
    assert (built.cells[("a",), ()].n, built.cells[("b",), ()].n) == (6, 5)
    assert (pair.comparison.evidence.pairs, pair.comparison.evidence.unpaired) == (5, 1)
    assert pair.comparison.gaps.pending == 1 and pair.comparison.n == 3


def test_items_whose_file_is_gone_count_as_missing(study):
    study.run()
    gone = next(t for t in study.plan.trials if (t.arm, t.fold, t.seed) == ("a", 2, 0))
    study.records.store.delete(study.records.key(gone.id, "items.parquet"))
    built = load("made-up", storage=study.storage).table(over="groups")
    assert built.cells[("a",), ()].statuses == {"done": 5, "without items": 1}


def test_a_trial_that_names_no_groups_has_those_of_the_others(study):
    study.run([t for t in study.plan.trials if t.arm == "a"], named=False)
    built = study.run([t for t in study.plan.trials if t.arm == "b"]).table(over="groups")
    assert "45 test items of 8 groups" in built.to_text()


def test_an_item_without_a_name_is_a_group_of_its_own(study):
    folds = {**GROUPS, 1: ["", "", *GROUPS[1][2:]]}
    assert "45 test items of 10 groups" in study.run(folds=folds).table(over="groups").to_text()


def test_datasets_that_are_an_axis_count_the_same_whatever_their_size(tmp_path):
    grid = AblationGrid("two", {"a": Arm(train), "b": Arm(train)}, "d", folds=3, axes={"data": ["d", "e"]})
    plan, records = declared(
        make_plan(grid, lambda name: dataclasses.replace(DATA, name=name, columns={"image": {"of": name}})), tmp_path
    )
    for trial in plan.trials:
        better = 0.05 if trial.data.name == "d" else -0.05
        size = 4 if trial.data.name == "d" else 12
        items = {"hits": np.full(size, 0.5 + better * (trial.arm == "b")), "group": ["x", *["y"] * (size - 1)]}
        records.write_items(trial.id, items)
        records.write(Record.of(trial, status=Status.DONE, metrics={"accuracy": 1.0}, items=tuple(items)))
    overall = load("two", storage=str(tmp_path)).versus("b", "a", over="groups").overall.comparison
    assert (overall.n, overall.difference, overall.raw_p) == (3, 0, 1)


def test_scores_of_items_are_better_the_larger_whatever_the_study_minimises(study):
    study.run()
    results = load("made-up", storage=study.storage)
    turned = dataclasses.replace(results, document=dataclasses.replace(results.document, mode="min"))
    assert turned.table(over="groups").mode == "max"


def test_other_items_in_one_fold_are_refused(study):
    first, *others = study.plan.trials
    study.run(others)
    results = study.run([first], folds={**GROUPS, first.fold: ["x", *GROUPS[first.fold][1:]]})
    with pytest.raises(
        StorageError, match=f"has other test items than the other trials of fold {first.fold}: .* run it again"
    ):
        results.table(over="groups")
    assert 'id="items"' not in render(results, "html").decode(), "the report goes without"


def test_what_is_no_score_of_items_is_refused_with_those_that_are(study):
    results = study.run(also=["knn"])
    with pytest.raises(
        SpecError, match=r"metric: over groups a table needs a score of single test items, got 'accuracy'.*hits.*knn"
    ):
        results.table(over="groups")
    with pytest.raises(SpecError, match="'group'"):
        results.table(metric="group", over="groups")
    with pytest.raises(SpecError, match=r"over: there are no such replicates, got 'scenes'.*groups"):
        results.table(over="scenes")


def test_a_study_without_items_says_so(study):
    for trial in study.plan.trials:
        study.records.write(Record.of(trial, status=Status.DONE, metrics={"accuracy": 1.0}))
    results = load("made-up", storage=study.storage)
    with pytest.raises(SpecError, match="its trials reported none"):
        results.table(over="groups")
    assert "Item by item" not in render(results, "html").decode()


def test_the_command_prints_it_as_json_too(study, capsys):
    study.run()
    reports.report(["made-up"], study.storage, json=True, over="groups")
    printed = json.loads(capsys.readouterr().out)
    assert [(row["factors"]["arm"], row["metric"], row["n"]) for row in printed["table"]] == [
        ("a", "hits", 6),
        ("b", "hits", 6),
    ]
    assert len(printed["rows"]) == 12, "trials stay trials"


def test_the_report_shows_it(study):
    results = study.run()
    with pytest.raises(SpecError, match="--over: the HTML report is over replicates"):
        write_report(results, "html", over="groups")
    page = render(results, "html").decode()
    assert "hits over test items: folds weighted by their items" in page and "b is better than a" not in page
    assert "b - a: +0.08" in page and "no verdicts" in page
