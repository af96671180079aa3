"""Reads the YAML of a study file as plain values, within limits, because a small file may expand to gigabytes."""

import math
from typing import Any

import yaml

from contrasweep.cluster.yaml_loader import KeyTwiceError, Loader
from contrasweep.errors import SpecError

MAX_CHARACTERS = 500_000
MAX_NODES = 50_000
"""The most values in a file. Values that an alias repeats are counted each time."""
MAX_DEPTH = 40
MAX_SCALAR = 20_000
"""The most characters of one value."""
MAX_BITS = 63
"""The most bits of a whole number: more do not fit into 64 bits with a sign."""

# PyYAML's loader in C is twenty times as fast; some builds of PyYAML lack it.
_EventLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str, place: str, rule: str = "the file is not YAML") -> Any:
    """Return the value of the YAML in `text`.

    Raises `SpecError` at `place` where it is no YAML, with the message `rule`. It is also raised where the text is too
    large, a key comes twice, or a number is too long or not finite.
    """
    try:
        _check_size(text, place)
        value = yaml.load(text, Loader)
    except SpecError:
        raise
    except KeyTwiceError as error:
        raise SpecError(
            "a mapping has each key once", place=place, value=error.key, hint=error.where
        ) from None
    # PyYAML raises errors of many kinds, such as a ValueError for a version or an escape that is too large.
    except Exception as error:
        # PyYAML from 6.0.4 on has a limit of its own, which may come before `MAX_DEPTH`.
        if "maximum nesting depth" in str(error):
            raise _too_deep(place) from None
        raise SpecError(
            rule,
            place=place,
            value=None if "\n" in text else text,
            hint=" ".join(str(error).split()),
        ) from None
    return _checked(value, place)


def _check_size(text: str, place: str) -> None:
    """Raise `SpecError` where the text or a value is too long, or values are too many or nested too deeply.

    The parser's events are counted, so that this is found before any value is built.
    """
    if len(text) > MAX_CHARACTERS:
        raise SpecError(
            "the file is too long",
            place=place,
            value=len(text),
            hint=f"at most {MAX_CHARACTERS}",
        )
    # Anchor -> number of nodes in its value, known once the value has ended. Each alias adds this number.
    sizes: dict[str, int] = {}
    # (anchor, number of nodes before it) of each collection that has not ended, the outermost first.
    opened: list[tuple[str | None, int]] = []
    nodes = 0
    for event in yaml.parse(text, Loader=_EventLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise SpecError(
                    "an alias names nothing, or a value that contains it",
                    place=place,
                    value=event.anchor,
                )
            nodes += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
            if len(event.value) > MAX_SCALAR:
                raise SpecError(
                    "a value is too long",
                    place=place,
                    value=event.value,
                    hint=f"at most {MAX_SCALAR}",
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        if nodes > MAX_NODES:
            raise SpecError(
                "the file holds too many values", place=place, hint=f"at most {MAX_NODES}"
            )
        if len(opened) > MAX_DEPTH:
            raise _too_deep(place)


def _too_deep(place: str) -> SpecError:
    """Return the error at `place` for values that are nested too deeply."""
    return SpecError(
        "values are nested too deeply", place=place, hint=f"at most {MAX_DEPTH} levels"
    )


def _checked(value: Any, place: str) -> Any:
    """Return `value` with a copy for each alias, so that a change in one place (`--set`) changes no other.

    Raises `SpecError` at `place` for a number in `value`, at any depth, that is too long or not finite.
    """
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise SpecError(
            f"whole numbers have at most {MAX_BITS} bits",
            place=place,
            hint=f"one has {value.bit_length()}",
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise SpecError("numbers are finite", place=place, value=value)
    # A mapping's keys may be numbers too.
    if isinstance(value, dict):
        return {_checked(key, place): _checked(item, place) for key, item in value.items()}
    return [_checked(item, place) for item in value] if isinstance(value, list) else value
