"""Early stopping rules: laws that hold for each, and what each one decides by hand."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep.tuning.pruners import PRUNERS, build

WAITING = {"reduction": 2, "bracket": 4}


def halving(size, mode="max", **options):
    """One bracket of as many trials, of which one goes on."""
    return build("halving", mode=mode, budget=size, reduction=size, bracket=size, **options)


@pytest.mark.parametrize("name", list(PRUNERS))
def test_the_only_trial_is_never_stopped(name):
    pruner = build(name, mode="max", budget=1)
    pruner.add("a", 0, 0)
    assert all(pruner.on_report("a", step, 0.1) for step in range(1, 30))


@pytest.mark.parametrize("name", ["asha", "median"])
def test_the_worst_stops_and_the_best_goes_on(name):
    pruner = build(name, mode="max", budget=10)
    for i in range(9):
        pruner.add(f"t{i}", i, 0)
        for step in (1, 2, 3):
            pruner.on_report(f"t{i}", step, 0.1 * (9 - i))
    pruner.add("best", 9, 0)
    assert all(pruner.on_report("best", step, 2.0) for step in range(1, 10))
    pruner.add("worst", 10, 0)
    assert not all(pruner.on_report("worst", step, -1.0) for step in (1, 2, 3))


@pytest.mark.parametrize("name", list(PRUNERS))
@pytest.mark.parametrize("worst", [math.nan, math.inf, -math.inf, 1.79e308])
def test_what_counts_as_lost_is_the_worst_in_both_modes(name, worst):
    """The mean of two of 1.79e308 would overflow."""
    for mode in ("max", "min"):
        pruner = build(name, mode=mode, budget=9)
        for i in range(9):
            pruner.add(str(i), i, 0)
            decisions = [pruner.on_report(str(i), s, worst if i < 8 else 0.5) for s in (1, 2, 3)]
        assert decisions == [True] * 3


@pytest.mark.parametrize("name", ["asha", "median"])
def test_folds_are_not_compared_with_each_other(name):
    pruner = build(name, mode="max", budget=10, **({"reduction": 2} if name == "asha" else {}))
    for i in range(6):
        pruner.add(f"easy{i}", i, 0)
        pruner.on_report(f"easy{i}", 1, 0.9)
    pruner.add("hard", 0, 1)
    assert pruner.on_report("hard", 1, 0.2)


def test_asha_keeps_the_best_third_of_those_before():
    pruner = build("asha", mode="max", budget=9)
    kept = []
    for i, value in enumerate([0.1, 0.2, 0.3, 0.25, 0.9]):
        pruner.add(str(i), i, 0)
        kept.append(pruner.on_report(str(i), 1, value))
    assert kept == [True, True, True, False, True]


def test_asha_judges_a_trial_once_at_a_rung_also_after_a_lost_host():
    pruner = build("asha", mode="max", budget=None)
    for i in range(6):
        pruner.add(str(i), i, 0)
        assert pruner.on_report(str(i), 1, i / 10)
    assert pruner.on_report("0", 1, 0.0)
    pruner.add("worst", 6, 0)
    assert not any(pruner.on_report("worst", 1, value) for value in (-1.0, 9.0))


def test_asha_looks_at_rungs_alone():
    """At step 2, between the rungs 1 and 3, the worst of nine is not compared."""
    pruner = build("asha", mode="max", budget=9)
    for i in range(9):
        pruner.add(str(i), i, 0)
        values = ((1, i / 10), (2, 1 - i / 10))
        assert all(pruner.on_report(str(i), step, value) for step, value in values)


def test_median_stopping_leaves_a_trial_its_grace():
    pruner = build("median", mode="max", budget=9, grace_steps=3)
    for i in range(4):
        pruner.add(str(i), i, 0)
        decisions = [pruner.on_report(str(i), step, 0.1 if i == 3 else 0.9) for step in (1, 2, 3)]
    assert decisions == [True, True, False]
    pruner.add("4", 4, 0)
    assert all(pruner.on_report("4", step, 0.1) for step in (1, 2, 4)), "nobody has come as far"


def test_median_stopping_asks_only_trials_that_had_reported_by_this_step():
    """Four trials first report at step 5: at step 3 nothing can be said of them."""
    pruner = build("median", mode="max", budget=9)
    for i in range(5):
        pruner.add(str(i), i, 0)
    for i in range(4):
        pruner.on_report(str(i), 5, 0.9)
    assert [pruner.on_report("4", step, 0.1) for step in (3, 5)] == [True, False]


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("min", [0.9, 0.2, 0.5, 0.7], "1"),
        ("max", [math.nan, 0.2, 0.5, 0.7], "3"),
        ("min", [0.5, math.nan], "0"),
    ],
)
def test_halving_keeps_the_best_and_what_is_not_finite_is_worst(mode, values, best):
    pruner = halving(len(values), mode=mode)
    decisions = []
    for i, value in enumerate(values):
        pruner.add(str(i), i, 0)
        decisions.append(pruner.on_report(str(i), 1, value))
        pruner.on_end(str(i), stopped=True)
    assert pruner.resumable() == [best]
    assert decisions == [*[False] * (len(values) - 1), best == str(len(values) - 1)]


def run_halving(curves, order, known=True):
    """Drive halving as an engine would, on 2 folds for 8 steps: `curves[config][fold]` is a constant value; `order`
    permutes who is next; `known`: how many configurations come is known before. Returns the steps each trial
    trained."""
    folds = 2
    steps = 8
    pruner = build("halving", mode="max", budget=len(curves) if known else None, **WAITING)
    trials = {f"{c}/{f}": (c, f) for c in range(len(curves)) for f in range(folds)}
    for trial, (config, fold) in trials.items():
        pruner.add(trial, config, fold)
    reached = dict.fromkeys(trials, 0)
    running = list(trials)
    turns = itertools.cycle(order)
    if not known:
        pruner.on_search_end(len(curves))
    while running:
        trial = running[next(turns) % len(running)]
        reached[trial] += 1
        config, fold = trials[trial]
        if reached[trial] == steps:
            pruner.on_end(trial)
            running.remove(trial)
        elif not pruner.on_report(trial, reached[trial], curves[config][fold]):
            running.remove(trial)
        running += pruner.resumable()
    assert not any(pruner.is_paused(trial) for trial in trials)
    return reached


def test_halving_judges_by_the_mean_over_folds():
    """Config 1 has the single best fold and config 0 the best mean."""
    reached = run_halving([[0.6, 0.6], [0.9, 0.1], [0.3, 0.3], [0.2, 0.2]], [0])
    assert reached == {
        "0/0": 8,
        "0/1": 8,
        "1/0": 2,
        "1/1": 2,
        "2/0": 1,
        "2/1": 1,
        "3/0": 1,
        "3/1": 1,
    }


CURVES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=24)
ORDER = st.lists(st.integers(0, 50), min_size=1, max_size=20)


@pytest.mark.slow
@given(CURVES, ORDER, ORDER)
@settings(max_examples=60)
def test_what_waits_does_not_depend_on_the_order_of_reports(curves, one, other):
    first = run_halving(curves, one)
    assert first == run_halving(curves, other) == run_halving(curves, other, known=False)
    assert all(first[f"{c}/0"] == first[f"{c}/1"] for c in range(len(curves)))


@given(CURVES, ORDER)
@settings(max_examples=60)
def test_no_single_fold_kills_or_saves_a_configuration(curves, order):
    """Whatever its folds say one by one, who goes further than another of its bracket is as good by the mean."""
    reached = run_halving(curves, order)
    pruner = build("halving", mode="max", budget=len(curves), **WAITING)
    for a, b in itertools.combinations(range(len(curves)), 2):
        if (
            a // pruner.bracket_size == b // pruner.bracket_size
            and reached[f"{a}/0"] != reached[f"{b}/0"]
        ):
            further, other = (a, b) if reached[f"{a}/0"] > reached[f"{b}/0"] else (b, a)
            assert sum(curves[further]) >= sum(curves[other])


@pytest.mark.parametrize("failed", [True, False])
def test_halving_waits_for_all_peers_and_drops_one_that_ends_without_a_value(failed):
    pruner = halving(2)
    pruner.add("a", 0, 0)
    assert not pruner.on_report("a", 1, 0.9)
    assert pruner.is_paused("a") and pruner.resumable() == []
    pruner.add("b", 1, 0)
    pruner.on_end("b", failed=failed)
    assert pruner.resumable() == ["a"] and pruner.resumable() == []


def test_a_trial_that_ended_before_a_rung_counts_there_by_its_last_value_and_not_its_best():
    pruner = halving(2, min_step=4)
    for config, trial in enumerate("ab"):
        pruner.add(trial, config, 0)
    for step, value in ((1, 0.9), (2, 0.1)):
        pruner.on_report("a", step, value)
    pruner.on_end("a")
    assert pruner.on_report("b", 4, 0.5)


def test_a_trial_that_runs_again_counts_by_what_it_reports_then():
    """One that fitted no host had failed, and a larger one has joined."""
    pruner = halving(3)
    for config, trial in enumerate("abc"):
        pruner.add(trial, config, 0)
    pruner.on_end("b", failed=True)
    pruner.add("b", 1, 0)
    for trial, value in zip("abc", (0.1, 0.9, 0.2), strict=True):
        pruner.on_report(trial, 1, value)
    assert pruner.resumable() == ["b"]


def test_what_was_stopped_before_a_restart_is_promoted_whatever_the_order_of_replay():
    """The winner comes last in the replay, where a running trial would just go on; but it had been stopped."""
    pruner = halving(2)
    for config, (trial, value) in enumerate({"a": 0.1, "b": 0.9}.items()):
        pruner.add(trial, config, 0)
        pruner.on_report(trial, 1, value)
        pruner.on_end(trial, stopped=True)
    assert pruner.resumable() == ["b"] and not pruner.is_paused("a")


def test_halving_closes_a_bracket_that_stays_short():
    pruner = build("halving", mode="max", budget=9, reduction=3)
    for i in range(2):
        pruner.add(str(i), i, 0)
        pruner.on_report(str(i), 1, 0.1 * i)
    assert pruner.resumable() == []
    pruner.on_search_end(2)
    assert pruner.resumable() == ["1"] and not pruner.is_paused("0")
