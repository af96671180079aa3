"""The trainable that an arm names: found by its path, and asked whether a config suits it."""

from collections.abc import Callable, Mapping
from typing import Any

from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.study.study import Arm


def trainable_path(arm: Arm) -> str:
    """The dotted path of an arm's trainable, which is part of its trials' identity."""
    if isinstance(arm.trainable, str):
        return arm.trainable
    return f"{arm.trainable.__module__}:{arm.trainable.__qualname__}"


def find_trainable(arm: Arm, place: str) -> Callable[..., Any]:
    """The arm's generator function; `SpecError` at `place` when its path leads nowhere."""
    return arm.trainable if callable(arm.trainable) else import_path(arm.trainable, place)


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
