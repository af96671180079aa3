"""Types and shapes of calls, checked while tests run: the checker that jaxtyping's import hook puts around them."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping
from beartype import BeartypeConf, BeartypeHintOverrides, beartype
from numpy.typing import ArrayLike

CALLS_A_TEST = 10
"""How many calls of a function are checked in each test: a property's hundredth example costs no more checks."""
_CONFIG = BeartypeConf(
    is_pep484_tower=True,  # an int may stand for a float, as mypy has it
    hint_overrides=BeartypeHintOverrides({ArrayLike: object}),  # its protocols refuse a tuple of numbers
)
_calls: dict[int, int] = {}


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which only takes and returns values of annotated types, for the first calls of each test."""
    checked = beartype(function, conf=_CONFIG)
    key = id(checked)

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        count = _calls[key] = _calls.get(key, 0) + 1
        return checked(*args, **kwargs) if count <= CALLS_A_TEST else None

    limited.checked = checked  # type: ignore[attr-defined]  # kept, so that its id stays its own
    return limited


def next_test() -> None:
    """Check the next calls of every function again."""
    _calls.clear()


@contextmanager
def unchecked() -> Iterator[None]:
    """No checks inside: for tests of what the code itself says of a wrong shape or type."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
