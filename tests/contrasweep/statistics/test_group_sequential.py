"""Looks at growing data: critical values against rpact's and gsDesign's, and what a family comes to after each look."""

import numpy as np
import pytest
from numpy.random import default_rng
from scipy import special

from contrasweep import SpecError
from contrasweep.statistics.family import Family
from contrasweep.statistics.group_sequential import Looks, conditional_power, judge_looks


def looks_at(information, spending="obrien-fleming"):
    """Looks at these numbers of replicates, the last of which is the end of the spending."""
    shares = tuple(n / information[-1] for n in information)
    return Looks(tuple(information), shares, spending)


LOOKS = looks_at(range(5, 41, 5))


def sequential_p(looks, p):
    """The smallest level at which any of these looks would have decided, of p-values [..., looks]."""
    return np.min([looks.repeated_p(p[..., k], k) for k in range(p.shape[-1])], axis=0)


@pytest.mark.parametrize(
    ("spending", "looks", "values"),
    [  # getDesignGroupSequential(alpha = 0.025, typeOfDesign = "asOF" / "asKD", gammaA = 2)
        ("obrien-fleming", 2, [2.9626, 1.9686]),
        ("obrien-fleming", 3, [3.7103, 2.5114, 1.9930]),
        ("obrien-fleming", 5, [4.8769, 3.3570, 2.6803, 2.2898, 2.0310]),
        ("power", 5, [3.0902, 2.7141, 2.4728, 2.2799, 2.1140]),
    ],
)
def test_critical_values_are_those_of_rpact(spending, looks, values):
    assert looks_at(range(1, looks + 1), spending).critical_values(0.05) == pytest.approx(
        values, abs=1e-4
    )


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.05 / 18])
@pytest.mark.parametrize("look", [2, 4, 7])
def test_a_p_at_the_nominal_level_has_alpha_as_its_sequential_p(alpha, look):
    p = np.full(look + 1, 0.9)
    p[look] = LOOKS.nominal_levels(alpha)[look]
    assert sequential_p(LOOKS, p) == pytest.approx(alpha, rel=2e-3)
    p[look] *= 1.05
    assert sequential_p(LOOKS, p) > alpha


def test_a_sequential_p_never_rises_and_one_look_is_an_ordinary_test():
    p = default_rng(0).uniform(size=(200, 8))
    path = np.stack([sequential_p(LOOKS, p[:, : k + 1]) for k in range(8)], axis=1)
    assert (np.diff(path, axis=1) <= 0).all() and (path[:, -1] >= p.min(axis=1) * 0.99).all()
    only = np.array([[0.004], [0.04], [0.3]])
    assert sequential_p(looks_at([10]), only) == pytest.approx(only[:, 0], rel=5e-3)


def test_what_was_spent_before_an_extension_stays_spent():
    """Extended from 20 to 40 after a look at 10 of 20, the looks to come have less than those of a new study."""
    extended = Looks((10.0, 20.0, 30.0, 40.0), (0.5, 2 / 3, 5 / 6, 1.0), "power")
    fresh = looks_at([10, 20, 30, 40], "power")
    assert extended.critical_values(0.05)[0] == pytest.approx(
        looks_at([10, 20], "power").critical_values(0.05)[0]
    )
    assert extended.critical_values(0.05)[-1] > fresh.critical_values(0.05)[-1]


@pytest.mark.parametrize("bad", [((), ()), ((5.0, 5.0), (0.5, 1.0)), ((5.0, 10.0), (0.5, 1.2))])
def test_looks_that_do_not_follow_one_another_are_refused(bad):
    with pytest.raises(SpecError, match="looks come one after the other"):
        Looks(*bad)


def test_conditional_power_is_the_chance_by_simulation():
    rng = default_rng(1)
    time = 0.4
    drift = 3.0
    critical = 2.2
    first = rng.normal(np.sqrt(time) * drift, 1, 400_000)
    chosen = first[np.abs(first - 1.0) < 0.05]
    last = np.sqrt(time) * chosen + np.sqrt(1 - time) * rng.normal(
        np.sqrt(1 - time) * drift, 1, len(chosen)
    )
    assert conditional_power(1.0, time, critical, drift) == pytest.approx(
        (last >= critical).mean(), abs=0.01
    )


def p_of(z):
    return [2 * special.ndtr(-abs(x)) for x in z]


def test_a_comparison_that_is_decided_passes_its_level_on_to_the_others():
    strict, mild = (LOOKS.critical_values(level)[3] + 0.01 for level in (0.05 / 2, 0.05))
    clear, less, none = (p_of([0.5, 0.9, 1.2, z]) for z in (strict, mild, 0.1))
    decided = [
        [s.decision in ("better", "worse") for s in judge_looks(pair, [1.0, 1.0], LOOKS, Family(2))]
        for pair in ([clear, none], [less, none], [less, clear])
    ]
    assert mild < strict and decided == [[True, False], [False, False], [True, True]]


def test_no_difference_is_futile_before_the_end_and_undecided_at_it():
    standings = [
        judge_looks([p_of([0.1] * k)], [0.01], LOOKS, Family(18))[0].decision for k in range(1, 9)
    ]
    assert standings[0] == "open" and standings[5] == "futile" and standings[-1] == "open"


def test_with_a_margin_a_small_difference_is_equivalent_before_it_is_futile():
    fits = {"equivalence_p": [[0.4, 0.1, 0.001, 1e-6]], "standard_errors": [0.1]}
    standing = judge_looks([p_of([0.1] * 4)], [0.01], LOOKS, Family(3, margin=0.5), **fits)[0]
    assert standing.decision == "equivalent" and standing.equivalence_p <= 0.05
    # what collapses to come may overturn waits, also with so small a difference
    waits = judge_looks(
        [p_of([0.1] * 4)], [0.01], LOOKS, Family(3, margin=0.5), **fits, may_decide=[False]
    )[0]
    assert waits.decision == "open" and waits.equivalence_p == 1
    coarse = judge_looks(
        [p_of([0.1] * 6)],
        [0.01],
        LOOKS,
        Family(3, margin=0.1),
        equivalence_p=[[0.4] * 6],
        standard_errors=[0.1],
    )
    assert coarse[0].decision == "futile"


def test_a_difference_far_above_the_margin_is_not_futile_because_the_margin_is_small():
    """Of a true difference of 0.02 little would be decided; but 0.3 is seen, ten standard errors of the last look."""
    seen = {"equivalence_p": [[1.0]], "standard_errors": [0.031]}
    small, large = (
        judge_looks([p_of([z])], [estimate], LOOKS, Family(6, margin=0.02), **seen)[0].decision
        for z, estimate in ((0.5, 0.01), (2.5, 0.3))
    )
    assert (small, large) == ("futile", "open")


@pytest.mark.parametrize(
    ("looks", "most"), [([2, 3, 4, 5], 1.35), ([6, 8, 10, 12], 1.2), ([5, 20], 1.06)]
)
def test_looks_at_t_statistics_hold_their_level_once_their_inflation_is_counted(looks, most):
    """By other draws than those that it is measured by; without it they err more often than alpha."""
    planned = looks_at(looks, "power")
    alpha = 0.05
    studies = 60_000
    inflation = planned.t_inflation(alpha)
    assert 1 <= inflation < most and looks_at([5]).t_inflation(alpha) == pytest.approx(1, abs=0.02)
    values = default_rng(7).normal(size=(studies, looks[-1]))
    p = [
        2
        * special.stdtr(
            n - 1, -np.abs(values[:, :n].mean(1) / values[:, :n].std(1, ddof=1) * np.sqrt(n))
        )
        for n in looks
    ]
    sequential = sequential_p(planned, np.stack(p, axis=1))
    plain = (sequential <= alpha).mean()
    counted = (sequential * inflation <= alpha).mean()
    assert counted == pytest.approx(alpha, abs=3 * np.sqrt(alpha / studies)) and plain >= counted


def test_an_inflation_makes_every_p_larger_and_every_interval_wider():
    plain, strict = (
        judge_looks([[0.3, 0.004]], [1.0], LOOKS, Family(1), inflation=x)[0] for x in (1.0, 1.2)
    )
    assert strict.p_value == pytest.approx(1.2 * plain.p_value) and strict.level < plain.level


@pytest.mark.parametrize("seed", range(4))
def test_a_look_decides_exactly_where_its_p_is_at_most_the_level_of_its_interval(seed):
    """Whatever the others come to: Holm's step, spending and inflation are in the level; what was decided passes on."""
    rng = default_rng(seed)
    for _ in range(40):
        m = int(rng.integers(1, 6))
        looks = int(rng.integers(1, 8))
        p = rng.uniform(size=(m, looks)) ** rng.integers(1, 12)
        decided = rng.uniform(size=m) < 0.3
        family = Family(m + int(rng.integers(0, 3)), 0.05, [None, 1.0][rng.integers(2)])
        standings = judge_looks(
            p,
            rng.normal(size=m),
            LOOKS,
            family,
            decided=decided,
            inflation=float(rng.uniform(1, 1.3)),
        )
        for own, standing in zip(p[:, -1], standings, strict=True):
            assert (
                (standing.p_value <= 0.05)
                == (own <= standing.level)
                == (standing.decision in ("better", "worse"))
            )


def test_repeated_p_and_level_are_each_other_s_inverse():
    for look in range(2, 8):  # before, the bound of small levels is at the end of double precision
        for alpha in (0.04, 0.01, 1e-4):
            assert LOOKS.repeated_p(LOOKS.level_at(alpha, look), look) == pytest.approx(
                alpha, rel=1e-9
            )
            assert LOOKS.level_at(alpha, look) == pytest.approx(
                LOOKS.nominal_levels(alpha)[look], rel=0.02
            )
