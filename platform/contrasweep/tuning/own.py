"""Searchers and pruners of somebody else's: built in one way."""

import inspect
from collections.abc import Callable
from typing import Any, Literal

from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named


def built(
    kind: Literal["searcher", "pruner"], name: str, target: Callable[..., Any], *first: Any, options: Config
) -> Any:
    """`target(*first, **options)`, of what stands at the dotted path `name`. `SpecError` where it does not take the
    options, or fails."""
    try:
        inspect.signature(target).bind(*first, **options)
    except TypeError as error:
        raise SpecError(
            f"the {kind} does not take these options", place=f"{kind}_options", value=dict(options), hint=str(error)
        ) from None
    except ValueError:  # of a class written in C, whose arguments nobody knows
        pass
    with errors_named(f"{name} cannot be built as a {kind}", kind):
        return target(*first, **options)
