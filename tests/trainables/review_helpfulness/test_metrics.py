"""Laws of the ranking metrics."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from contrasweep.errors import SpecError
from contrasweep.trainables.review_helpfulness.metrics import (
    METRICS,
    per_product,
    random_order_metrics,
)

rows = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.floats(-5, 5)), min_size=1, max_size=20
)


@settings(max_examples=60)
@given(rows, st.integers(0, 2))
def test_ideal_order_is_best_and_all_values_are_shares(data, threshold):
    products, labels, scores = zip(*data, strict=True)
    result = per_product(
        labels=labels, scores=scores, products=products, threshold=threshold
    ).mean()
    ideal = per_product(labels=labels, scores=labels, products=products, threshold=threshold).mean()
    for metric in METRICS:
        assert 0 <= result[metric] <= ideal[metric] + 1e-12 <= 1 + 1e-9


@settings(max_examples=40)
@given(rows)
def test_only_the_order_counts(data):
    products, labels, scores = zip(*data, strict=True)
    scores = [round(s, 3) for s in scores]  # apart by more than what a shift rounds away
    expected = per_product(labels=labels, scores=scores, products=products, threshold=1).mean()
    shifted = per_product(
        labels=labels, scores=[2 * s + 1 for s in scores], products=products, threshold=1
    ).mean()
    assert shifted == expected


def test_ties_keep_the_order_of_rows():
    first = per_product(labels=[4, 0], scores=[0, 0], products=[1, 1], threshold=1).mean()
    last = per_product(labels=[0, 4], scores=[0, 0], products=[1, 1], threshold=1).mean()
    assert (first["map"], last["map"]) == (1.0, 0.5)


def test_a_score_that_is_no_number_is_refused():
    with refused(SpecError, "finite"):
        per_product(labels=[1, 2], scores=[0.0, float("nan")], products=[1, 1], threshold=0).mean()
    with refused(SpecError, "equally long"):
        per_product(labels=[1], scores=[0.0, 1.0], products=[1, 1], threshold=0).mean()


@pytest.mark.slow
def test_random_order_has_its_expectation():
    """One relevant review of two: its average precision is 1 or 1/2, so 3/4 on average."""
    result = random_order_metrics(labels=[4, 0], products=["a", "a"], threshold=1, draws=2000)
    assert result.values["map"][0] == pytest.approx(0.75, abs=0.02)
