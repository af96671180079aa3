"""The referee of a stream of candidates: its laws for any history and any differences."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats

from contrasweep import SpecError
from contrasweep.statistics.referee import Confirmation, Gains, Rule, surely_smaller

RULE = Rule()
numbers = st.floats(-1e6, 1e6, allow_nan=False)
seeds = st.lists(st.one_of(numbers, st.just(math.nan)), min_size=8, max_size=24)


HISTORIES = given(st.lists(st.booleans(), max_size=60), st.floats(0.001, 0.5))


def confirmed(rule, outcomes):
    """Yield what was confirmed so far, after each of these outcomes."""
    past = []
    for kept in outcomes:
        past.append(Confirmation(rule.granted(past), kept, 0.0))
        yield past


@HISTORIES
def test_levels_of_what_was_not_kept_never_exceed_alpha_whatever_the_history(outcomes, alpha):
    for past in confirmed(Rule(alpha=alpha, error="family"), outcomes):
        assert 0 < past[-1].level <= alpha
        assert sum(one.level for one in past if not one.kept) <= alpha * (1 + 1e-9)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_several_confirmations_at_once_never_have_more_than_alpha_between_them(events):
    """What is not decided yet counts as not kept; each event grants a level, or decides an open confirmation."""
    past = []
    undecided = []
    for position, kept in events:
        if position < len(undecided):
            at = undecided.pop(position)
            past[at] = Confirmation(past[at].level, kept, 0.0)
        else:
            undecided.append(len(past))
            past.append(Confirmation(RULE.granted(past), False, 1.0))
        assert sum(one.level for one in past if not one.kept) <= 0.05 + 1e-12


@HISTORIES
def test_levels_of_fdr_never_exceed_alpha_for_each_that_was_kept(outcomes, alpha):
    """The estimate of the false discovery rate that LORD++ bounds: all levels so far over the number kept."""
    for past in confirmed(Rule(alpha=alpha, error="fdr"), outcomes):
        assert sum(one.level for one in past) <= alpha * max(
            1, sum(one.kept for one in past[:-1])
        ) * (1 + 1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=20),
    st.sampled_from(["family", "fdr"]),
)
def test_a_ledger_that_spent_more_than_alpha_is_granted_nothing(entries, error):
    past = [Confirmation(level, kept, 0.0) for level, kept in entries]
    spent = sum(one.level for one in past if error == "fdr" or not one.kept)
    granted = Rule(error=error).granted(past)
    assert granted == 0 or granted + spent <= 0.05 * max(1, sum(one.kept for one in past)) + 1e-12


@given(st.floats(1e-6, 0.05), st.integers(1, 40))
def test_all_looks_of_a_confirmation_spend_no_more_than_its_level(level, looks):
    assert sum(RULE.look_level(level, look) for look in range(looks)) <= level * (1 + 1e-9)


@settings(max_examples=50)
@given(seeds, st.randoms(use_true_random=False))
def test_the_order_of_seeds_does_not_matter_and_the_same_data_give_the_same_ruling(
    differences, random
):
    shuffled = list(differences)
    random.shuffle(shuffled)
    assert RULE.screen(shuffled) == RULE.screen(differences)
    assert RULE.confirm(shuffled, 0.05, 4) == RULE.confirm(differences, 0.05, 4)


@settings(max_examples=50)
@given(st.lists(numbers, min_size=8, max_size=24), st.sampled_from([None, 0.5]))
def test_mode_min_mirrors_mode_max(differences, margin):
    up = Rule(margin=margin)
    down = Rule(margin=margin, mode="min")
    mirrored = [-d for d in differences]
    assert down.screen(mirrored) == up.screen(differences)
    one = up.confirm(differences, 0.05, 2)
    other = down.confirm(mirrored, 0.05, 2)
    assert (other.verdict, other.p, other.why) == (one.verdict, one.p, one.why)
    assert (other.low, other.estimate, other.high) == (-one.high, -one.estimate, -one.low)


@settings(max_examples=50)
@given(st.lists(numbers, min_size=8, max_size=24), st.sampled_from([None, 0.1, 5.0]))
def test_a_candidate_is_kept_only_where_its_interval_is_above_zero_whatever_the_margin(
    differences, margin
):
    ruling = Rule(margin=margin).confirm(differences, 0.05, 4)
    plain = RULE.confirm(differences, 0.05, 4)
    assert (ruling.p, ruling.low, ruling.estimate, ruling.high) == (
        plain.p,
        plain.low,
        plain.estimate,
        plain.high,
    )
    assert ruling.verdict != "equivalent" or max(-ruling.low, ruling.high) < margin
    assert ruling.low <= ruling.estimate <= ruling.high
    level = RULE.look_level(0.05, 4)
    assert (ruling.p <= level) == (ruling.low > 0) and ruling.confidence == 1 - 2 * level
    assert ruling.verdict != "keep" or ruling.low > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"first": 0},
        {"step": 0},
        {"first": 4, "step": 3, "most": 6},
        {"first": 40},
        {"first": 1, "step": 1},
    ],
)
def test_a_rule_has_seeds_for_a_second_look(fields):
    with pytest.raises(SpecError, match="seeds: "):
        Rule(**fields)


@pytest.mark.parametrize("sizes", [range(1, 9), [1.0] * 8, [0, 0, 1, 1, 2, 3, 5, 40]])
def test_no_more_than_the_level_of_all_sign_patterns_keep_at_any_look(sizes):
    """Exact under sign symmetry with ties and zeros: each pattern of signs is as likely where nothing has changed."""
    rule = Rule(first=2, step=2, most=8, screen_level=0.2)
    level = 0.3
    kept = 0
    for signs in itertools.product([-1, 1], repeat=8):
        d = np.array(signs) * np.array(sizes, dtype=float)
        kept += any(
            rule.confirm(d[:n], level, look).verdict == "keep"
            for look, n in enumerate(rule.looks())
        )
    assert 0 < kept / 2**8 <= level


def test_the_p_and_the_estimate_are_those_of_wilcoxon_and_of_hodges_and_lehmann():
    d = default_rng(6).normal(0.5, size=12)
    ruling = RULE.confirm(d, 0.05, 1)
    assert ruling.p == pytest.approx(
        stats.wilcoxon(d, alternative="greater", method="exact").pvalue
    )
    assert ruling.estimate == pytest.approx(
        np.median([(a + b) / 2 for i, a in enumerate(d) for b in d[i:]])
    )


def test_a_screen_stops_the_hopeless_early_and_passes_the_promising_at_the_end_only():
    assert RULE.screen([1, 1.1, 1.2]) == "more"
    assert RULE.screen([1, 1.1, 1.2, 1.3]) == "more"
    assert RULE.screen([-1, -1.1, -1.2, 0.3]) == "stop"
    assert RULE.screen([1, 1.1, 1.2, 1.3, 0.9, 0.8, -0.1, 0.7]) == "pass"
    assert RULE.screen([1, 1.1, -1.2, -1.3, 0.9, 0.8, -0.1, -0.7]) == "stop"
    open_still = [1, 1.1, 1.2, -1.3, 0.9, 0.8, -0.1, -0.7]
    assert RULE.screens() == (4, 8, 12) and RULE.screen(open_still) == "more"
    assert RULE.screen([*open_still, 1, 1.1, 1.2, 1.3]) == "pass"
    assert RULE.screen([*open_still, 1, -1.1, 1.2, -1.3]) == "stop"


def test_a_candidate_that_computes_the_same_is_not_confirmed():
    assert RULE.screen([0.0] * 4) == "stop"
    assert RULE.confirm([0.0] * 8, 0.05, 0).verdict == "discard"


@pytest.mark.parametrize("bad", [math.nan, -30.0])
def test_a_candidate_that_fails_more_often_is_not_kept_however_good_its_other_seeds(bad):
    good = list(default_rng(1).normal(2.0, 0.3, 26))
    assert RULE.confirm([*good, *[1.0] * 6], 0.05, 6).verdict == "keep"
    ruling = RULE.confirm([*good, *[bad] * 6], 0.05, 6)
    assert ruling.verdict == "discard" and "failed or collapsed in 6 of 32" in ruling.why


def test_seeds_that_collapse_in_both_arms_do_not_hide_a_gain():
    d = default_rng(2).normal(1.5, 1.0, 32)
    d[:2], d[2:4] = -30.0, 30.0
    ruling = RULE.confirm(d, 0.01, 6)
    assert ruling.verdict == "keep" and 1.0 < ruling.estimate < 2.0
    assert stats.ttest_1samp(d, 0).pvalue > 0.3


def test_a_gain_outweighs_the_collapses_that_may_not_have_shown_or_is_not_kept():
    d = default_rng(3).normal(0.5, 0.3, 32)
    assert RULE.confirm(d, 0.05, 6).verdict == "keep", "nobody collapsed"
    ruling = RULE.confirm(d, 0.05, 6, falls=[0.0, 20.0, 21.0])
    assert ruling.verdict == "discard"
    assert ruling.why.startswith("up to 12% of its seeds may collapse, which would")
    assert RULE.confirm(d, 0.05, 6, falls=[3.0]).verdict == "keep", (
        "12 % of 3 are less than the gain"
    )
    assert RULE.confirm(d, 0.05, 6, falls=[5.0], screened=[0.5] * 12).verdict == "keep", (
        "of 44 seeds at most 9 %"
    )
    assert RULE.confirm(d, 0.05, 6, falls=[5.0]).verdict == "discard"
    gone = np.append(d[:31], 20.0)
    assert RULE.confirm(gone, 0.05, 6, falls=[20.0]).verdict == "keep", (
        "the incumbent collapses too"
    )


def test_collapses_down_to_the_worst_value_delay_a_keep_to_the_last_look_which_tells_of_them():
    d = default_rng(3).normal(0.5, 0.3, 32)
    some = np.linspace(0.1, 0.9, 16)
    said = [RULE.confirm(some, 0.05, 2, depth=depth).verdict for depth in (1, 20, 0)]
    assert said == ["keep", "more", "more"], (
        "a depth of 16 median distances is presumed where nobody knows"
    )
    assert RULE.confirm(some, 0.05, 2, falls=[1.0]).verdict == "keep", "the campaign shows how deep"
    assert RULE.confirm(some + 5, 0.05, 2).verdict == "keep", (
        "such collapses would not outweigh a clear gain"
    )
    last = RULE.confirm(d, 0.05, 6, depth=20)
    assert last.verdict == "keep" and last.why == "up to 12% of its seeds may collapse unseen"
    assert RULE.confirm(d, 0.05, 6, depth=1).why == ""


def test_only_collapses_that_are_deep_beside_the_noise_tell_how_deep_others_are():
    rng = default_rng(4)
    assert [Gains(rng.normal(size=32)).collapse_depth for _ in range(20)] == [0.0] * 20
    assert Gains([]).collapse_depth == 0.0  # of a screen whose trials were removed
    assert Gains(
        np.append(rng.normal(size=30), [-20.0, -24.0, -math.inf])
    ).collapse_depth == pytest.approx(22, abs=0.5)


def test_a_noisy_size_is_smaller_only_where_noise_does_not_explain_it():
    rng = default_rng(5)
    assert np.mean([surely_smaller(rng.normal(size=8), 0.05) for _ in range(2000)]) <= 0.06
    assert surely_smaller(rng.normal(3, 1, size=8), 0.05) and surely_smaller([10.0] * 4, 0.001)
    assert not surely_smaller([0.0] * 8, 0.05) and not surely_smaller([-1.0] * 8, 0.05)
    assert not surely_smaller([math.nan] * 8, 0.05)


def test_a_difference_that_does_not_matter_is_equivalent_and_what_could_be_decided_is_undecided():
    tiny = default_rng(4).normal(0, 0.1, 24)
    assert Rule(margin=0.5).confirm(tiny, 0.05, 4).verdict == "equivalent"
    close = default_rng(9).normal(0.5, 1.0, 32)
    ruling = RULE.confirm(close, 0.01, 6)
    assert ruling.verdict == "undecided" and 0.1 <= RULE.chance(close, 0.01, 32) < 0.9


def test_a_simpler_candidate_is_kept_for_losing_less_than_matters_and_not_for_losing_more():
    rule = Rule(margin=0.5, simpler=True)
    noise = default_rng(10).normal(0, 0.4, 32)
    same, worse, better = (rule.confirm(noise + shift, 0.05, 6) for shift in (0.0, -0.5, 0.5))
    assert (same.verdict, worse.verdict, better.verdict) == ("equivalent", "discard", "keep")
    assert -0.5 < same.low < 0 < same.high
    assert same.low == pytest.approx(RULE.confirm(noise, 0.05, 6).low)
    assert rule.screen(noise[:12]) == "pass" and RULE.screen(noise[:12] - 0.1) == "stop"


@pytest.mark.slow
def test_the_chance_of_a_decision_is_that_of_the_seeds_that_follow():
    """Of campaigns at this point, the mean of the chances that were told and the share that came to be kept agree."""
    rng = default_rng(8)
    told = []
    kept = 0
    for _ in range(200):
        d = rng.normal(rng.choice([0.0, 0.5, 1.0]), 1.0, 32)
        told.append(RULE.chance(d[:16], 0.01, 16))
        kept += RULE.confirm(d, 0.01, 6).verdict == "keep"
    assert np.mean(told) == pytest.approx(kept / 200, abs=0.06)


def test_a_hopeless_confirmation_ends_before_its_last_look_and_a_hopeful_one_goes_on():
    worse = default_rng(5).normal(-0.5, 1, 12)
    better = default_rng(5).normal(0.6, 1, 8)
    assert RULE.confirm(worse, 0.025, 1).verdict == "discard"
    assert RULE.confirm(better, 0.0001, 0).verdict == "more"
    assert (
        RULE.confirm(better, 0.0, 0).verdict == "discard"
    )  # where nothing is left no trial can help


@pytest.mark.parametrize(("most", "count"), [(8, 2), (12, 9), (16, 35), (20, 129)])
def test_so_many_confirmations_may_keep_nothing_until_no_result_of_few_seeds_is_enough(most, count):
    """As docs/keep-or-discard.md says."""
    rule = Rule(most=most)
    past = []
    last = len(rule.looks()) - 1
    while 0.5**most <= rule.look_level(rule.granted(past), last):
        past.append(Confirmation(rule.granted(past), False, 1.0))
    assert len(past) == count
