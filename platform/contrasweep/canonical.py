"""Canonical texts of values: equal values have equal texts, and so equal digests, on any machine; digests of files."""

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from contrasweep import config
from contrasweep.errors import SpecError, quoting


def canonical(value: Any, place: str = "") -> Any:
    """Return `value` as plain JSON values: sorted string keys, lists for tuples, 1 for 1.0.

    1 and 1.0 are one value: YAML, JSON and Python write it differently, and that must not give two trial ids.
    Raises `SpecError` for what has no such form (NaN, infinity, callables, arrays, lone surrogates). The error's place
    is `place`, where `value` stands, followed by the keys and indexes inside `value`: `loss.steps[2]`.
    """
    return _plain(value, place, as_integer=True)


def same(value: Any, other: Any) -> bool:
    """Whether two values count as one: 1 and 1.0 do; 1 and True do not, though Python holds them equal."""
    return bool(value == other) and dumps(value) == dumps(other)


def _plain(value: Any, place: str, as_integer: bool) -> Any:
    """Return the plain JSON values of `value`, which stands at `place`; with `as_integer`, 1.0 becomes 1."""
    if isinstance(value, str):
        return _encodable(value, place)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError("a config value must be finite", place=place, value=value)
        # From 2**53 on floats skip integers: the value may be a rounded one, and stays a float.
        is_exact = value.is_integer() and abs(value) < 2**53
        return int(value) if as_integer and is_exact else float(value)
    # Most mappings are dicts, for which the first test is faster.
    if type(value) is dict or isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise SpecError(
                    "config keys must be text", place=place, value=key, hint=quoting(key)
                )
            _encodable(key, place)
        return {
            key: _plain(value[key], f"{place}.{key}".lstrip("."), as_integer)
            for key in sorted(value)
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{i}]", as_integer) for i, item in enumerate(value)]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # numpy scalars
        return _plain(value.item(), place, as_integer)
    raise SpecError(
        "a config value must be text, a number, a bool, null, or a list or mapping of these",
        place=place,
        value=value,
    )


def _encodable(text: str, place: str) -> str:
    """Return `text`; raise `SpecError` where it has no UTF-8, as half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise SpecError(
                "a text must have a UTF-8 form, without lone surrogates", place=place, value=text
            ) from None
    return text


def dumps(value: Any) -> str:
    """Return the one JSON text that all equal values share: keys sorted, no spaces, 1 for 1.0.

    Raises `SpecError` for what `canonical` refuses, such as NaN or a function.
    """
    return text_of(canonical(value))


def label(value: Any) -> str:
    """Return a value of an axis as text for tables and trackers, such as `0.1`, `10` or `[1, 2]`.

    A number has all its digits: 10.0 is `10`, and no two numbers have one text. A missing value (None, NaN) is an en
    dash, a list or mapping is JSON.
    """
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    # NaN and pandas' NA are missing values too; the text "nan" is a text.
    if value is None or (not isinstance(value, str) and str(value) in ("nan", "<NA>")):
        return "–"
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    if value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    # Six digits where they say the whole number, otherwise all that it has.
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


text_of = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""The JSON text of a value that is canonical already, without a check of that."""


class Config(config.MutableConfig):
    """A mapping of plain values that keeps its canonical text, because all replicates of a cell share one config.

    In the canonical text 1.0 is written 1. The mapping itself keeps 1.0 as a float, so a trainable gets the type that
    was declared.
    """

    def __init__(self, value: config.Config, place: str = "") -> None:
        super().__init__(_plain(value, place, as_integer=False))

    @cached_property
    def text(self) -> str:
        """Return the canonical JSON text, computed once."""
        return dumps(self)


def digest(value: Any, length: int = 64) -> str:
    """Return the first `length` (at most 64) hexadecimal digits of the SHA-256 of `value`'s canonical text."""
    return hashlib.sha256(dumps(value).encode()).hexdigest()[:length]


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file's content, 64 hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
