"""Early stopping rules: laws that hold for each, and what each one decides by hand."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep import SpecError
from contrasweep.schedule import SCHEDULERS, build


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_the_only_trial_is_never_stopped(name):
    scheduler = build(name, mode="max", budget=1)
    scheduler.add("a", 0, 0)
    assert all(scheduler.decide("a", step, 0.1) for step in range(1, 30))


@pytest.mark.parametrize("name", ["asha", "median"])
@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_worst_stops_and_the_best_goes_on(name, mode):
    sign = 1 if mode == "max" else -1
    scheduler = build(name, mode=mode, budget=10)
    for i in range(9):
        scheduler.add(f"t{i}", i, 0)
        for step in (1, 2, 3):
            scheduler.decide(f"t{i}", step, sign * 0.1 * (9 - i))
    scheduler.add("best", 9, 0)
    assert all(scheduler.decide("best", step, sign * 2.0) for step in range(1, 10))
    scheduler.add("worst", 10, 0)
    assert not all(scheduler.decide("worst", step, -sign * 1.0) for step in (1, 2, 3))


@pytest.mark.parametrize("name", ["asha", "median"])
def test_folds_are_not_compared_with_each_other(name):
    scheduler = build(name, mode="max", budget=10, **({"reduction": 2} if name == "asha" else {}))
    for i in range(6):
        scheduler.add(f"easy{i}", i, 0)
        scheduler.decide(f"easy{i}", 1, 0.9)
    scheduler.add("hard", 0, 1)
    assert scheduler.decide("hard", 1, 0.2)


def test_asha_keeps_the_best_third_of_those_before():
    scheduler = build("asha", mode="max", budget=9)
    kept = []
    for i, value in enumerate([0.1, 0.2, 0.3, 0.25, 0.9]):
        scheduler.add(str(i), i, 0)
        kept.append(scheduler.decide(str(i), 1, value))
    assert kept == [True, True, True, False, True]


def run_halving(curves, order, reduction=2, bracket=4, steps=8, folds=2, mode="max"):
    """Drive halving as an engine would: `curves[config][fold]` is a constant value; `order` permutes who is next.
    Returns the steps each trial trained."""
    scheduler = build("halving", mode=mode, budget=len(curves), folds=folds, reduction=reduction, bracket=bracket)
    trials = {f"{c}/{f}": (c, f) for c in range(len(curves)) for f in range(folds)}
    for trial, (config, fold) in trials.items():
        scheduler.add(trial, config, fold)
    reached = dict.fromkeys(trials, 0)
    running = list(trials)
    turns = itertools.cycle(order)
    while running:
        trial = running[next(turns) % len(running)]
        reached[trial] += 1
        config, fold = trials[trial]
        if reached[trial] == steps:
            scheduler.end(trial)
            running.remove(trial)
        elif not scheduler.decide(trial, reached[trial], curves[config][fold]):
            running.remove(trial)
        running += scheduler.promoted()
    assert not any(scheduler.waiting(trial) for trial in trials)
    return reached


def test_halving_judges_by_the_mean_over_folds():
    """Config 1 has the single best fold and config 0 the best mean."""
    reached = run_halving([[0.6, 0.6], [0.9, 0.1], [0.3, 0.3], [0.2, 0.2]], [0])
    assert reached == {"0/0": 8, "0/1": 8, "1/0": 2, "1/1": 2, "2/0": 1, "2/1": 1, "3/0": 1, "3/1": 1}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=9),
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_halving_does_not_depend_on_the_order_of_reports(curves, one, other):
    first = run_halving(curves, one)
    assert first == run_halving(curves, other)
    assert all(first[f"{c}/0"] == first[f"{c}/1"] for c in range(len(curves)))
    brackets = range(0, len(curves), 4)
    assert sum(steps == 8 for steps in first.values()) == 2 * len(brackets)


def test_halving_waits_for_all_peers_and_drops_a_failed_configuration():
    scheduler = build("halving", mode="max", budget=2, reduction=2, bracket=2)
    scheduler.add("a", 0, 0)
    assert not scheduler.decide("a", 1, 0.9)
    assert scheduler.waiting("a") and scheduler.promoted() == []
    scheduler.add("b", 1, 0)
    scheduler.end("b", failed=True)
    assert scheduler.promoted() == ["a"] and scheduler.promoted() == []


def test_halving_closes_a_bracket_that_stays_short():
    scheduler = build("halving", mode="max", budget=9, reduction=3)
    for i in range(2):
        scheduler.add(str(i), i, 0)
        scheduler.decide(str(i), 1, 0.1 * i)
    assert scheduler.promoted() == []
    scheduler.close(2)
    assert scheduler.promoted() == ["1"] and not scheduler.waiting("0")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("ahsa", {}, "scheduler: there is no such scheduler, got 'ahsa'; did you mean 'asha'"),
        ("asha", {"eta": 3}, "the scheduler does not take these options"),
        ("halving", {"reduction": 1}, "scheduler_options.reduction: reduction must be a whole number of at least 2, got 1"),
    ],
)
def test_a_wrong_scheduler_is_refused(name, options, says):
    with pytest.raises(SpecError) as caught:
        build(name, mode="max", budget=9, **options)
    assert says in str(caught.value)
