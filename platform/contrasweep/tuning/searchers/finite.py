"""Spaces with a finite number of configurations: their values, one by one."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.study.space import Choice, Float, Int, Space, active, exists, ordered

FINITE = 20_000  # a space of more configurations than this counts as infinite


def configurations(space: Space, fixed: Config | None = None) -> dict[str, MutableConfig] | None:
    """Every configuration of a finite space, by its canonical text; None if it has a continuous parameter or more
    than `FINITE` combinations."""
    sizes = [levels(parameter) for parameter in space.values()]
    if any(size is None for size in sizes) or math.prod(size for size in sizes if size) > FINITE:
        return None
    return product(space, fixed or {}, {name: _values(parameter) for name, parameter in space.items()})


def product(space: Space, fixed: Config, values: Mapping[str, list[Any]]) -> dict[str, MutableConfig]:
    """Each different configuration of these values, by its canonical text."""
    by_text: dict[str, MutableConfig] = {}
    for point in itertools.product(*values.values()):
        drawn, config = dict(zip(values, point, strict=True)), MutableConfig()
        for name in ordered(space):
            if exists(space, name, fixed, config):
                config[name] = drawn[name]
        by_text.setdefault(canonical.dumps(config), config)
    return by_text


def levels(parameter: Float | Int | Choice) -> int | None:
    """How many values a parameter has; None if it is continuous."""
    if isinstance(parameter, Choice):
        return len(parameter.options)
    if isinstance(parameter, Float):
        if parameter.low == parameter.high:
            return 1
        return (
            None if parameter.step is None else math.floor((parameter.high - parameter.low) / parameter.step + 1e-9) + 1
        )
    return (parameter.high - parameter.low) // (parameter.step or 1) + 1


def fits(space: Space, config: Config, whole: Config) -> bool:
    """Whether `config` has exactly the parameters that exist under `whole`, each within its range."""
    names = {name for name, p in space.items() if active(p.when, whole)}
    return set(config) == names and all(space[name].holds(value) for name, value in config.items())


def _values(parameter: Float | Int | Choice) -> list[Any]:
    """All values of a finite parameter."""
    if isinstance(parameter, Int):
        return list(range(parameter.low, parameter.high + 1, parameter.step or 1))
    if isinstance(parameter, Float):
        return [parameter.low + (parameter.step or 0.0) * i for i in range(levels(parameter) or 1)]
    return list(parameter.options)
