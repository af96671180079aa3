"""Several studies of a storage as one: paired by fold and seed, one family of comparisons, differences said."""

import re

import numpy as np
import pytest
from command_line import contrasweep
from made_up import declared

import contrasweep as cs
from contrasweep.results.interim_analysis import count_look
from contrasweep.results.joined import JoinedResults
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords


def train(trial, resume=None):
    yield


def made(folder, name, shift, epochs=3, trainable="toy:train", **fields):
    """A finished study of two arms and eight seeds, whose made-up scores share each seed's noise."""
    arms = {arm: cs.Arm(trainable, {"epochs": epochs}) for arm in ("scl", "ocl")}
    fields = {"data": "digits-lt", "seeds": list(range(8))} | fields
    plan, records = declared(cs.plan(cs.AblationGrid(name, arms, **fields), storage=folder), folder)
    for trial in plan.trials:
        noise = np.random.default_rng(trial.seed).normal(0, 0.05)
        own = np.random.default_rng([trial.seed, int(trial.id, 16) % 2**31]).normal(0, 0.002)
        score = 0.8 + shift + 0.01 * (trial.arm == "ocl") + noise + own
        records.write(Record.of(trial, status=Status.DONE, metrics={"accuracy": score}))


@pytest.fixture
def storage(tmp_path):
    folder = str(tmp_path / "runs")
    made(folder, "short", 0.0)
    made(folder, "long", 0.03, epochs=9)
    return folder


def test_arms_of_two_studies_are_paired_by_seed_and_are_one_family(storage):
    joined = cs.load(["short", "long"], storage=storage)
    table = joined.table()
    assert [row for (row,) in table.rows] == ["short/scl", "short/ocl", "long/scl", "long/ocl"]
    one = joined.compare("long/scl", "short/scl")
    assert len(table.pairs) == 6 and one.n == 8 and one.decision == "better"
    assert one.high - one.low < 0.015 < 0.05 / 8**0.5, "the noise that a seed has in both studies has gone"
    alone = {study: cs.load(study, storage=storage).compare("ocl", "scl") for study in ("short", "long")}
    within = joined.compare("short/ocl", "short/scl")
    assert within.difference == pytest.approx(alone["short"].difference)
    assert within.p_value >= alone["short"].p_value, "the family is larger"
    assert any("long/scl" in note and "epochs 3 and 9" in note for note in table.notes)


def test_studies_of_which_one_was_extended_are_exploratory_and_are_called_so(storage):
    """Its looks are not those of the others: no note, correction or advice of one study is told of all."""
    arms = {arm: cs.Arm("toy:train", {"epochs": 3}) for arm in ("scl", "ocl")}
    larger = cs.plan(cs.AblationGrid("short", arms, data="digits-lt", seeds=list(range(12))), storage=storage)
    count_look(larger, StudyRecords(storage, "short"))
    joined = cs.load(["short", "long"], storage=storage)
    text = joined.table().to_text(200)
    assert "Exploratory: " in text and "p not adjusted, no verdicts" in text and "Verdicts" not in text
    assert "exploratory: short had several looks" in text and "multiplied" not in text and "Holm" not in text
    assert not joined.advice() and {pair.comparison.verdict for pair in joined.answer.pairs} == {"exploratory"}


def test_with_the_study_in_the_rows_each_stands_by_itself(storage, tmp_path):
    table = cs.load("*", storage=storage).table(rows="study", columns="arm")
    assert sorted(row for (row,) in table.rows) == ["long", "short"] and [c for (c,) in table.columns] == ["scl", "ocl"]
    assert all(dict(pair.context).keys() == {"study"} for pair in table.pairs) and len(table.pairs) == 2
    shown = contrasweep("report", "short", "lo*", "--rows", "study", "--storage", storage, folder=tmp_path)
    assert shown.returncode == 0 and "short + long" in shown.stdout, shown.stderr
    page = contrasweep("report", "short", "long", "--format", "html", "--storage", storage, folder=tmp_path)
    assert page.returncode == 2 and "takes one study" in page.stderr and page.stderr.count("\n") == 1


def test_studies_of_other_data_are_not_paired_and_of_another_metric_are_no_table(storage):
    made(storage, "other", 0.0, data="digits")
    joined = cs.load(["short", "other"], storage=storage)
    assert {dict(pair.context)["study"] for pair in joined.table().pairs} == {"short", "other"}
    said = r"the studies have other data, so that no arm of one is compared .*\(short digits-lt#\w+, other digits#\w+\)"
    assert any(re.match(said, note) for note in joined.table().notes)
    with pytest.raises(cs.SpecError, match="other data"):
        JoinedResults.join([cs.load(name, storage=storage) for name in ("short", "other")])
    made(storage, "folded", 0.0, folds=3)
    with pytest.raises(cs.SpecError, match="no folds in common"):
        cs.load(["short", "folded"], storage=storage)


def test_studies_whose_values_of_an_axis_would_be_shown_alike_are_no_table(storage):
    for name, value in (("numbers", 1), ("texts", "1")):
        made(storage, name, 0.0, trainable=train, axes={"size": [value]})
    with pytest.raises(cs.SpecError, match=r"axes.size: two values of an axis are shown alike, got \[1, '1'\]"):
        cs.load(["numbers", "texts"], storage=storage)


def test_a_pattern_of_one_study_is_that_study_and_an_unknown_one_is_refused(storage):
    assert cs.load("shor?", storage=storage).name == "short"
    with pytest.raises(cs.SpecError, match="no such study"):
        cs.load(["short", "nothing*"], storage=storage)
