"""Laws of the ranking metrics and of the tests over products."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from contrasweep.errors import SpecError
from contrasweep.trainables.review_helpfulness.metrics import (
    METRICS,
    label_from_votes,
    paired_bootstrap,
    paired_t,
    per_product,
    random_order_metrics,
    ranking_metrics,
)

rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.floats(-5, 5)), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(rows, st.integers(0, 2))
def test_ideal_order_is_best_and_all_values_are_shares(data: list[tuple[str, int, float]], threshold: int) -> None:
    products, labels, scores = zip(*data, strict=True)
    result = ranking_metrics(labels=labels, scores=scores, products=products, threshold=threshold)
    ideal = ranking_metrics(labels=labels, scores=labels, products=products, threshold=threshold)
    for metric in METRICS:
        assert 0 <= result[metric] <= ideal[metric] + 1e-12 <= 1 + 1e-9


@settings(max_examples=40, deadline=None)
@given(rows)
def test_only_the_order_counts(data: list[tuple[str, int, float]]) -> None:
    products, labels, scores = zip(*data, strict=True)
    scores = [round(s, 3) for s in scores]  # apart by more than what a shift rounds away
    expected = ranking_metrics(labels=labels, scores=scores, products=products, threshold=1)
    shifted = ranking_metrics(labels=labels, scores=[2 * s + 1 for s in scores], products=products, threshold=1)
    assert shifted == expected


def test_ties_keep_the_order_of_rows() -> None:
    first = ranking_metrics(labels=[4, 0], scores=[0, 0], products=[1, 1], threshold=1)
    last = ranking_metrics(labels=[0, 4], scores=[0, 0], products=[1, 1], threshold=1)
    assert (first["map"], last["map"]) == (1.0, 0.5)


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(SpecError, match="finite"):
        ranking_metrics(labels=[1, 2], scores=[0.0, float("nan")], products=[1, 1], threshold=0)
    with pytest.raises(SpecError, match="equally long"):
        ranking_metrics(labels=[1], scores=[0.0, 1.0], products=[1, 1], threshold=0)


@pytest.mark.slow
def test_random_order_has_its_expectation() -> None:
    """One relevant review of two: its average precision is 1 or 1/2, so 3/4 on average."""
    result = random_order_metrics(labels=[4, 0], products=["a", "a"], threshold=1, draws=2000)
    assert result.values["map"][0] == pytest.approx(0.75, abs=0.02)


def test_votes_at_the_powers_of_two() -> None:
    votes = [2**k + d for k in range(1, 7) for d in (-1, 0)]
    assert label_from_votes(votes).tolist() == [min(4, int(np.floor(np.log2(v)))) for v in votes]


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 30), st.integers(0, 10_000))
def test_paired_t_is_students(count: int, seed: int) -> None:
    a, b = np.random.default_rng(seed).random((2, count))
    expected = stats.ttest_rel(a, b)
    result = paired_t(a, b)
    assert (result.t, result.p) == pytest.approx((expected.statistic, expected.pvalue))


def test_paired_t_of_equal_and_of_constantly_different_systems() -> None:
    a = np.array([0.25, 0.5, 0.75])
    assert (paired_t(a, a).t, paired_t(a, a).p) == (0.0, 1.0)
    assert paired_t(a + 0.25, a).p == 0.0
    with pytest.raises(SpecError):
        paired_t([1.0], [2.0])


def test_paired_bootstrap() -> None:
    rng = np.random.default_rng(0)
    b = rng.random(200)
    better = paired_bootstrap(b + rng.normal(0.1, 0.1, 200), b, draws=2000)
    assert better["low"] > 0 and better["p"] < 0.01
    same = paired_bootstrap(b + rng.normal(0, 0.1, 200), b, draws=2000)
    assert same["low"] < 0 < same["high"]
    assert per_product(labels=[], scores=[], products=[], threshold=0).mean()["map"] == 0.0
