"""Canonical texts of values: equal values have equal texts, and so equal digests, on any machine."""

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from contrasweep import config
from contrasweep.errors import SpecError


def canonical(value: Any, place: str = "") -> Any:
    """Return `value` as plain JSON values: sorted string keys, lists for tuples, 1 for 1.0.

    1 and 1.0 are one value, because YAML, JSON and Python disagree about writing it and a trial must not.
    Raises `SpecError` for what has no such form (NaN, infinity, callables, arrays, lone surrogates), naming its place.
    """
    if isinstance(value, str):
        return _encodable(value, place)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError("a config value must be finite", place=place, value=value)
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if type(value) is dict or isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise SpecError("config keys must be text", place=place, value=key)
            _encodable(key, place)
        return {key: canonical(value[key], f"{place}.{key}".lstrip(".")) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [canonical(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # numpy scalars
        return canonical(value.item(), place)
    raise SpecError(
        "a config value must be text, a number, a bool, null, or a list or mapping of these", place=place, value=value
    )


def _encodable(text: str, place: str) -> str:
    """Return `text`; raise `SpecError` where it has no UTF-8, as half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise SpecError("a text must have a UTF-8 form, without lone surrogates", place=place, value=text) from None
    return text


def dumps(value: Any) -> str:
    """Canonical JSON text of `value`."""
    return text_of(canonical(value))


text_of = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""The JSON text of a value that is canonical already, without a check of that."""


class Config(config.MutableConfig):
    """A canonical mapping that keeps its text, because all replicates of a cell share one config."""

    def __init__(self, value: config.Config, place: str = "") -> None:
        super().__init__(canonical(value, place))

    @cached_property
    def text(self) -> str:
        """Return the canonical JSON text, computed once."""
        return text_of(self)


def digest(value: Any, length: int = 64) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of `value`'s canonical text."""
    return hashlib.sha256(dumps(value).encode()).hexdigest()[:length]
