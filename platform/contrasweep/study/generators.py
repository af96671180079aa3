"""Whether what an arm names can be trained: a generator function that takes a trial and a checkpoint's folder."""

import functools
import inspect
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from contrasweep.errors import SpecError

SIGNATURE = "def train(trial, resume=None)"
_GENERATORS = (Generator, Iterator, Iterable)


def check_trainable(function: Callable[..., Any], place: str) -> None:
    """`SpecError` at `place` where `function` is no generator function or cannot be called as
    `function(trial, resume=folder)`.

    A function that returns another one's generator is taken at its word, if its return type says so.
    """
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isclass(function):
        raise SpecError("a trainable is a generator function, not a class", place=place, value=name, hint=SIGNATURE)
    try:
        inspect.signature(function).bind("trial", resume=None)
    except TypeError as error:
        raise SpecError(
            "a trainable takes a trial and the folder of a checkpoint",
            place=place,
            value=f"{name}{inspect.signature(function)}",
            hint=f"{error}; declare it as {SIGNATURE}",
        ) from None
    except ValueError:  # of a builtin, which has no signature
        pass
    if not _generates(function):
        raise SpecError(
            "a trainable is a generator function",
            place=place,
            value=name,
            hint="use `yield Report(step, metrics)`, or where it returns another function's generator, declare it as "
            "`-> Generator[Report, None, None]`",
        )


def _generates(function: Callable[..., Any]) -> bool:
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__  # type: ignore[operator]  # an object with a method __call__
    if inspect.isgeneratorfunction(inner):
        return True
    returned = getattr(inner, "__annotations__", {}).get("return")
    if isinstance(returned, str):
        return any(kind.__name__ in returned for kind in _GENERATORS)
    return (typing.get_origin(returned) or returned) in _GENERATORS
