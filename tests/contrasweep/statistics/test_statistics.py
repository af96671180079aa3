"""Statistics: against published code, by hand, by law, and by simulation in short (benchmarks/statistics_simulation.py
in full)."""

import dataclasses
import json
import math

import numpy as np
import pytest
from benchmarks.paired import compare_paired
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats

from contrasweep.statistics.design import Design, contrast
from contrasweep.statistics.family import Family
from contrasweep.statistics.power_of_designs import PlannedPower, detectable_effect, power, t_power
from contrasweep.statistics.resampling import sign_flip_interval, sign_flip_p
from contrasweep.statistics.unpaired import unpaired_contrast

numbers = st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=2, max_size=12)


def correlated(rng, studies, n, rho):
    """Null differences [studies, n] of unit variance in which any two replicates correlate by rho."""
    shared = np.sqrt(rho) * rng.normal(size=(studies, 1))
    return shared + np.sqrt(1 - rho) * rng.normal(size=(studies, n))


# Against published code


@pytest.mark.parametrize("n", [2, 5, 8, 9])
def test_sign_flip_equals_scipys_exact_permutation_test_and_its_interval_excludes_0_from_p_on(n):
    rng = default_rng(0)
    for d in (rng.normal(0.4, 1, n), rng.integers(0, 3, n) - 0.5, rng.integers(-2, 4, n)):
        theirs = stats.permutation_test(
            (d, np.zeros(n)),
            lambda x, y: np.mean(x - y),
            permutation_type="samples",
            n_resamples=np.inf,
        )
        p = sign_flip_p(d)
        assert p == pytest.approx(theirs.pvalue)
        excluded = [np.prod(sign_flip_interval(d, p - lower)) > 0 for lower in (0, 2**-n)]
        assert excluded == [True, False]


def test_reference_significance_of_product_scores(shared):
    golden = json.loads((shared / "goldens/mrhp.json").read_text())["significance"]
    comparison = compare_paired(golden["system_a"], golden["system_b"], train_fraction=1 - 1e-13)
    assert comparison.p_value == pytest.approx(golden["p_two_sided"], abs=1e-9)
    assert comparison.verdict == "undecided"


# Laws


@settings(max_examples=40)
@given(numbers, st.sampled_from([None, 0.8]))
def test_swapping_the_sides_turns_everything_round(d, fraction):
    zeros = [0.0] * len(d)
    one = compare_paired(d, zeros, train_fraction=fraction)
    other = compare_paired(zeros, d, train_fraction=fraction)
    assert other.p_value == pytest.approx(one.p_value)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=1e-9)
    assert other.verdict == one.reversed().verdict


# Degenerate and bad input


def test_a_constant_difference_is_no_certainty():
    a = np.linspace(0.1, 0.7, 6)
    comparison = compare_paired(a + 0.1, a, train_fraction=0.8)
    assert (comparison.low, comparison.high) == pytest.approx((0.1, 0.1))
    assert comparison.p_value == 2 / 2**6
    assert str(comparison).endswith(", the same in every replicate.")
    folds = contrast([0.5, -0.1, -0.1, 0.5] * 3, folds=sorted([*range(6)] * 2), seeds=[0, 1] * 6)
    assert folds.p_value() > 0.05, "seeds differ within folds of one mean"
    unpaired = unpaired_contrast(np.full(3, 0.5), np.full(3, 0.6))
    assert unpaired.p_value() == 2 / 2**3
    few = compare_paired(a[:3] + 0.1, a[:3], train_fraction=0.8)
    assert str(few).endswith("p = 0.25, the same in every replicate, so that there is no interval.")


# By simulation, short


def within(hits, nominal):
    """Whether a simulated rate is within the 99.9 % binomial range of its nominal value."""
    low, high = stats.binom.interval(0.999, len(hits), nominal)
    return bool(low <= hits.sum() <= high)


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 20])
def test_over_fresh_seeds_tests_keep_their_level_and_intervals_cover(n):
    found = [contrast(d) for d in default_rng(n).normal(size=(600, n))]
    attained = min(0.05, math.floor(0.05 * 2 ** (n - 1)) / 2 ** (n - 1))
    assert within(np.array([one.p_value() <= 0.05 for one in found]), attained)
    heavy = default_rng(n).standard_t(3, size=(600, n))
    held = sum(low <= 0 <= high for low, high in (contrast(d).interval() for d in heavy))
    assert held >= stats.binom.ppf(0.0005, 600, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 25])
def test_over_correlated_folds_tests_keep_their_level_and_intervals_cover(n):
    d = correlated(default_rng(n), 800, n, rho=0.2)
    found = [contrast(x, folds=range(n), design=Design(folds=5)) for x in d]
    assert within(np.array([one.p_value() <= 0.05 for one in found]), 0.05)
    assert within(
        np.array([not low <= 0 <= high for low, high in (one.interval() for one in found)]), 0.05
    )
    naive = np.mean(stats.ttest_1samp(d, 0, axis=1).pvalue <= 0.05)
    assert naive > 0.12  # what the correction is for: 0.13 at 5 folds, above 0.4 at 25


@pytest.mark.slow
@pytest.mark.parametrize("effect", [2.0, 1.2])
def test_as_many_seeds_as_power_asks_for_reach_it(effect):
    needed = next(n for n in range(2, 100) if power(n, effect) >= 0.8)
    d = effect + default_rng(1).normal(size=(800, needed))
    assert sum(contrast(x).p_value() <= 0.05 for x in d) >= stats.binom.ppf(0.001, 800, 0.8)


# Power and design


@pytest.mark.parametrize("df", [1, 29, 99_999])
@pytest.mark.parametrize("noncentrality", [0.0, 3.4, 30.0])
def test_power_of_a_t_test_is_that_of_the_noncentral_t(df, noncentrality):
    """Against `scipy.stats`, which power itself does not import."""
    critical = stats.t.isf(0.025, df)
    tails = stats.nct.sf(critical, df, noncentrality) + np.nan_to_num(
        stats.nct.cdf(-critical, df, noncentrality)
    )
    assert t_power(noncentrality, df, 0.05) == pytest.approx(tails, abs=1e-7)
    assert t_power(30.001, df, 0.001) == pytest.approx(t_power(30, df, 0.001), abs=0.004)


def test_detectable_effect_is_detected_with_80_percent():
    for n in (10, 30):
        assert power(n, detectable_effect(n)) == pytest.approx(0.8, abs=1e-4)
    assert math.isinf(detectable_effect(1))
    assert detectable_effect(5) == pytest.approx(1.682, abs=2e-3)


def test_a_plan_has_the_power_of_its_own_family():
    """Three arms in six cells on eight seeds: what pairs of arms decide, single cells do not."""
    assert PlannedPower(Design(seeds=150), Family(1)).warnings == ()
    forty_arms = PlannedPower(Design(seeds=5), Family(780))
    assert forty_arms.warnings[0].endswith("takes differences as normal"), "no seeds are exact"
    overall = PlannedPower(Design(seeds=8), Family(3), what="overall")
    cells = PlannedPower(Design(seeds=8), Family(18), what="cells")
    assert cells.least > overall.least
    assert power(8, cells.least, alpha=0.05 / 18) == pytest.approx(0.8, abs=1e-3)
    assert "cells, 18 comparisons: a difference below" in cells.sentence
    assert "alpha / 18 = 0.0028: the t-test decides" in cells.warnings[0]
    assert "10 seeds" in cells.warnings[0]


def test_a_plan_that_decides_the_declared_difference_has_no_warning():
    """It called the design too small by spreads, whatever was declared to matter."""
    power = PlannedPower(Design(folds=5, seeds=1), Family(1, margin=0.02))
    assert power.warnings[0].startswith("only large differences are decided; 7 seeds on each fold")
    assert dataclasses.replace(power, in_units=0.03).warnings
    assert dataclasses.replace(power, in_units=0.01).warnings == ()


@pytest.mark.slow
def test_a_plan_says_which_design_decides_nothing_and_what_would():
    assert (
        "nothing can be decided: one replicate tells nothing about noise; add seeds or folds"
        in PlannedPower(Design(seeds=1), Family(1)).warnings[0]
    )
    two = PlannedPower(Design(folds=2), Family(1))
    assert two.least > 10 and "hardly anything" in two.warnings[0]
    five = PlannedPower(Design(folds=5), Family(3))
    assert t_power(five.least / math.sqrt(1 / 5 + 1 / 4), 4, 0.05 / 3) == pytest.approx(
        0.8, abs=1e-3
    )
    many = PlannedPower(Design(folds=5, seeds=9), Family(3))
    assert many.least == pytest.approx(five.least / 3), "seeds average out what training draws"
    assert "12 seeds on each fold would decide one spread" in five.warnings[0]
    assert PlannedPower(Design(seeds=40), Family(1)).warnings == ()


# Resampling
