"""Spaces: what may be drawn, what may not, and what is refused."""

import itertools
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from contrasweep import Arm, canonical
from contrasweep.errors import SpecError
from contrasweep.study.space import (
    Choice,
    Float,
    Int,
    configurations,
    drawn_from,
    exists,
    levels,
    ordered,
    sample,
)

UNIT = st.floats(0, 1)
FLOATS = st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.booleans()).map(
    lambda t: Float(min(t[:2]), max(t[:2]), log=t[2])
)
INTS = st.tuples(st.integers(1, 500), st.integers(1, 500), st.booleans()).map(
    lambda t: Int(min(t[:2]), max(t[:2]), log=t[2])
)
CHOICES = st.lists(st.one_of(st.text(max_size=3), st.integers()), min_size=1, max_size=5).map(
    Choice
)


@given(st.one_of(FLOATS, INTS, CHOICES), UNIT)
def test_what_is_drawn_is_in_the_space(parameter, u):
    assert parameter.holds(parameter.at(u))


@given(st.one_of(FLOATS, INTS), UNIT, UNIT)
def test_a_larger_coordinate_never_gives_a_smaller_value(parameter, u, v):
    low, high = sorted((u, v))
    assert parameter.at(low) <= parameter.at(high)


@given(FLOATS)
def test_both_ends_are_reached(parameter):
    values = parameter.grid(2)  # one where both are the same
    assert [values[0], values[-1]] == pytest.approx([parameter.low, parameter.high])


def test_steps_are_kept():
    assert {Float(0, 1, step=0.25).at(i / 100) for i in range(101)} == {0, 0.25, 0.5, 0.75, 1.0}
    assert {Int(2, 9, step=3).at(i / 100) for i in range(101)} == {2, 5, 8}


def test_every_integer_has_its_share():
    drawn = [Int(1, 4).at((i + 0.5) / 400) for i in range(400)]
    assert [drawn.count(k) for k in (1, 2, 3, 4)] == [100] * 4


def test_of_options_that_hold_one_another_the_one_that_was_trained_is_named():
    options = ["sgd", {"name": "sgd", "momentum": 0.9}]
    for choice in (options, options[::-1]):
        trained = {"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": False}}
        assert drawn_from({"optimizer": Choice(choice)}, trained) == {"optimizer": options[1]}
        plain = {"optimizer": {"name": "sgd", "momentum": 0.0, "nesterov": False}}
        assert drawn_from({"optimizer": Choice(choice)}, plain) == {"optimizer": "sgd"}


def test_a_conditional_is_there_only_under_its_condition():
    space = {
        "epsilon": Float(0, 0.5, when={"loss": "sincere"}),
        "loss": Choice(["supcon", "sincere"]),
    }
    assert ordered(space) == ["loss", "epsilon"]
    assert sample(space, [0.5, 0.1]) == {"loss": "supcon"}
    assert sample(space, [0.5, 0.9]) == {"loss": "sincere", "epsilon": 0.25}
    for loss in ("supcon", "sincere"):  # a trial's settings have the defaults, too
        drawn = drawn_from(space, {"loss": loss, "epsilon": 0.25})
        assert set(drawn) == {"loss"} | ({"epsilon"} if loss == "sincere" else set())


ENDS = st.decimals(-100, 100, places=3, allow_nan=False)
RANGES = st.tuples(
    ENDS, st.decimals("0.001", 5, places=3), st.integers(0, 30), st.decimals(0, "0.9", places=1)
).map(lambda t: Float(float(t[0]), float(t[0] + t[1] * (t[2] + t[3])), step=float(t[1])))
"""Ranges as people type them, with up to 31 values; the last step may stop short of the high end."""


@given(RANGES, UNIT)
def test_what_goes_in_steps_is_one_list_of_the_numbers_that_people_type(parameter, u):
    values = [parameter.value(i) for i in range(levels(parameter))]
    typed = [
        float(Decimal(str(parameter.low)) + i * Decimal(str(parameter.step)))
        for i in range(len(values))
    ]
    assert values == typed == [config["t"] for config in configurations({"t": parameter}).values()]
    assert parameter.low == values[0]
    assert parameter.high - parameter.step < values[-1] <= parameter.high
    assert parameter.at(u) in values and set(parameter.grid(7)) <= set(values)
    assert all(
        parameter.holds(value) and parameter.index(value) == i for i, value in enumerate(values)
    )
    assert not any(parameter.holds(value + parameter.step / 3) for value in values)


@pytest.mark.parametrize("low", [0, 0.1, 0.2])
def test_no_plain_range_draws_a_value_above_its_end(low):
    steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.025, 0.03, 0.05, 0.07, 0.1, 0.2, 0.25]
    for step, count in itertools.product(steps, range(1, 12)):
        parameter = Float(low, float(Decimal(str(low)) + count * Decimal(str(step))), step=step)
        assert levels(parameter) == count + 1 and parameter.at(1.0) == parameter.high


def test_a_value_between_two_steps_is_none_of_a_range():
    assert not Int(2, 9, step=3).holds(3) and Int(2, 9, step=3).holds(8)
    with refused(SpecError, "high: a range is at most 1e+150 wide"):
        Int(1, 10**400, log=True)
    with refused(SpecError, "searched: t (from 0.1 in steps of 0.1)"):
        Arm("toy:train", space={"t": Float(0.1, 0.3, step=0.1)}, start_points=[{"t": 0.15}])
    space = {"n": Int(1, 9), "t": Float(0, 1)}
    point = {"n": np.int64(2), "t": np.float32(0.5)}
    assert Arm("toy:train", space=space, start_points=[point]).start_points == [{"n": 2, "t": 0.5}]


@given(
    st.permutations(
        [
            1,
            True,
            "1",
            0,
            False,
            None,
            [1],
            [True],
            {"name": "adam"},
            "adam",
            {"name": "adam", "b": 1},
        ]
    )
)
def test_options_that_python_holds_equal_are_told_apart(options):
    choice = Choice(options)
    space = {"x": choice}
    for i, option in enumerate(options):
        assert choice.holds(option) and choice.index(option) == i
        drawn = drawn_from(space, {"x": option})["x"]
        if not (
            isinstance(option, dict) or option == "adam"
        ):  # a component may be named in several ways
            assert type(drawn) is type(option) and canonical.same(drawn, option)
    assert not Choice([1]).holds(True) and not Choice([True]).holds(1) and Choice([1]).holds(1.0)
    assert exists({"y": Int(0, 1, when={"x": 1})}, "y", {"x": 1}, {})
    assert not exists({"y": Int(0, 1, when={"x": 1})}, "y", {"x": True}, {})
