"""Spaces: what may be drawn, what may not, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasweep.errors import SpecError
from contrasweep.study.space import Choice, Float, Int, check, ordered, sample

UNIT = st.floats(0, 1)
FLOATS = st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.booleans()).map(
    lambda t: Float(min(t[:2]), max(t[:2]), log=t[2])
)
INTS = st.tuples(st.integers(1, 500), st.integers(1, 500), st.booleans()).map(
    lambda t: Int(min(t[:2]), max(t[:2]), log=t[2])
)
CHOICES = st.lists(st.one_of(st.text(max_size=3), st.integers()), min_size=1, max_size=5).map(Choice)


@given(st.one_of(FLOATS, INTS, CHOICES), UNIT)
def test_what_is_drawn_is_in_the_space(parameter, u):
    assert parameter.holds(parameter.at(u))


@given(st.one_of(FLOATS, INTS), UNIT, UNIT)
def test_a_larger_coordinate_never_gives_a_smaller_value(parameter, u, v):
    low, high = sorted((u, v))
    assert parameter.at(low) <= parameter.at(high)


@given(FLOATS)
def test_both_ends_are_reached(parameter):
    assert parameter.grid(2) == pytest.approx([parameter.low, parameter.high])


def test_steps_are_kept():
    assert {Float(0, 1, step=0.25).at(i / 100) for i in range(101)} == {0, 0.25, 0.5, 0.75, 1.0}
    assert {Int(2, 9, step=3).at(i / 100) for i in range(101)} == {2, 5, 8}


def test_every_integer_has_its_share():
    drawn = [Int(1, 4).at((i + 0.5) / 400) for i in range(400)]
    assert [drawn.count(k) for k in (1, 2, 3, 4)] == [100] * 4


def test_a_conditional_is_there_only_under_its_condition():
    space = {"epsilon": Float(0, 0.5, when={"loss": "sincere"}), "loss": Choice(["supcon", "sincere"])}
    assert ordered(space) == ["loss", "epsilon"]
    assert sample(space, [0.5, 0.1]) == {"loss": "supcon"}
    assert sample(space, [0.5, 0.9]) == {"loss": "sincere", "epsilon": 0.25}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Float(2, 1), "low must not exceed high"),
        (lambda: Float(0, 1, log=True), "a logarithmic range must start above 0"),
        (lambda: Float(1, 2, log=True, step=0.1), "takes no step"),
        (lambda: Int(1, 3, step=0), "step must be above 0"),
        (lambda: Int(1, "x"), "high: input should be a valid integer"),
        (lambda: Choice([]), "at least one option"),
        (lambda: Float(1, 2, logg=True), "did you mean 'log'?"),
        (lambda: check({"a": Float(0, 1, when={"b": 1})}, {}), "names no parameter"),
        (lambda: check({"a": Int(0, 1, when={"b": 1}), "b": Int(0, 1, when={"a": 1})}, {}), "in a circle"),
    ],
)
def test_a_wrong_space_is_refused_in_one_line(make, says):
    with pytest.raises(SpecError) as caught:
        make()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
