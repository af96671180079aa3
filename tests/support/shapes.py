"""Types and shapes of calls, checked while tests run, by jaxtyping and beartype."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jaxtyping

CALLS_A_TEST = 10
"""How many first calls of a function are checked in each test, and later ones ever more rarely."""
_calls: dict[Callable[..., Any], int] = {}
_jaxtyped = jaxtyping.jaxtyped


@functools.cache
def _checker() -> Callable[..., Any]:
    """What is imported here takes seconds, which the process that only starts the workers does without."""
    from beartype import BeartypeConf, BeartypeHintOverrides, beartype
    from numpy.typing import ArrayLike
    from torch import Tensor

    number = (
        float | int | jaxtyping.Float[Tensor, ""]
    )  # an int, as mypy has it, or a tensor that is learned
    overrides = BeartypeHintOverrides(
        {ArrayLike: object, float: number}
    )  # ArrayLike's protocols refuse tuples
    return functools.partial(beartype, conf=BeartypeConf(hint_overrides=overrides))


def install(modules: Sequence[str]) -> None:
    """Check the calls of what these modules define, which nothing has imported yet. jaxtyping's own decorator costs
    every call more than most of our functions take, and is built for each of 1,500 functions, of which a process calls
    few: ours stands in its place and calls it for some calls alone."""
    jaxtyping.jaxtyped = lambda typechecker: _checked
    jaxtyping.install_import_hook(modules, None)


def _checked(target: Any) -> Any:
    """`target`, checked: a function in any of its forms; of a class, what makes an instance of a dataclass."""
    if inspect.isclass(target):
        if dataclasses.is_dataclass(target) and "__init__" in vars(target):
            target.__init__ = _some_calls(target.__init__)
        return target
    if isinstance(target, classmethod | staticmethod):
        return type(target)(_some_calls(target.__func__))
    if isinstance(target, property):
        return property(*(f and _some_calls(f) for f in (target.fget, target.fset, target.fdel)))
    return _some_calls(target)


def _some_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of whose calls the first ten of each test are checked, and the 16th, 32nd and so on.

    It is a plain function without a closure, as `function` is: what counts a trial's memory is kept for no other.
    """

    @functools.wraps(function)
    def limited(*args: Any, _function: Callable[..., Any] = function, **kwargs: Any) -> Any:
        count = _calls[_function] = _calls.get(_function, 0) + 1
        if count > CALLS_A_TEST and count & (count - 1):
            return _function(*args, **kwargs)
        return _with_checks(_function)(*args, **kwargs)

    return limited


@functools.cache
def _with_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    return _jaxtyped(function, typechecker=_checker())


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
