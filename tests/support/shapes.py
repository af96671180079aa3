"""Types and shapes of calls, checked while tests run: the checker that jaxtyping's import hook puts around them."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping

CALLS_A_TEST = 10
"""How many calls of a function are checked in each test: a property's hundredth example costs no more checks."""
_calls: dict[int, int] = {}


@functools.cache
def _checker() -> Callable[..., Any]:
    """What is imported here takes seconds, which the process that only starts the workers does without."""
    from beartype import BeartypeConf, BeartypeHintOverrides, beartype
    from numpy.typing import ArrayLike
    from torch import Tensor

    number = float | int | jaxtyping.Float[Tensor, ""]  # an int, as mypy has it; a tensor where members' numbers differ
    overrides = BeartypeHintOverrides({ArrayLike: object, float: number})  # ArrayLike's protocols refuse tuples
    return functools.partial(beartype, conf=BeartypeConf(hint_overrides=overrides))


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
        checked = checked or _checker()(function)
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
