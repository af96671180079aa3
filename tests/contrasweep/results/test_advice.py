"""What would decide what a study leaves undecided: its sizes, chances and price, and that following it is counted."""

from dataclasses import replace

import numpy as np
import pytest
from looks import drive_looks, noise
from sweeps import finished, record_of, sweep

from contrasweep import AblationGrid, Arm
from contrasweep.results.advice import Size
from contrasweep.results.results import Results
from contrasweep.statistics.predictive import detectable_difference
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.records import StudyRecords


def grid(count=6, arms="abc", **fields):
    base = {
        "arms": {arm: Arm("toy:train", config={"epochs": 1}) for arm in arms},
        "data": "digits-lt",
    }
    return AblationGrid("advised", **base | {"seeds": list(range(count))} | fields)


def value(trial):
    return 0.5 + 0.012 * (trial.arm == "b") + 0.02 * noise(trial.arm, trial.fold, trial.seed)


def run(storage, study, value=value, **options):
    drive_looks(study, storage, value, **options)
    return Results.load("advised", str(storage))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A study at its end, of which two comparisons or more are undecided."""
    return run(tmp_path_factory.mktemp("advised"), grid())


def test_a_notebook_shows_the_advice_and_not_its_fields(results, tmp_path):
    advice = results.advice()
    assert len(advice.forecasts) > 1
    assert (
        repr(advice)
        == f"Advice(on {len(advice.forecasts)} undecided comparisons, 0 pending trials)"
    )
    shown = advice._repr_html_()
    assert shown.count("<tr>") == len(advice.forecasts) + 4 and "18 trials" in shown
    assert "--extend" in shown
    unfinished = run(tmp_path, grid(), stop_after=10).advice()
    assert repr(unfinished) == "Advice(on 0 undecided comparisons, 8 pending trials)"
    assert unfinished._repr_html_() is None
    assert not unfinished and unfinished.pending == 8 and unfinished.to_text() == ""


def test_a_price_counts_no_time_of_failed_trials(tmp_path, storage):
    run(tmp_path, grid(), failed=lambda trial: trial.arm == "a" and trial.seed == 2)
    records = StudyRecords(storage, "advised")
    for record in records.read(sorted(records.finished())).values():
        hours = (4 if record.arm == "c" else 1) if record.status.counts else 1e3
        records.write(replace(record, started=0.0, ended=3.6e3 * hours))
    sizes = Results.load("advised", storage).advice().sizes
    # The 17 trials took 35 hours, in 4 hours; six more of each arm take 36.
    assert [size.hours for size in sizes] == pytest.approx([36 / (35 / 4), 3 * 36 / (35 / 4)])


def test_over_folds_seeds_and_repeats_are_weighed_against_each_other(tmp_path):
    def calm(trial):  # nearly all of its noise is of training
        rest = np.random.default_rng([trial.fold, trial.seed]).normal(0, 0.02)
        return 0.5 + (trial.arm == "b") * (0.0110 + rest)

    (one,) = run(tmp_path, grid(4, "ab", folds=10), calm).advice().forecasts
    assert one.enough and {size.unit for size, _ in one.enough} <= {"seeds", "repeats"}
    for size, _ in one.enough:
        assert size.trials == (
            20 * (size.count - 4) if size.unit == "seeds" else 80 * (size.count - 1)
        )
    single = run(tmp_path / "single", grid(1, "ab", folds=5), calm).advice()
    (one,) = single.forecasts
    assert one.degrees == (0, 1, 3) and one.chances == ()
    assert one.enough_as_estimated == Size("seeds", 2, 10, None)
    said = single.to_text().replace("\n  ", " ")
    assert "a second seed gives one" in said and "the first look, as nothing was tested yet" in said


def test_following_the_advice_is_counted_as_a_look(tmp_path):
    """Finding 9: replicates added after a look at the table cost what looks cost, whoever adds them."""
    before = run(tmp_path, grid()).compare("b", "a")
    after = run(tmp_path, grid(12), extend=True)
    (look,) = read_looks(StudyRecords(str(tmp_path), "advised")).looks
    assert look.replicates == 6 and {one.decision for one in look.comparisons} == {"open"}
    assert (
        next(one.p_value for one in look.comparisons if {one.a, one.b} == {"a", "b"})
        == before.raw_p
    )
    for pair in run(tmp_path / "at once", grid(12)).answer.pairs:
        counted = after.compare(pair.a, pair.b)
        assert counted.raw_p == pair.comparison.raw_p
        assert counted.p_value == pytest.approx(min(1.0, 4 * pair.comparison.p_value))
    note = next(note for note in after.table().notes if "look 2" in note)
    assert "multiplied by 4" in note and "at most 1.25 alpha" in note
    assert after.advice().look == 3 and "alpha / 16" in after.advice().to_text()
    third = run(tmp_path, grid(14), extend=True)
    assert [look.replicates for look in read_looks(third.records).looks] == [6, 12]
    assert third.compare("a", "b").p_value <= 1 and "multiplied by 16" in str(third.table().notes)


def test_a_larger_confirmation_of_a_sweep_has_the_folds_that_were_not_searched(tmp_path):
    def record(trial, notes, status):
        score = {"accuracy": 0.5 + 0.02 * noise(trial.arm, trial.fold, trial.seed)}
        return record_of(trial, notes, status, metrics=score)

    study = sweep(folds=5, search_folds=[0, 3], confirm_seeds=[1000, 1001])
    results, _ = finished(study, tmp_path, record=record)
    (one,) = results.advice().forecasts
    now = one.pair.comparison.evidence.common
    assert now.design.repeats == 1 and "3 folds x 2 seeds" in str(results.table())
    assert all(degrees <= now.n - 1 == 2 for degrees in one.degrees)
    # The folds that were searched are folds of the partition: they share training rows with the others.
    assert now.design.overlap == 1 / 4
    assert one.detectable[1] == detectable_difference(now, replace(now.design, seeds=4), 0.05 / 4)
