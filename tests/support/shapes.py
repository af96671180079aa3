"""Types and shapes of calls, checked while tests run: the checker that jaxtyping's import hook puts around them."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping
from beartype import BeartypeConf, BeartypeHintOverrides, beartype
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

CALLS_A_TEST = 10
"""How many calls of a function are checked in each test: a property's hundredth example costs no more checks."""
_CONFIG = BeartypeConf(
    hint_overrides=BeartypeHintOverrides(
        {
            ArrayLike: object,  # its protocols refuse a tuple of numbers
            float: float | int | Float[Tensor, ""],  # an int, as mypy has it; a tensor where members' numbers differ
        }
    )
)
_calls: dict[int, int] = {}


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which only takes and returns values of annotated types, for the first calls of each test. The check
    is built at the first of them: most of the 1,500 functions are called in few processes."""
    checked: Callable[..., Any] | None = None
    key = id(function)

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        count = _calls[key] = _calls.get(key, 0) + 1
        if count > CALLS_A_TEST:
            return None
        checked = checked or beartype(function, conf=_CONFIG)
        return checked(*args, **kwargs)

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
