"""Dotted keys: `loss.temperature` is the setting `temperature` inside the setting `loss`.

A config is a nested mapping. A component may be given as text, its name: `loss: ocl` is short for `loss: {name: ocl}`,
so a config that names it and one that sets a field of it go together.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from contrasweep import canonical
from contrasweep.config import NAME as NAME
from contrasweep.config import Config, MutableConfig
from contrasweep.config import flatten as flatten
from contrasweep.config import lookup as lookup
from contrasweep.config import name_of as name_of
from contrasweep.errors import SpecError

Leaf = tuple[str, bool]
"""A dotted key that a config sets, and whether its value is text, which may be the name of a component."""
SAME_KEY = "both set it"
"""What `clash` returns where both set the key that its caller names."""


def split(key: str, place: str = "") -> list[str]:
    """Return the names between the dots of `key`; `SpecError` at `place` where one is empty."""
    names = key.split(".")
    if not all(names):
        raise SpecError("a dotted key has a name on both sides of each dot", place=place, value=key)
    return names


def expand(config: Config, place: str = "") -> MutableConfig:
    """Return `config` with its dotted keys as nested mappings: {"loss.margin": 1} gives {"loss": {"margin": 1}}.

    Only keys of the outermost mapping are expanded. Raises `SpecError` at `place` where two keys set the same value, or
    one sets a field inside a plain value of another.
    """
    # Without a dotted key there is nothing to expand, and mappings cannot clash.
    if not any("." in key for key in config if isinstance(key, str)):
        return dict(config)
    nested: MutableConfig = {}
    for key, value in config.items():
        setting = nest(key, value, place)
        # Checked before it is merged, because merging would let the later key win.
        if problem := clash(leaves(nested), leaves(setting)):
            raise SpecError(
                f"the keys of one config {problem}", place=f"{place}.{key}".lstrip("."), value=key
            )
        nested = merge(nested, setting)
    return nested


def nest(key: Any, value: Any, place: str = "") -> dict[Any, Any]:
    """Return the nested config that sets one dotted `key` to `value`: `loss.margin` gives {"loss": {"margin": value}}.

    Raises `SpecError` at `place` where a name between the dots is empty.
    """
    names = split(key, place) if isinstance(key, str) and "." in key else [key]
    for name in reversed(names):
        value = {name: value}
    return dict(value)


def merge(*configs: Config) -> MutableConfig:
    """Return the nested configs merged into one; a value of a later config replaces that of an earlier one.

    Mappings are merged setting by setting. A component may be a mapping or its name alone, as text. Where one meets the
    other, the text becomes the mapping's `name`. So {"name": "ocl", "margin": 1} and then "scl" give {"name": "scl",
    "margin": 1}. Any other value replaces what was there. The configs are not changed; without any, the result is
    empty.
    """
    merged: MutableConfig = {}
    for config in configs:
        for key, value in config.items():
            earlier = merged.get(key)
            if isinstance(earlier, Mapping) and isinstance(value, str):
                value = {NAME: value}
            elif isinstance(earlier, str) and isinstance(value, Mapping):
                earlier = {NAME: earlier}
            if isinstance(earlier, Mapping) and isinstance(value, Mapping):
                value = merge(earlier, value)
            merged[key] = value
    return merged


def holds(value: Any, wanted: Any) -> bool:
    """Return whether the value of a setting agrees with `wanted`; a component may have more settings than wanted.

    {"name": "ocl", "margin": 1} agrees with "ocl" and with {"margin": 1}; "ocl" agrees with {"name": "ocl"}.
    """
    # A component with settings: each setting that is wanted must be there, with what is wanted of it.
    if isinstance(value, Mapping):
        needs = {NAME: wanted} if isinstance(wanted, str) else wanted
        return isinstance(needs, Mapping) and all(
            key in value and holds(value[key], needs[key]) for key in needs
        )
    # A component by its name alone has no other settings to compare.
    if isinstance(wanted, Mapping):
        return isinstance(value, str) and dict(wanted) == {NAME: value}
    return canonical.same(value, wanted)


def leaves(*configs: Config) -> set[Leaf]:
    """Return the settings that these nested configs set, as pairs (dotted key, whether its value is a text).

    `{"loss": {"name": "ocl", "margin": 1}}` gives ("loss.name", True) and ("loss.margin", False). An empty mapping sets
    nothing.
    """
    settings = ((key, value) for config in configs for key, value in flatten(config).items())
    return {
        (key, isinstance(value, str))
        for key, value in settings
        if not (isinstance(value, Mapping) and not value)
    }


def clash(first: Iterable[Leaf], other: Iterable[Leaf], named: str = "") -> str:
    """Return why two sets of settings cannot be combined, as the end of a sentence; "" where they can.

    It is `both set loss.margin` or `contradict each other: ...`; of several reasons the first one is returned. `named`
    is a key that the caller's sentence has already. Where both sets have this key, the result is `SAME_KEY`, which does
    not repeat it.
    """
    others = sorted(other)
    for key, is_text in sorted(first):
        for known, known_is_text in others:
            # One key may lie inside the other, which is then a component by its name (a text), or a plain value.
            inner, outer, outer_is_text = key, known, known_is_text
            if len(key) < len(known):
                inner, outer, outer_is_text = known, key, is_text
            if inner.startswith(f"{outer}.") and not outer_is_text:
                return f"contradict each other: {outer} is a plain value, so there is no {inner}"
            # A text at `loss` sets `loss.name` too.
            if key == known or inner == f"{outer}.{NAME}":
                return SAME_KEY if inner == named else f"both set {inner}"
    return ""
