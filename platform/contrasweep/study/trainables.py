"""The trainable that an arm names: found by its path, and asked whether a config suits it."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from contrasweep.errors import SpecError, choose_from
from contrasweep.study.study import Arm


def trainable_path(arm: Arm) -> str:
    """The dotted path of an arm's trainable, which is part of its trials' identity."""
    if isinstance(arm.trainable, str):
        return arm.trainable
    return f"{arm.trainable.__module__}:{arm.trainable.__qualname__}"


def find_trainable(arm: Arm, place: str) -> Callable[..., Any]:
    """The arm's generator function; `SpecError` at `place` when its path leads nowhere."""
    return arm.trainable if callable(arm.trainable) else import_path(arm.trainable, place)


def import_path(path: str, place: str) -> Callable[..., Any]:
    """What stands at the dotted path `package.module:name`."""
    module_name, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except ImportError as error:
        raise SpecError("the trainable's module cannot be imported", place=place, value=path, hint=str(error)) from None
    if not callable(found):
        module = importlib.import_module(module_name)
        known = [
            n
            for n, v in vars(module).items()
            if callable(v) and getattr(v, "__module__", "") == module_name and not n.startswith("_")
        ]
        raise SpecError(
            "the trainable's module has no such function",
            place=place,
            value=path,
            hint=choose_from("names", known, name),
        )
    return found  # type: ignore[no-any-return]


def check_settings(function: Callable[..., Any], config: Mapping[str, Any], axes: Mapping[str, Any], arm: str) -> None:
    """Build the trainable's `settings` from `config`, so that a wrong key or value costs nothing."""
    settings = getattr(function, "settings", None)
    if settings is None:
        return
    try:
        settings(**config)
    except SpecError as error:
        field_name = error.place.split(".")[0]
        raise error.at("axes" if field_name in axes else f"arms.{arm}.config") from None
