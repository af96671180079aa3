"""What would decide what a study leaves undecided: its sizes, chances and price, and that following it is counted."""

import statistics
from dataclasses import replace

import numpy as np
import pytest
from looks import drive_looks, noise
from made_up import trained
from sweeps import finished, record_of, sweep

from contrasweep import AblationGrid, Arm, Replicates
from contrasweep.planning.forecast import forecast
from contrasweep.planning.planner import plan
from contrasweep.results.advice import Size
from contrasweep.results.results import Results
from contrasweep.statistics.family import Family
from contrasweep.statistics.predictive import detectable_difference, smallest_count_as_estimated
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


def forecast_of(study, storage):
    return forecast(plan(study, storage=str(storage)), str(storage))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A study at its end, of which two comparisons or more are undecided."""
    return run(tmp_path_factory.mktemp("advised"), grid())


def test_advice_names_what_is_undecided_with_the_price_of_deciding_it(results):
    advice = results.advice(lambda trials: sum(trials.values()) / 10)
    prices = [rows[-1][0] for rows in (advice.rows(), results.advice().rows())]
    assert prices == ["price on its hosts", "price at its pace"], "the two are not the same hours"
    undecided = {frozenset((p.a, p.b)) for p in results.answer.pairs if not p.decided}
    assert {frozenset((one.pair.a, one.pair.b)) for one in advice.forecasts} == undecided
    assert undecided
    assert [(size.count, size.trials) for size in advice.sizes] == [(12, 18), (24, 54)]
    assert [size.hours for size in advice.sizes] == [1.8, 5.4]
    for one in advice.forecasts:
        assert one.detectable[0] > one.detectable[1] > one.detectable[2] > 0
        assert 0 <= one.chances[0].low <= one.chances[0].assurance <= one.chances[0].high <= 1
        for size, prediction in one.enough:
            assert prediction.assurance >= 0.8 and size.trials == 3 * (size.count - 6)


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


def test_nothing_is_advised_where_all_is_decided(tmp_path):
    clear = run(tmp_path / "two", grid(), lambda t: "abc".index(t.arm) + 0.001 * noise(t.id))
    assert all(pair.decided for pair in clear.answer.pairs) and not clear.advice()
    assert str(clear.advice()) == ""


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


def test_a_study_of_which_no_look_is_left_is_told_of_fresh_seeds(tmp_path):
    advice = run(tmp_path, grid(replicates=Replicates(first=4, step=4, most=8), seeds=[0])).advice()
    assert advice.fresh and advice.sizes[0].count == 16 and advice.sizes[0].trials == 16 * 3
    assert "declare a new study" in advice.to_text().replace("\n  ", " ")


@pytest.mark.parametrize("axes", [{}, {"lr": [0.1, 0.2, 0.3]}], ids=["arm", "one cell of it"])
@pytest.mark.parametrize(("collapsed", "said"), [(3, True), (2, False)])
def test_an_arm_of_which_half_collapsed_is_to_be_mended_first(
    collapsed, said, axes, tmp_path, storage
):
    def metrics(trial):
        stuck = trial.arm == "b" and trial.seed < collapsed and trial.config.get("lr", 0.1) == 0.1
        return {"accuracy": value(trial), "collapsed": float(stuck)}

    trained(plan(grid(arms="ab", axes=axes), storage=storage), tmp_path, metrics)
    notes = Results.load("advised", storage).advice().notes()
    assert notes[0].startswith("Mend the training first") == said and len(notes) > 1


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


def test_what_was_decided_before_is_a_sentence_of_its_own_beside_what_all_data_say(tmp_path):
    clear = lambda t: value(t) + 0.2 * (t.arm == "c")  # noqa: E731
    first = run(tmp_path, grid(), clear).compare("c", "a")
    assert first.verdict == "better"
    lost = lambda t: clear(t) if t.seed < 6 else 0.5 + 0.3 * noise(t.id)  # noqa: E731
    lost_again = run(tmp_path, grid(9), lost, extend=True)
    now = lost_again.compare("c", "a")
    fresh = run(tmp_path / "at once", grid(9), lost).compare("c", "a")
    assert now.p_value == pytest.approx(min(1.0, 4 * fresh.p_value))
    assert now.difference == fresh.difference
    assert (now.verdict == "better") == (now.low > 0) == (now.p_value <= 0.05)
    earlier = now.before
    assert (earlier.look, earlier.replicates, earlier.verdict) == (1, 6, "better")
    assert (earlier.difference, earlier.low, earlier.high, earlier.p_value) == (
        first.difference, first.low, first.high, first.p_value,
    )  # fmt: skip
    said = f"Decided at look 1 (6 replicates): c is better than a: {first.span()}, p"
    assert said in " ".join(str(lost_again.table()).split())
    turned = lost_again.compare("a", "c").before
    assert (turned.verdict, turned.low, turned.high) == ("worse", -first.high, -first.low)


def test_an_earlier_equivalence_is_told_with_its_own_p_and_its_margin(tmp_path):
    close = lambda t: 0.5 + 0.001 * noise(t.id)  # noqa: E731
    study = lambda count: replace(grid(count, arms="ab"), smallest_difference=0.02)  # noqa: E731
    first = run(tmp_path, study(8), close).compare("b", "a")
    assert first.decision == "equivalent"
    now = run(tmp_path, study(10), close, extend=True).compare("b", "a")
    assert now.before.verdict == "equivalent"
    assert now.before.p_value == first.equivalence_p <= 0.05 < first.p_value
    assert (
        "b and a are equivalent within ±0.02: "
        in now.sentence("b", "a").split("Decided at look 1")[1]
    )
    undecided = replace(now.judgement, verdict="undecided")
    other = replace(now, family=replace(now.family, margin=None), judgement=undecided)
    assert "equivalent within ±0.02, which was withdrawn: " in other.sentence("b", "a")


def test_more_arms_or_an_unfinished_study_are_no_look(tmp_path):
    run(tmp_path / "arms", grid(arms="ab"))
    assert read_looks(run(tmp_path / "arms", grid(), extend=True).records) is None
    run(tmp_path / "alone", grid(arms="a"))
    assert read_looks(run(tmp_path / "alone", grid(12, arms="a"), extend=True).records) is None
    run(tmp_path / "unfinished", grid(), stop_after=10)
    assert read_looks(run(tmp_path / "unfinished", grid(12), extend=True).records) is None


def test_a_plan_speaks_in_units_of_the_metric_where_earlier_trials_tell_the_noise(tmp_path):
    """Of its own trials, else of the newest study with the same metric, folds and data; and as the advice has it."""
    results = run(tmp_path, grid(6))
    own = forecast_of(grid(6), tmp_path)
    now = f"{statistics.median_high(one.detectable[0] for one in results.advice().forecasts):.2g}"
    text = own.to_text(200)
    told = f"a difference below {now} stays undecided with this design"
    assert told in text and "noise as in advised" in text
    assert own.sizes[0].in_units > own.sizes[1].in_units > own.sizes[2].in_units
    assert "spread" not in text
    other = replace(grid(6), name="other")
    assert told in forecast_of(other, tmp_path).to_text(200)
    assert forecast_of(replace(grid(2, folds=3), name="folds"), tmp_path).power.in_units is None


def test_a_plan_takes_the_noise_of_means_over_as_many_cells_as_it_averages(tmp_path):
    """Means over four cells, each with noise of its own, have half of its spread."""
    sizes = [8, 16, 32, 64]
    earlier = grid(40, arms="ab", axes={"batch_size": sizes})
    run(tmp_path, earlier, lambda trial: np.random.default_rng(list(trial.id.encode())).normal())
    least = {}
    for count in (1, 2, 4):
        study = grid(40, arms="ab", axes={"batch_size": sizes[:count]})
        planned = forecast_of(replace(study, name=f"of-{count}"), tmp_path)
        least[count] = planned.power.in_units
    assert least[1] / least[2] == pytest.approx(2**0.5, rel=0.2)
    assert least[1] / least[4] == pytest.approx(2, rel=0.2)
    cells = forecast_of(replace(study, name="of-cells", question="cells"), tmp_path)
    assert cells.power.in_units > 2 * least[4]


def test_what_is_detectable_now_is_at_the_level_of_the_present_look(tmp_path):
    run(tmp_path, grid())
    extended = run(tmp_path, grid(12), extend=True)
    family = extended.answer.pairs[0].comparison.family
    advice = extended.advice()
    level = family.level_after(sum(pair.decided for pair in extended.answer.pairs)) / 4
    for one in advice.forecasts:
        now = one.pair.comparison.evidence.common
        assert one.detectable[0] == detectable_difference(now, now.design, level)


def test_what_is_undecided_without_any_noise_does_not_make_the_rest_easier(tmp_path):
    """Three equal differences are no proof, and leave the others the share of alpha that they had."""

    def same(t):
        return (
            0.5 + 0.1 * (t.arm == "b") + 0.02 * noise(t.seed) + 0.02 * (t.arm == "c") * noise(t.id)
        )

    results = run(tmp_path, grid(3), same)
    undecided = [pair for pair in results.answer.pairs if not pair.decided]
    assert any(pair.comparison.evidence.common.standard_error < 1e-12 for pair in undecided)
    levels = Family(3).level_after(len(results.answer.pairs) - len(undecided))
    for one in results.advice().forecasts:
        now = one.pair.comparison.evidence.common
        assert one.detectable[0] == detectable_difference(now, now.design, levels)


def test_a_new_study_is_priced_with_all_arms_though_looks_stopped_some_early(tmp_path):
    study = grid(arms="abcd", replicates=Replicates(first=4, step=4, most=16), seeds=[0])

    def apart(t):
        return 0.5 + 0.1 * (t.arm in "bc") + 0.3 * (t.arm == "c") + 0.02 * noise(t.arm, t.seed)

    results = run(tmp_path, study, apart)
    advice = results.advice()
    taken = results.planned["arm"].value_counts()
    assert advice.fresh and taken.min() < taken.max() == advice.present.count
    assert all(size.trials == 4 * size.count for size in advice.sizes)


def test_a_price_counts_no_time_of_failed_trials(tmp_path, storage):
    run(tmp_path, grid(), failed=lambda trial: trial.arm == "a" and trial.seed == 2)
    records = StudyRecords(storage, "advised")
    for record in records.read(sorted(records.finished())).values():
        hours = (4 if record.arm == "c" else 1) if record.status.counts else 1e3
        records.write(replace(record, started=0.0, ended=3.6e3 * hours))
    sizes = Results.load("advised", storage).advice().sizes
    # The 17 trials took 35 hours, in 4 hours; six more of each arm take 36.
    assert [size.hours for size in sizes] == pytest.approx([36 / (35 / 4), 3 * 36 / (35 / 4)])


def test_a_failed_trial_makes_the_study_no_smaller(tmp_path):
    results = run(tmp_path, grid(), failed=lambda trial: trial.arm == "a" and trial.seed == 2)
    advice = results.advice()
    assert advice.present.count == 6
    assert {pair.comparison.n for pair in results.answer.pairs} == {
        5,
        6,
    }
    assert [(size.count, size.trials) for size in advice.sizes] == [(12, 18), (24, 54)]
    for one in advice.forecasts:
        lost = 6 - one.pair.comparison.n
        assert [prediction.design.seeds for prediction in one.chances] == [12 - lost, 24 - lost]
        if one.enough_as_estimated:
            level = Family(3).level_after(0) / 4
            now = one.pair.comparison.evidence.strictest(level, "max")
            counted = smallest_count_as_estimated(now, "seeds", level)
            assert one.enough_as_estimated.count == counted + lost


REVIEW = {0: 0.355, 1: 0.245, 2: 0.32, 3: 0.27}
"""The mean difference by seed, where all folds share a seed's draws: a single one seems sure, two contradict it."""


def seeds_matter(trial):
    return (
        0.6
        + (trial.arm == "supcon") * REVIEW[trial.seed]
        + 0.002 * noise(trial.arm, trial.fold, trial.seed)
    )


def reviewed(count, name="advised", trainable="toy:train"):
    arms = {arm: Arm(trainable, config={"epochs": 1}) for arm in ("simclr", "supcon")}
    return replace(grid(count, folds=3, arms="ab"), name=name, arms=arms)


def test_one_seed_that_all_folds_may_share_decides_nothing_and_says_so(tmp_path):
    results = run(tmp_path, reviewed(1), seeds_matter)
    one = results.compare("supcon", "simclr")
    within = np.abs(one.evidence.common.of_this_seed.interval())
    assert (
        one.difference == pytest.approx(0.355, abs=0.01) and within.min() > 0.3
    )  # as sure as it was said to be
    assert one.verdict == "undecided" and one.p_value == 1 and one.to_dict()["low"] is None
    text = " ".join(str(results).split())
    assert "is of this one seed" in text and "what another seed would change is not known" in text
    assert (
        "nothing can be decided: one seed on all folds"
        in forecast_of(reviewed(1), tmp_path).to_text()
    )
    two = run(tmp_path, reviewed(2), seeds_matter, extend=True)
    assert two.compare("supcon", "simclr").difference == pytest.approx(0.30, abs=0.01)
    assert read_looks(two.records) is None and "look" not in str(
        two.table()
    )  # nothing was tested, so nothing is spent


def test_one_seed_is_as_sure_as_an_earlier_study_of_the_storage_lets_it_be(tmp_path):
    drive_looks(reviewed(4, "pilot"), tmp_path, seeds_matter)
    one = run(tmp_path, reviewed(1), seeds_matter).compare("supcon", "simclr")
    assert one.low < 0.30 < one.high
    assert one.evidence.common.components.seed == pytest.approx(
        np.var(list(REVIEW.values()), ddof=1), rel=0.2
    )
    assert one.notes == (
        "one seed on all folds: what another seed would change is taken from study pilot",
    )


def test_methods_that_draw_anew_for_each_fold_decide_with_one_seed(tmp_path):
    one = run(tmp_path, reviewed(1, trainable="contrastive"), seeds_matter).compare(
        "supcon", "simclr"
    )
    assert one.verdict == "better" and one.notes == ()


def test_a_large_difference_over_few_seeds_is_told_what_would_decide_it(tmp_path):
    """27 points in each pair of 3 folds x 2 seeds: seeds buy degrees of freedom, and no chance or interval says all."""
    results = run(tmp_path, reviewed(2), lambda t: seeds_matter(t) - 0.03 * (t.arm == "supcon"))
    (pair,), advice = results.answer.pairs, results.advice(lambda trials: sum(trials.values()) / 60)
    assert pair.comparison.verdict == "undecided"
    assert round(pair.comparison.evidence.common.degrees) == 1
    (one,) = advice.forecasts
    assert one.chances == () and one.enough == () and 2 < one.enough_as_estimated.count <= 16
    assert one.degrees[0] == pytest.approx(1, abs=0.1) and one.degrees[1] > 1.5
    assert one.detectable[1] < one.detectable[0]
    text = " ".join(advice.to_text().split())
    assert "Most of the noise is between seeds" in text
    assert "3 folds leave at most 2 degrees of freedom; repeats or folds alone add none" in text
    assert "To follow it, add seeds" in text
    by_repeats = replace(one, enough_as_estimated=Size("repeats", 3, 12, 0.2))
    notes = replace(advice, forecasts=(by_repeats,)).notes()
    assert notes[-1].startswith("To follow it, add repeats and run with --extend.")
    nothing = replace(advice, forecasts=(replace(one, enough_as_estimated=None),)).notes()
    assert nothing[-1].startswith("More seeds, added with --extend, would be the 2nd look")
    assert "not known" in text and "[0, 100]" not in text and "[0.00, 1.00]" not in str(results)
    four = run(
        tmp_path, reviewed(4), lambda t: seeds_matter(t) - 0.03 * (t.arm == "supcon"), extend=True
    )
    assert four.compare("supcon", "simclr").verdict == "better"


def test_no_interval_holds_every_value_of_a_bounded_metric(tmp_path):
    """Two seeds far apart on three folds: where one degree of freedom leaves all open, that is what is said."""

    def far(t):
        return 0.5 + 0.4 * (1 - 2 * t.seed) * (1 if t.arm == "supcon" else -1) + 0.01 * noise(t.id)

    results = run(tmp_path, reviewed(2), far)
    (pair,), rows = results.answer.pairs, results.table().to_frame()
    text = " ".join(str(results).split())
    assert text.count("[one degree of freedom]") == 2
    assert "one degree of freedom, which leaves every difference" in text
    assert "one degree of freedom a cell, so there are no intervals" in text
    assert not np.isfinite(rows["low"]).any() and pair.comparison.to_dict()["low"] is None
    assert "[one degree of freedom]" in results.table().to_markdown() and "0.000, 1.000" not in text


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


@pytest.mark.parametrize("failures", [1, 3, 6])
def test_chances_count_the_failures_that_keep_an_arm_from_its_verdict(tmp_path, failures):
    score = lambda t: 0.5 + 0.09 * (t.arm == "b") + 0.01 * noise(t.arm, t.seed)  # noqa: E731
    failed = lambda t: t.arm == "b" and t.seed < failures  # noqa: E731
    advice = run(tmp_path, grid(10, "ab"), score, failed=failed).advice()
    if failures == 1:
        assert not advice, "the verdict stands with one loss"
        return
    (one,) = advice.forecasts
    assert all(chance.assurance < 0.6 for chance in one.chances)
    assert all(size.count > 14 for size, _ in one.enough) and one.detectable[0] > 0.05
    assert "failed count as losses" in " ".join(advice.notes())
    if (
        failures == 6
    ):  # b would be behind with its failures as losses: more replicates decide nothing
        assert not one.enough and one.enough_as_estimated is None
