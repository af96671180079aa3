"""The model of a design: against published formulas, statsmodels-free analysis of variance by hand, and its laws."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from benchmarks.paired import compare_paired
from hypothesis import given
from hypothesis import strategies as st
from made_up import made
from numpy.random import default_rng
from scipy import stats

from contrasweep.errors import SpecError
from contrasweep.planning.power import EarlierNoise, earlier_noise, noise_of
from contrasweep.results.interim_verdicts import TOO_EARLY, InterimVerdicts
from contrasweep.statistics.comparison import (
    ONE_SEED,
    judge,
    judged_comparisons,
    p_text,
    span,
    within,
)
from contrasweep.statistics.design import (
    NEW_ITEMS,
    NEW_TRAINING_SETS,
    Components,
    Design,
    SeedPart,
    between_within,
    contrast,
    contrast_over_items,
)
from contrasweep.statistics.evidence import collapsed, paired_evidence
from contrasweep.statistics.family import Family, family_size, pairs_of
from contrasweep.storage.interim_log import LookAt, LookLog, LookTaken
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords


def test_a_stored_plan_without_rows_teaches_no_noise():
    texts = pd.Series([], dtype="str")
    numbers = pd.Series([], dtype="Int64")
    planned = pd.DataFrame({"trial_id": texts, "arm": texts, "fold": numbers, "seed": numbers})
    assert noise_of("earlier", planned, {}, "accuracy", None, 1) is None


def test_a_study_that_is_broken_teaches_no_noise(tmp_path):
    for name in ("one", "two", "whole"):
        made(tmp_path, name)
    records = StudyRecords(str(tmp_path), "one")
    (data,) = records.document().datasets
    asked = {"metric": "accuracy", "folds": None, "data": [data.digest], "cells": 1}
    records.store.write("one/study.json", b"x")
    records.store.write("two/plan.parquet", b"x")
    (noise,) = earlier_noise(str(tmp_path), "new", **asked)
    assert noise.study == "whole" and not list(earlier_noise(str(tmp_path), "whole", **asked))


def test_cells_whose_values_read_alike_in_a_row_are_two(tmp_path):
    """1 and 12 beside 11 and 2: as one text they are both 112."""
    cells = [(a, b, arm, seed) for a, b in ((1, 12), (11, 2)) for arm in "xy" for seed in range(4)]
    cells.append((1, 12, "once", 0))
    planned = pd.DataFrame(cells, columns=["a", "b", "arm", "seed"])
    planned = planned.assign(
        trial_id=[f"t{i}" for i in range(17)], fold=pd.Series([pd.NA] * 17, dtype="Int64")
    )
    planned = planned[["trial_id", "arm", "a", "b", "fold", "seed"]]
    records = {
        f"t{i}": SimpleNamespace(status=Status.DONE, metrics={"m": i % 5 / 7}, trainable="x:y")
        for i in range(17)
    }
    noises = (noise_of("earlier", planned, records, "m", None, cells) for cells in (1, 2, 9))
    assert [len(noise.contrasts) for noise in noises] == [2, 1, 1]


def grid(rng, folds, seeds, fold=1.0, seed=0.0):
    return (
        fold * rng.normal(size=(folds, 1))
        + seed * rng.normal(size=(1, seeds))
        + rng.normal(size=(folds, seeds))
    )


def over_folds(d, **design):
    folds, seeds = d.shape
    f = np.repeat(range(folds), seeds).tolist()
    s = np.tile(range(seeds), folds).tolist()
    return contrast(
        d.ravel(), folds=f, seeds=s, design=Design(**{"folds": folds, "seeds": seeds} | design)
    )


def pairs(a, b, cell="c", **gaps):
    """Rows of `paired_evidence` for one cell. `gaps`: seeds by `failed_a`, `missing_b` and so on."""
    rows = pd.DataFrame({"cell": cell, "fold": None, "seed": range(len(a)), "a": a, "b": b})
    for gap in ("failed_a", "failed_b", "missing_a", "missing_b"):
        rows[gap] = rows["seed"].isin(gaps.get(gap, []))
    return rows


def evidence_of(a, b, *, mode="max", **gaps):
    return paired_evidence(pairs(a, b, **gaps), Design(seeds=len(a)), mode=mode)


# The model


def test_one_seed_on_folds_is_nadeau_and_bengio():
    d = np.array([0.02, 0.03, 0.0, 0.03, 0.04])
    comparison = contrast(d, folds=range(5))
    error = math.sqrt((1 / 5 + 0.2 / 0.8) * d.var(ddof=1))
    assert comparison.standard_error == pytest.approx(error) and comparison.degrees == 4
    assert comparison.p_value() == pytest.approx(2 * stats.t.sf(d.mean() / error, 4))
    assert comparison.design.scope == NEW_TRAINING_SETS and comparison.test() == "corrected t-test"
    half = stats.t.isf(0.025, 4) * error
    assert comparison.interval() == pytest.approx((d.mean() - half, d.mean() + half))


def test_repeats_of_a_partition_are_bouckaert_and_frank():
    d = default_rng(0).normal(size=10)
    comparison = contrast(
        d, folds=[f"{r}.{f}" for r in range(2) for f in range(5)], design=Design(folds=5, repeats=2)
    )
    assert comparison.standard_error == pytest.approx(math.sqrt((1 / 10 + 0.25) * d.var(ddof=1)))
    assert comparison.degrees == 9 and comparison.design.repeats == 2


def test_only_the_folds_part_of_the_noise_is_inflated_for_shared_training_rows():
    noise = Components(fold=4.0, seed=1.0, residual=9.0)
    design = Design(folds=5, repeats=2, seeds=3)
    assert design.variance(noise) == pytest.approx(4 * (1 / 10 + 1 / 4) + 1 / 3 + 9 / 30)
    assert Design(seeds=4).variance(Components(residual=1.0)) == 0.25
    items = Design(seeds=4, items=100).variance(Components(seed=1.0, item=25.0, residual=40.0))
    assert items == pytest.approx(1 / 4 + 25 / 100 + 40 / 400)


def test_components_with_replicates_missing_are_unbiased():
    rng = default_rng(2)
    collected = []
    for _ in range(300):
        d = grid(rng, 6, 4, fold=1.0, seed=0.7)
        kept = rng.uniform(size=d.shape) < 0.8
        f, s = np.nonzero(kept)
        e = between_within(d[kept], f, s).unbiased
        collected.append((e.fold, e.seed, e.residual))
    mean = np.mean(collected, axis=0)
    error = np.std(collected, axis=0) / 300**0.5
    assert abs(mean - [1.0, 0.49, 1.0]) == pytest.approx([0, 0, 0], abs=4 * error.max())


def test_the_error_of_a_mean_with_replicates_missing_is_that_of_the_weights_of_its_replicates():
    d = grid(default_rng(3), 6, 4, fold=2.0, seed=1.5)
    kept = np.arange(24).reshape(6, 4) % 7 > 1
    kept[0, 3] = False  # folds of one to four seeds
    f, s = np.nonzero(kept)
    found = contrast(d[kept], folds=f.tolist(), seeds=s.tolist(), design=Design(folds=6, seeds=4))
    weights = 1 / (6 * kept.sum(1))[f]
    parts = between_within(d[kept], f, s).cautious
    of_seeds = sum(weights[s == seed].sum() ** 2 for seed in range(4))
    variance = (
        parts.fold * (1 / 6 + 1 / 5) + parts.seed * of_seeds + parts.residual * (weights**2).sum()
    )
    assert min(parts.fold, parts.seed, parts.residual) > 0
    assert found.standard_error == pytest.approx(variance**0.5)
    assert found.difference == pytest.approx(weights @ d[kept])


@pytest.mark.parametrize("folds", [3, 5, 10])
@pytest.mark.parametrize("fold", [0.0, 0.5, 2.0])
def test_false_positives_of_folds_with_seeds(folds, fold):
    rng = default_rng(int(10 * fold) + folds)
    hits = 0
    rho = 1 / folds
    for _ in range(600):
        shared = fold * math.sqrt(rho / (1 - rho)) * rng.normal()
        hits += over_folds(shared + grid(rng, folds, 4, fold=fold)).p_value() <= 0.05
    assert hits <= stats.binom.ppf(0.999, 600, 0.05)


@pytest.mark.parametrize(("seeds", "most"), [(2, 0.1), (3, 0.055)])
def test_false_positives_of_few_seeds_crossed_with_items(seeds, most):
    """Without the bound on the degrees of freedom they were .110 and .078."""
    rng = default_rng(0)
    false = 0
    for _ in range(2000):
        noise = [rng.normal(scale=s, size=n) for s, n in ((0.06, (seeds, 1)), (0.1, 200))]
        d = sum(noise) + rng.normal(scale=0.15, size=(seeds, 200))
        false += contrast_over_items(d).p_value() <= 0.05
    assert false / 2000 < most


def test_a_level_that_the_exact_test_cannot_reach_is_judged_by_t():
    """Three arms in six cells and eight seeds: alpha / 18 is below 2 / 2^8, which no sign flip reaches."""
    d = default_rng(1).normal(20, 1, 8)
    comparison = contrast(d)
    level = 0.05 / 18
    assert comparison.test(level) == "t-test"
    assert comparison.p_value(level) == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    assert {j.verdict for j in judge([evidence_of(d, np.zeros(8))] * 18, Family(18))} == {"better"}
    assert (
        contrast(d[:5]).test(0.05) == "t-test"
    )  # five seeds: the exact test reaches .0625 at best


@pytest.mark.parametrize("n", [2, 5, 6, 9, 20])
@pytest.mark.parametrize("level", [0.05, 0.05 / 18])
def test_p_and_interval_agree_at_every_n(n, level):
    rng = default_rng(n)
    for _ in range(40):
        comparison = contrast(rng.normal(0.8, 1, n))
        low, high = comparison.interval(level, level)
        assert (comparison.p_value(level) <= level) == (not low <= 0 <= high)
        for bound in (0.0, 0.8, 1.6):
            above, below = comparison.p_above(bound, level), comparison.p_below(bound, level)
            assert above + below == pytest.approx(1)
            assert (below - above) * (comparison.difference - bound) >= 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=4, max_size=16, unique=True)
)
def test_degrees_of_freedom_count_what_folds_and_seeds_leave_to_each_other(places):
    """Where seeds cross some folds alone, fewer of them speak of the seeds than there are."""
    folds, seeds = (np.unique(codes, return_inverse=True)[1] for codes in zip(*places, strict=True))
    estimate = between_within(np.arange(len(places)) ** 1.5, folds, seeds)
    of_folds = np.eye(folds.max() + 1)[folds]
    both = np.linalg.matrix_rank(np.hstack([of_folds, np.eye(seeds.max() + 1)[seeds]]))
    if estimate is None:
        assert both == len(places)
    else:
        assert estimate.seed_degrees == both - np.linalg.matrix_rank(of_folds)
        assert estimate.residual_degrees == len(places) - both


def test_items_crossed_with_seeds_are_the_two_way_analysis_of_variance():
    rng = default_rng(4)
    d = rng.normal(size=(5, 1)) + 2 * rng.normal(size=(1, 40)) + rng.normal(size=(5, 40))
    comparison = contrast_over_items(d)
    seed = 40 * d.mean(1).var(ddof=1)
    item = 5 * d.mean(0).var(ddof=1)
    rest = ((d - d.mean(1, keepdims=True) - d.mean(0) + d.mean()) ** 2).sum() / (4 * 39)
    assert comparison.standard_error**2 == pytest.approx((seed + item - rest) / 200)
    assert comparison.components.item == pytest.approx((item - rest) / 5)
    assert comparison.design.scope == NEW_ITEMS and comparison.n == 5
    assert 4 <= comparison.degrees <= 43


def test_one_seed_tells_nothing_of_training_however_many_items():
    comparison = contrast_over_items(default_rng(0).normal(3, 1, (1, 500)))
    assert comparison.p_value() == 1 and comparison.n == 1


def test_groups_count_by_their_sizes():
    d = np.array([0.1, 0.3, 0.2, 0.25, 0.05])
    sizes = [1, 2, 3, 4, 5]
    weighted = contrast(d, design=Design(seeds=5, unit="group"), weights=sizes)
    assert weighted.difference == pytest.approx(np.average(d, weights=sizes))
    assert weighted.design.scope == NEW_ITEMS
    alike = contrast(d, weights=[3] * 5)
    plain = contrast(d)
    assert alike.degrees == pytest.approx(4)
    assert alike.interval() == pytest.approx(plain.interval())


@pytest.mark.parametrize("groups", [4, 6])
def test_a_large_group_makes_no_difference_where_there_is_none(groups):
    """Judged by the t-test, by sign flips, and crossed with seeds."""
    rng = default_rng(3)
    sizes = [10.0, *[1.0] * (groups - 1)]
    hits = np.zeros(2)
    for d in rng.normal(size=(400, groups)):
        alone = contrast(d, design=Design(seeds=groups, unit="group"), weights=sizes)
        low, high = alone.interval()
        assert (alone.p_value() <= 0.05) == (not low <= 0 <= high)
        training = 0.5 * rng.normal(size=(6, 1)) + rng.normal(size=(6, groups))
        with_seeds = contrast_over_items(d + training, sizes)
        hits += [alone.p_value() <= 0.05, with_seeds.p_value() <= 0.05]
    assert max(hits) <= stats.binom.ppf(0.999, 400, 0.05)


def test_what_rounding_leaves_of_noise_decides_nothing():
    square = [[0.27, 0.31, 0.05], [0.31, 0.05, 0.27], [0.05, 0.27, 0.31]]
    assert contrast_over_items(square).standard_error == 0


# Families


def test_a_margin_keeps_every_share_of_alpha():
    p = [0.01, 0.02, 0.04]
    assert Family(3).adjusted(p) == pytest.approx([0.03, 0.04, 0.04])
    assert Family(3, margin=0.1).adjusted(p) == pytest.approx([0.03, 0.06, 0.12])
    assert Family(3).level_after(2) == 0.05
    assert Family(3, margin=0.1).level_after(2) == pytest.approx(0.05 / 3)
    with pytest.raises(SpecError, match="smallest_difference"):
        Family(3, margin=-1.0)


@pytest.mark.parametrize(
    ("fields", "degrees"),
    [
        ({"seeds": 8, "unit": "run"}, 7),
        ({"folds": 5}, 4),
        ({"folds": 5, "repeats": 2, "seed_part": SeedPart(1.0, 3)}, 3),
        ({"folds": 5, "searched": 3, "seeds": 1}, 1),
    ],
)
def test_a_planned_design_whose_replicates_are_all_there_is_the_one_that_is_measured(
    fields, degrees
):
    planned = Design(**fields)
    units = planned.replicates if planned.folds else 1
    d = default_rng(7).normal(size=units * planned.seeds)
    folds = np.repeat(range(units), planned.seeds) if planned.folds else None
    measured = contrast(d, folds=folds, seeds=[*range(planned.seeds)] * units, design=planned)
    assert measured.design == planned
    assert planned.degrees(measured.components) == measured.degrees == degrees


# Verdicts


def compared(evidence):
    [comparison] = judged_comparisons([evidence], Family(1), "max")
    return comparison


def test_a_difference_of_rounding_is_a_tie():
    evidence = evidence_of(np.full(8, 0.1 + 0.2), np.full(8, 0.3))
    assert not np.any(evidence.common.values)


def test_collapsed_trials_are_named_and_noise_is_not():
    rng = default_rng(3)
    a, b = rng.normal(0.92, 0.01, (2, 12))
    a[[3, 7]], b[0] = 0.1, 0.97
    evidence = evidence_of(a, b)
    assert (evidence.collapsed_a, evidence.collapsed_b) == (("seed 3", "seed 7"), ())
    comparison = compared(evidence)
    assert "; ours collapsed at seed 3, seed 7" in comparison.sentence("ours", "theirs")
    assert "; ours collapsed at seed 3, seed 7" in comparison.reversed().sentence("theirs", "ours")
    assert [collapsed(a[3:][:n], np.zeros(n, int)).sum() for n in (7, 8)] == [0, 2], (
        "of seven, nothing is said"
    )
    false_alarms = sum(
        collapsed(rng.standard_t(3, 20), np.zeros(20, int)).any() for _ in range(200)
    )
    assert false_alarms <= 20


@pytest.mark.parametrize(
    ("n", "difference", "bounds", "may"),
    [
        (
            5,
            0.12,
            (0, 1),
            False,
        ),  # collapses in 13 % of seeds would explain it, and 5 seeds would hardly show these
        (5, 0.60, (0, 1), True),
        (5, 0.60, None, False),
        (25, 0.01, (0, 1), False),  # collapses in 1 % would explain it
        (25, 0.12, (0, 1), True),
        (25, 0.01, None, True),
    ],
)
def test_an_early_look_may_decide_what_collapses_that_did_not_show_cannot_explain(
    n, difference, bounds, may
):
    a = 0.92 + default_rng(0).normal(0, 0.001, n)
    for mode, sign in (("max", 1), ("min", -1)):
        one, other = (sign * x % 1 for x in (a, a - difference))  # mirrored where smaller is better
        evidence = evidence_of(one, other, mode=mode)
        assert evidence.may_decide_early("better", mode, None, bounds) == may
        a_gone = np.where(np.arange(n) == 2, (0.1, 0.9)[mode == "min"], one)
        gone = evidence_of(a_gone, other, mode=mode)
        assert n < 8 or not gone.may_decide_early("better", mode, None, bounds)


def test_an_early_equivalence_stands_if_as_many_of_either_arm_collapse_as_may_not_have_shown():
    a = 0.5 + default_rng(0).normal(0, 0.001, 30)
    evidence = evidence_of(a, a + 0.01)
    assert evidence.unseen == pytest.approx(0.095, abs=5e-4), "about 3/n"
    assert evidence.may_decide_early("equivalent", "max", 0.07, (0, 1)), ".095 x .51 + .01 = .058"
    assert not evidence.may_decide_early("equivalent", "max", 0.05, (0, 1))


def test_how_deep_a_rival_collapsed_tells_how_deep_an_arm_of_a_metric_without_bounds_could():
    a = default_rng(0).normal(10, 0.01, 30)
    evidence = evidence_of(a + 0.1, a)
    assert evidence.may_decide_early("better", "max", None, None)
    assert not replace(evidence, collapse_depth=8.0).may_decide_early("better", "max", None, None)
    gone = evidence_of(np.where(np.arange(30) == 4, 2.0, a), a)
    assert gone.collapse_depth == pytest.approx(8, abs=0.1)


def test_a_copy_of_an_arm_makes_the_p_of_the_others_no_larger_and_stays_undecided():
    d = np.arange(1, 9) / 100
    same = np.arange(8.0)  # a copy of an arm; its replicates are none of each other
    one, copy = (evidence_of(same + x, same) for x in (d, 0))
    alone = compared(one)
    beside, of_copy = judged_comparisons([one, copy], Family(2), "max")
    assert (beside.p_value, beside.low, beside.high) == (
        alone.p_value,
        alone.low,
        alone.high,
    )
    assert beside.family.size == 1
    assert of_copy.p_value == 1 and not of_copy.decided
    assert "all values are equal" in of_copy.sentence()
    margin = judged_comparisons([one, copy], Family(2, margin=0.1), "max")
    assert margin[1].decision == "equivalent" and margin[0].family.size == 2, (
        "a false equivalence has to be corrected for"
    )
    running = evidence_of(same, np.append(same[:7], np.nan))
    assert judged_comparisons([one, running], Family(2), "max")[0].p_value == 2 * alone.p_value, (
        "it may yet differ"
    )


@pytest.mark.parametrize(
    ("low", "high", "why"), [(None, None, f"open{TOO_EARLY}"), (-0.1, 0.3, "open")]
)
def test_a_verdict_that_collapses_to_come_could_overturn_waits_for_the_last_look(low, high, why):
    comparison = compared(evidence_of([0.9, 0.91, 0.92, 0.94], [0.8, 0.82, 0.81, 0.8]))
    entry = LookAt(
        (), "a", "b", 4, comparison.difference, low, high, 0.01, None, 1.0, None, 0.05, "open"
    )
    log = LookLog("power", "seeds", (LookTaken(4, 0.5, (entry,), ()),))
    told = InterimVerdicts(log, "seeds", 8).verdict_on((), "a", "b", comparison)
    assert (told.judgement.reason, told.low, told.high) == (why, *entry.interval)


def test_an_earlier_study_tells_what_another_seed_would_change():
    pilot = over_folds(grid(default_rng(0), 10, 3, seed=1.0))
    variance = pilot.components.seed + pilot.components.residual / 10
    assert EarlierNoise("pilot", (pilot,)).seed_part == SeedPart(variance, 2.0, "pilot")


def test_intervals_of_tied_comparisons_do_not_depend_on_the_order_of_arms():
    rng = default_rng(1)
    every = [evidence_of(rng.permutation(12) / 100 + 0.01, np.zeros(12)) for _ in range(3)]
    every += [evidence_of(rng.normal(size=12), np.zeros(12)) for _ in range(3)]
    there, back = (judged_comparisons(one, Family(6), "max") for one in (every, every[::-1]))
    assert len({c.raw_p for c in there[:3]}) == 1 and all(c.decided for c in there[:3])
    assert [(c.low, c.high, c.p_value) for c in there] == [
        (c.low, c.high, c.p_value) for c in back[::-1]
    ]
    assert len({c.family.share([c.raw_p for c in there], i) for i, c in enumerate(there[:3])}) == 1


# One analysis: verdict, interval and p


@pytest.mark.parametrize("seed", range(6))
def test_a_verdict_its_interval_and_its_p_never_disagree(seed):
    """Over random families, designs, gaps, ties, margins, directions and earlier looks."""
    rng = default_rng(seed)
    for _ in range(30):
        size = int(rng.integers(1, 6))
        n = int(rng.integers(2, 13))
        mode = ["max", "min"][rng.integers(2)]
        folds = [None, 3, 5][rng.integers(3)]
        evidence = []
        for _ in range(size):
            a, b = np.round(rng.normal(size=(2, n)), 1)
            a = a + rng.choice([0, 1, 4])
            frame = pairs(a, b).assign(fold=[i % folds if folds else None for i in range(n)])
            frame["seed"] = [i // folds if folds else i for i in range(n)]
            lost = rng.uniform(size=(2, n)) < rng.choice([0, 0.15])
            frame = frame.assign(failed_a=lost[0], failed_b=lost[1])
            if (
                found := paired_evidence(frame, Design(folds=folds, seeds=n), mode=mode)
            ) is not None:
                evidence.append(found)
        family = Family(size, 0.05, [None, 1.5][rng.integers(2)])
        looks = [int(rng.integers(0, 3)) for _ in evidence]
        for judged in judge(evidence, family, mode, looks=looks):
            above = judged.low > 0
            below = judged.high < 0
            better, worse = (above, below) if mode == "max" else (below, above)
            assert (judged.verdict == "better", judged.verdict == "worse") == (better, worse)
            assert (judged.p_value <= family.alpha) == (better or worse)
            if judged.verdict == "equivalent":
                assert -1.5 < judged.low <= 0 <= judged.high < 1.5
            within = family.margin is not None and judged.equivalence_p <= family.alpha
            assert (judged.verdict == "equivalent") == (within and not (better or worse))


def test_an_end_that_is_next_to_zero_and_a_p_next_to_alpha_show_their_side():
    assert span(0.03, 0.0004, 0.0596) == "+0.0300 [+0.0004, +0.0596]"
    assert span(0.03, 0.0, 0.06) == "+0.030 [+0.000, +0.060]"
    assert p_text(0.0496, 0.05) == "= 0.05" and p_text(0.0502, 0.05) == "= 0.0502"
    assert p_text(0.04, 0.05) == "= 0.04"
    assert within(-1.0, 1.0, (-1.0, 1.0)) == (-math.inf, math.inf)


def test_a_metric_of_any_size_shows_its_digits():
    assert span(-2e-9, -2.2e-9, -1.8e-9) == "-0.0000000020 [-0.0000000022, -0.0000000018]"
    assert span(0.1, 0.1 - 1e-12, 0.1 + 1e-12) == "+0.10000000 [+0.10000000, +0.10000000]"


def test_one_seed_on_folds_says_that_it_holds_for_this_seed():
    rng = default_rng(0)
    one = compare_paired(rng.normal(0.9, 0.01, 5), rng.normal(0.8, 0.01, 5), train_fraction=0.8)
    assert one.verdict == "better" and one.notes == (ONE_SEED,) and "for this seed only" in ONE_SEED
    folds = [0, 1, 2, 3, 4] * 2
    seeds = [0] * 5 + [1] * 5
    two = compare_paired(
        rng.normal(0.9, 0.01, 10),
        rng.normal(0.8, 0.01, 10),
        train_fraction=0.8,
        folds=folds,
        seeds=seeds,
    )
    assert two.notes == ()


def test_one_seed_of_the_review_is_no_surer_than_what_is_known_of_seeds():
    """It decided by +.355 [.340, .371] what two seeds put at +.30."""
    d = [0.3511, 0.355, 0.3589]
    folds = [0, 1, 2]
    low, high = contrast(d, folds=folds, seeds=[0] * 3).interval()
    assert low == pytest.approx(0.340, abs=1e-3) and high == pytest.approx(0.371, abs=1e-3)
    unknown = contrast(d, folds=folds, seeds=[0] * 3, design=Design(folds=3, seed_part=SeedPart()))
    assert unknown.p_value() == 1 and unknown.p_below(1.0) == 0.5
    assert unknown.interval() == (-math.inf, math.inf)
    assert unknown.of_this_seed.interval() == pytest.approx((low, high))
    for seeds in (2, 4):
        part = SeedPart(0.055**2, seeds - 1.0, "pilot")
        known = contrast(d, folds=folds, seeds=[0] * 3, design=Design(folds=3, seed_part=part))
        assert known.interval()[0] < 0.30 < known.interval()[1]
        assert known.components.seed == part.variance
    anew = contrast(d, folds=folds, seeds=[0] * 3, design=Design(folds=3, seed_part=SeedPart(0.0)))
    assert anew.interval() == pytest.approx((low, high))
    two = contrast(
        [*d, *d],
        folds=folds * 2,
        seeds=[0] * 3 + [1] * 3,
        design=Design(folds=3, seed_part=SeedPart()),
    )
    assert math.isfinite(two.standard_error)


@given(
    st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=5),
    st.sampled_from([None, "a"]),
)
def test_the_size_of_a_family_is_the_number_of_its_pairs(cells, reference):
    assert pairs_of("abc", "b") == [("a", "b"), ("c", "b")]
    pairs = [[frozenset(pair) for pair in pairs_of(sorted(arms), reference)] for arms in cells]
    assert family_size(cells, reference) == len({pair for of_cell in pairs for pair in of_cell})
    assert family_size(cells, reference, "cells") == sum(map(len, pairs))
