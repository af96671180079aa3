"""Folds are a pure function of labels, groups and a rule."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from contrasweep.data.decoding import fold_order
from contrasweep.data.folds import assign, repeated
from contrasweep.data.manifest import Folds
from contrasweep.errors import SpecError


def sizes(assigned, count):
    return np.bincount(assigned, minlength=count).tolist()


EXPECTED = [0, 2, 0, 1, 1, 0, 2, 2, 0, 1]
EXPECTED_GROUPED = [0, 0, 1, 1, 0, 0, 1, 1, 2, 2]
LABELS = st.lists(st.integers(0, 4), min_size=10, max_size=120)


@settings(max_examples=60)
@given(LABELS, st.integers(2, 10), st.integers(0, 3))
def test_stratified_folds_differ_by_at_most_one_row_in_total_and_per_class(labels, count, seed):
    assigned = assign(labels, None, None, Folds(count, "stratified", seed))
    counted = sizes(assigned, count)
    assert sum(counted) == len(labels) and max(counted) - min(counted) <= 1
    for label in set(labels):
        members = sizes(assigned[np.asarray(labels) == label], count)
        assert max(members) - min(members) <= 1


@pytest.mark.slow
@settings(max_examples=60)
@given(LABELS, st.integers(2, 6), st.integers(0, 3), st.data())
def test_grouped_folds_never_split_a_group_and_none_is_empty(labels, count, seed, data):
    names = (
        st.one_of(st.text("abcd", max_size=2), st.none())
        if data.draw(st.booleans())
        else st.integers(0, 20)
    )
    groups = data.draw(st.lists(names, min_size=len(labels), max_size=len(labels)))
    named = {group for group in groups if group not in (None, "")}
    if len(named) + groups.count(None) + groups.count("") < count:
        with refused(SpecError, match=r"groups? cannot fill"):
            assign(labels, groups, None, Folds(count, "grouped", seed))
        return
    assigned = assign(labels, groups, None, Folds(count, "grouped", seed))
    assert min(sizes(assigned, count)) > 0
    for group in named:
        assert len(set(assigned[np.asarray(groups) == group])) == 1


def test_rows_without_a_group_are_dealt_one_by_one():
    assigned = assign([0, 1] * 10, ["", None] * 8 + ["a"] * 4, None, Folds(5, "grouped"))
    assert sizes(assigned, 5) == [4] * 5 and len(set(assigned[16:])) == 1
    numbers = [float("nan")] * 16 + [7.0] * 4  # as pandas writes numbers of which some are missing
    assert assign([0, 1] * 10, numbers, None, Folds(5, "grouped")).tolist() == assigned.tolist()


def test_grouped_folds_are_balanced_where_groups_allow_it():
    random = np.random.RandomState(0)
    labels = random.randint(0, 4, 2000)
    assigned = assign(labels, random.randint(0, 200, 2000), None, Folds(5, "grouped"))
    per_class = np.array([sizes(assigned[labels == c], 5) for c in range(4)])
    assert per_class.min() > 0.9 * per_class.mean() and per_class.max() < 1.1 * per_class.mean()


def test_many_groups_of_many_classes_take_little_memory():
    """As of a thousand classes with `copies=together`, where an image without a copy is a group."""
    tracemalloc.start()
    assigned = assign(np.arange(2000) % 1000, np.arange(2000), None, Folds(2, "grouped"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sizes(assigned[:1000], 2) == sizes(assigned[1000:], 2)[::-1] and peak < 2**21


def test_the_same_folds_on_any_machine():
    """Values computed once: whoever changes them changes the folds of finished tables."""
    labels = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert assign(labels, None, None, Folds(3)).tolist() == EXPECTED
    assert (
        assign(labels, list("aabbccddee"), None, Folds(3, "grouped")).tolist() == EXPECTED_GROUPED
    )
    assert assign(labels, None, None, Folds(3, "stratified", 1)).tolist() != EXPECTED


def test_given_folds_are_taken_as_they_are():
    assert assign([0] * 4, None, [1, 0, 1, 0], Folds(2, "given")).tolist() == [1, 0, 1, 0]
    with refused(SpecError, match=r"its own folds \[0, 1\].*got 5; use folds=2"):
        assign([0] * 6, None, [1, 0, 1, 0, 1, 0], Folds(5, "given"))


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        (Folds(11), "10 rows cannot fill 11 folds"),
        (Folds(1), "at least 2 folds"),
        (Folds(2, "random"), "known rules: given, grouped, stratified"),
        (Folds(2, "grouped"), "need a group column"),
        (Folds(2, "given"), "need a fold column"),
    ],
)
def test_what_cannot_be_dealt_is_a_spec_error(folds, message):
    with refused(SpecError, match=message):
        assign([0] * 10, None, None, folds)


def test_a_repeat_is_another_partition_of_the_same_seed_or_refused_where_there_is_one_alone():
    labels = np.arange(40) % 4
    first, second, third = (
        repeated(labels, None, None, Folds(4, seed=3), repeat) for repeat in range(3)
    )
    assert first.tolist() == assign(labels, None, None, Folds(4, seed=3)).tolist()
    assert second.tolist() == assign(labels, None, None, Folds(4, seed=4)).tolist()
    assert first.tolist() != second.tolist() != third.tolist()
    with refused(SpecError, "'given' partitions these rows in one way only, got 2; add seeds"):
        repeated([0] * 4, None, [1, 0, 1, 0], Folds(2, "given"), 1)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=60))
def test_every_part_of_every_fold_is_one_stretch_of_the_fold_order(assigned):
    assigned = [0, 1, 2, 3, *assigned]
    order, starts = fold_order(np.asarray(assigned), 4)
    assert len(order) == 2 * len(assigned) - assigned.count(3)
    for fold in range(4):
        low = starts[fold]
        high = starts[fold + 1]
        test = order[low:high]
        train = order[high : high + len(assigned) - (high - low)]
        assert sorted(test.tolist()) == [i for i, f in enumerate(assigned) if f == fold]
        assert sorted(train.tolist()) == [i for i, f in enumerate(assigned) if f != fold]
