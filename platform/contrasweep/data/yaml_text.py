"""Reads the YAML of a study file as plain values, within bounds: a small file may expand to gigabytes."""

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from contrasweep.errors import SpecError

MAX_CHARACTERS = 500_000
MAX_NODES = 50_000
"""Values in a file, those that aliases repeat counted each time."""
MAX_DEPTH = 40
MAX_SCALAR = 20_000
MAX_BITS = 63

_Events: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # twenty times as fast where PyYAML was built with it


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but 1e-4 is a number, and a key stands once, as in YAML 1.2."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Return the node of a mapping; `SpecError` where a key stands twice, of which PyYAML takes the last."""
        node = super().compose_mapping_node(anchor)  # type: ignore[no-untyped-call]
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if key.value in lines:
                where = f"it stands in line {lines[key.value]} and in line {line}"
                raise SpecError("a mapping has each key once", value=key.value, hint=where)
            lines[key.value] = line
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Return the value of a node; a YAMLError with its line where there is none, as for 2026-13-01 or !!int ''."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as error:
            problem = f"a value cannot be read: {error}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(text: str, place: str, rule: str = "the study file is not YAML") -> Any:
    """Return the value of `text`; `SpecError` at `place` where it is not YAML, or larger than any study."""
    try:
        _check_size(text, place)
        value = yaml.load(text, _Loader)
    except SpecError as error:
        raise error if error.place else error.at(place) from None
    except Exception as error:  # ValueError of a version or an escape that is too large, among others
        if "maximum nesting depth" in str(error):  # of PyYAML from 6.0.4 on, whose scanner runs ahead of its events
            raise _too_deep(place) from None
        raise SpecError(
            rule, place=place, value=None if "\n" in text else text, hint=" ".join(str(error).split())
        ) from None
    _check_numbers(value, place)
    return value


def _check_size(text: str, place: str) -> None:
    """Count the values that the text expands to, event by event, before any of them is built."""
    if len(text) > MAX_CHARACTERS:
        raise SpecError("a study file is too long", place=place, value=len(text), hint=f"at most {MAX_CHARACTERS}")
    sizes: dict[str, int] = {}  # of what has an anchor and is whole
    opened: list[tuple[str | None, int]] = []  # anchor and nodes before it
    nodes = 0
    for event in yaml.parse(text, Loader=_Events):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise SpecError("an alias names nothing, or a value that contains it", place=place, value=event.anchor)
            nodes += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
            if len(event.value) > MAX_SCALAR:
                raise SpecError("a value is too long", place=place, value=event.value, hint=f"at most {MAX_SCALAR}")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        if nodes > MAX_NODES:
            raise SpecError("a study file holds too many values", place=place, hint=f"at most {MAX_NODES}")
        if len(opened) > MAX_DEPTH:
            raise _too_deep(place)


def _too_deep(place: str) -> SpecError:
    return SpecError("values are nested too deeply", place=place, hint=f"at most {MAX_DEPTH} levels")


def _check_numbers(value: Any, place: str) -> None:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise SpecError(
            f"whole numbers have at most {MAX_BITS} bits", place=place, hint=f"one has {value.bit_length()}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise SpecError("numbers are finite", place=place, value=value)
    inner = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for item in inner:
        _check_numbers(item, place)
