"""Search spaces: `Float`, `Int`, `Choice`, each with `when=` to make it conditional on another parameter.

A space maps dotted config keys to these. They are plain values: drawing from them is one function of a point in the
unit cube, which serves random, quasi-random and grid search alike. Finite spaces are listed one by one.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import pydantic

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from contrasweep.storage.record import LARGEST
from contrasweep.study import dotted, foreign

When = Config
"""Dotted config key -> value, or list of values one of which is enough, under which a parameter exists."""


class _Range:
    """Base class of `Float`, a range of real numbers, and `Int`, a range of integers.

    `numbers` are the Python types of its values, and `number` is the one that makes a value. `unit` is the distance of
    its values where no `step` is declared; None: any value. The subclasses define `at`.
    """

    low: Any
    high: Any
    log: bool
    step: Any
    numbers: ClassVar[Any]
    number: ClassVar[Any]
    unit: ClassVar[int | None] = None
    at: Callable[[float], Any]

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise SpecError("low must not exceed high", place="low", value=(self.low, self.high))
        # Points between its ends are reckoned in floats.
        if self.high - self.low > LARGEST:
            raise SpecError(f"a range is at most {LARGEST:g} wide", place="high", value=self.high)
        if self.log and self.low <= 0:
            raise SpecError("a logarithmic range must start above 0", place="low", value=self.low)
        # A float has 53 bits, so it cannot hold values that are closer than this.
        if self.step is not None and self.step <= (self.high - self.low) / 2**53:
            rule = "step must be above 0, and above a 2^53rd of the range"
            raise SpecError(rule, place="step", value=self.step)
        if self.log and self.step is not None:
            raise SpecError("a logarithmic range takes no step", place="step", value=self.step)

    def grid(self, n: int) -> list[Any]:
        """Return at most `n` different values from `low` to `high`, evenly spread on the range's linear or log scale.

        For `n` 1 it is the middle of the scale.
        """
        return sorted({self.at(i / (n - 1)) for i in range(n)}) if n > 1 else [self.at(0.5)]

    def value(self, index: int) -> Any:
        """Return the value that lies `index` steps above `low`. For a range without steps, that is `low` itself.

        It is computed in decimals: 0.1 and two steps of 0.1 give 0.3, where floats would give a little more.
        """
        step = Fraction(str(self.step or self.unit or 0))
        return self.number(Fraction(str(self.low)) + index * step)

    def index(self, value: Any) -> int:
        """Return the number of steps from `low` to the value of the range that is nearest to `value`.

        The parameter must have steps. A value above the range gives the number of the last step, one below it 0.
        """
        step = Fraction(str(self.step or self.unit))
        steps = (Fraction(value) - Fraction(str(self.low))) / step
        return min((levels(self) or 1) - 1, max(0, round(steps)))

    def holds(self, value: object) -> bool:
        """Whether `value` is a number in the range; with a step, it must lie a whole number of steps above `low`."""
        if not isinstance(value, self.numbers) or isinstance(value, bool):
            return False
        is_within = self.low <= value <= self.high
        return is_within and (self.step is None or value == self.value(self.index(value)))


@checked
class Float(_Range):
    """A real number in [low, high].

    Args:
        low: The smallest value.
        high: The largest value.
        log: Whether it is searched on a logarithmic scale.
        step: The distance of the values that are tried, from `low` on. Default: any value.
        when: Under which other settings it exists: dotted setting -> value, or list of values.
        type: The kind of parameter, for files: `float`.

    Raises:
        SpecError: The range is empty, or cannot be searched this way.

    Example:
        >>> import contrasweep as cs
        >>> cs.Float(0.0, 1.0, step=0.25).grid(3)
        [0.0, 0.5, 1.0]
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    when: MutableConfig | None = None
    type: Literal["float"] = "float"
    numbers: ClassVar[Any] = (int, float)
    number: ClassVar[Any] = float

    def at(self, u: float) -> float:
        """Return the number at the relative place `u`, from 0 to 1, between `low` and `high`, on a linear or log scale.

        With a step, each value that it allows has the same share of [0, 1].
        """
        if self.step is not None:
            return self.value(_place(u, levels(self)))  # type: ignore[no-any-return]
        ends = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = _between(*ends, u)
        # Rounding may lead past an end.
        return min(self.high, max(self.low, math.exp(value) if self.log else value))


@checked
class Int(_Range):
    """An integer in [low, high], both included.

    Args:
        low: The smallest value.
        high: The largest value.
        log: Whether it is searched on a logarithmic scale.
        step: The distance of the values that are tried, from `low` on. Default: 1.
        when: Under which other settings it exists: dotted setting -> value, or list of values.
        type: The kind of parameter, for files: `int`.

    Raises:
        SpecError: The range is empty, or cannot be searched this way.

    Example:
        >>> import contrasweep as cs
        >>> cs.Int(16, 64, step=16).grid(4)
        [16, 32, 48, 64]
    """

    low: int
    high: int
    log: bool = False
    step: int | None = None
    when: MutableConfig | None = None
    type: Literal["int"] = "int"
    numbers: ClassVar[Any] = int
    number: ClassVar[Any] = int
    unit: ClassVar[int | None] = 1

    def at(self, u: float) -> int:
        """Return the integer at the relative place `u`, from 0 to 1, between `low` and `high`.

        On a linear scale each integer (of those that `step` allows) has the same share of [0, 1]. On a logarithmic
        scale n has the share from log n to log (n + 1), so that the scale ends at log (high + 1).
        """
        if self.log:
            x = math.exp(_between(math.log(self.low), math.log(self.high + 1), u))
            return min(self.high, max(self.low, math.floor(x)))
        return self.value(_place(u, levels(self)))  # type: ignore[no-any-return]


@checked
class Choice:
    """A parameter with several options, which have no order.

    Args:
        options: The values: texts, numbers, or mappings that name a component and its settings.
        when: Under which other settings it exists: dotted setting -> value, or list of values.
        type: The kind of parameter, for files: `choice`.

    Raises:
        SpecError: There are no options.

    Example:
        >>> import contrasweep as cs
        >>> cs.Choice(["cosine", "angle"], when={"loss": "ocl"}).at(0.0)
        'cosine'
    """

    options: list[Any]
    when: MutableConfig | None = None
    type: Literal["choice"] = "choice"

    def __post_init__(self) -> None:
        if not self.options:
            raise SpecError(
                "a Choice needs at least one option", place="options", value=self.options
            )

    def at(self, u: float) -> Any:
        """Return the option at the relative place `u`, from 0 to 1, of the list of options."""
        return self.options[_place(u, len(self.options))]

    def value(self, index: int) -> Any:
        """Return the option at this `index`, from 0."""
        return self.options[index]

    def index(self, value: Any) -> int:
        """Return the index, from 0, of the option `value`. Raises `ValueError` where it is none."""
        return [canonical.dumps(option) for option in self.options].index(canonical.dumps(value))

    def grid(self, n: int) -> list[Any]:
        """Return all options, whatever `n`: they have no order to pick evenly from."""
        return list(self.options)

    def holds(self, value: object) -> bool:
        """Whether `value` is one of the options."""
        return any(canonical.same(value, option) for option in self.options)


Parameter = Annotated[
    Float | Int | Choice,
    pydantic.Field(discriminator="type"),
    pydantic.BeforeValidator(foreign.parameter),
]
Space = Mapping[str, Float | Int | Choice]
_MISSING = object()
"""In place of a setting that a config does not have, since any value, None too, may be one."""


def active(when: When | None, config: Config) -> bool:
    """Return whether a parameter with the condition `when` exists under the nested `config`.

    It does where each key of `when` has a value that `when` allows for it. Without a condition it always exists. A key
    that `config` lacks has the value None.
    """
    for key, wanted in (when or {}).items():
        setting = dotted.lookup(config, key)
        values = wanted if isinstance(wanted, list | tuple) else [wanted]
        if not any(dotted.holds(setting, value) for value in values):
            return False
    return True


def exists(space: Space, name: str, fixed: Config | None, drawn: Config) -> bool:
    """Return whether the parameter `name` exists for these values of other settings, by its condition `when`.

    `fixed` is the nested config of the settings that are not searched. `drawn` is dotted name -> value of the searched
    ones so far; it must have all that `when` names and that exist.
    """
    when = space[name].when
    return not when or active(when, dotted.merge(fixed or {}, dotted.expand(drawn)))


def drawn_from(space: Space, config: Config) -> MutableConfig:
    """Return the values that the nested `config` has for the searched settings of `space`, by dotted key.

    A setting that `config` lacks, or whose condition is not met, is left out. A component in `config` may have more
    settings than the option of a `Choice` names, such as defaults. Then the option is returned.
    """
    drawn = {}
    for name, parameter in space.items():
        value = dotted.lookup(config, name, _MISSING)
        if value is not _MISSING and active(parameter.when, config):
            # A component in `config` has defaults that its option does not name. So an option matches if the component
            # holds all that the option names.
            options = parameter.options if isinstance(parameter, Choice) else []
            matching = [option for option in options if dotted.holds(value, option)]
            # The option that says most, where one holds another, such as `sgd` and `sgd` with a momentum.
            drawn[name] = max(
                matching, key=lambda option: len(dotted.leaves({name: option})), default=value
            )
    return drawn


def sample(space: Space, point: Sequence[float], fixed: Config | None = None) -> MutableConfig:
    """Return the configuration at `point` of the unit cube: one coordinate per parameter, in the space's order.

    A parameter that does not exist under the others is left out and its coordinate unused, so that every
    configuration uses the same cube. `fixed` is the nested config of what is not searched, which conditions may name.
    """
    places = dict(zip(space, point, strict=False))
    return drawn_by(space, fixed, lambda name: space[name].at(places[name]))


def drawn_by(space: Space, fixed: Config | None, value: Callable[[str], Any]) -> MutableConfig:
    """Return a configuration, dotted name -> `value(name)`, of each parameter that exists.

    Whether one exists follows from `fixed`, the nested config that is not searched, and from the values before it. A
    parameter comes after those that its condition names.
    """
    config: MutableConfig = {}
    for name in ordered(space):
        if exists(space, name, fixed, config):
            config[name] = value(name)
    return config


def ordered(space: Space) -> list[str]:
    """Return the names of the parameters, each conditional one after the parameters that its `when` names.

    Otherwise the order is that of the space. `SpecError` where conditions depend on each other in a circle.
    """
    done: list[str] = []
    waiting = list(space)
    while waiting:
        # A key of `when` that is no parameter is one of the fixed config, and there already.
        ready = []
        for name in waiting:
            needed = [key for key in space[name].when or {} if key in space]
            if set(needed) <= set(done):
                ready.append(name)
        if not ready:
            raise SpecError(
                "conditional parameters depend on each other in a circle", value=waiting
            )
        done += ready
        waiting = [name for name in waiting if name not in ready]
    return done


def check(space: Space, fixed: Config) -> None:
    """Raise `SpecError` where the parameters of an arm do not go together.

    These are the rules. Every `when` names another parameter, or a key of the nested config `fixed`. No two parameters
    set one key, and none sets a key inside a plain value of another. Conditions do not depend on each other in a
    circle. Values are not checked.
    """
    for name, parameter in space.items():
        for key in parameter.when or {}:
            if key not in space and dotted.lookup(fixed, key, _MISSING) is _MISSING:
                hint = choose_from("keys", [*space, *dotted.flatten(fixed)], key)
                raise SpecError(
                    "`when` names no parameter and no config key",
                    place=f"{name}.when",
                    value=key,
                    hint=hint,
                )
        # Each pair of parameters once: those that stand before this one.
        for other in list(space)[: list(space).index(name)]:
            if problem := dotted.clash(settings(other, space[other]), settings(name, parameter)):
                raise SpecError(f"two searched keys {problem}", place=name, value=other)
    ordered(space)  # raises on a circle


def settings(name: str, parameter: Float | Int | Choice) -> set[dotted.Leaf]:
    """Return the config keys that the searched parameter `name` sets, also those inside options that are mappings."""
    # All values of a range are numbers, so one of them stands for all.
    values = parameter.options if isinstance(parameter, Choice) else [parameter.low]
    return dotted.leaves(*(dotted.nest(name, value) for value in values))


def _place(u: float, count: int | None) -> int:
    """Return the index, from 0, of the part of [0, 1] that `u` lies in, if it is cut into `count` equal parts.

    A `count` of None means one part, so that the index is 0.
    """
    parts = count or 1
    return min(parts - 1, math.floor(u * parts))


def _between(low: float, high: float, u: float) -> float:
    """Return the number at the relative place `u`, from 0 to 1, between `low` and `high`."""
    return low + (high - low) * u


FINITE_LIMIT = 20_000
"""A space of more combinations of values than this counts as infinite."""


def configurations(space: Space, fixed: Config | None = None) -> dict[str, MutableConfig] | None:
    """Return every configuration of a finite space, by its canonical text (`canonical.dumps`).

    None if it has a continuous parameter or more than `FINITE_LIMIT` combinations.
    """
    # In some combinations a conditional parameter does not exist, and several of them make the same configuration. So
    # there are at most as many configurations as combinations, whose number is the product of the sizes.
    sizes = [size for size in map(levels, space.values()) if size is not None]
    if len(sizes) < len(space) or math.prod(sizes) > FINITE_LIMIT:
        return None
    values = {
        name: [parameter.value(index) for index in range(size)]
        for (name, parameter), size in zip(space.items(), sizes, strict=True)
    }
    return product(space, fixed or {}, values)


def product(
    space: Space, fixed: Config, values: Mapping[str, list[Any]], most: int | None = None
) -> dict[str, MutableConfig]:
    """Return each different configuration that can be made of `values`, by its canonical text.

    `values` is parameter -> the values that it takes; the last parameter varies fastest. A parameter whose condition is
    not met is left out of a configuration. With `most`, at most `most` + 1 configurations are made: one more than
    `most` shows that there are too many.
    """
    by_text: dict[str, MutableConfig] = {}
    for point in itertools.product(*values.values()):
        config = drawn_by(space, fixed, dict(zip(values, point, strict=True)).__getitem__)
        by_text.setdefault(canonical.dumps(config), config)
        # One more than `most` tells the caller that there are too many.
        if len(by_text) - 1 == most:
            break
    return by_text


def levels(parameter: _Range | Choice) -> int | None:
    """Return the number of values that a parameter can have, the first of which is `value(0)`; None if any number.

    A range with equal ends has one value. Where steps from `low` do not reach `high` exactly, the last value lies below
    it.
    """
    if isinstance(parameter, Choice):
        return len(parameter.options)
    if parameter.low == parameter.high:
        return 1
    step = parameter.step or parameter.unit
    if step is None:
        return None
    # Whole steps from the lower end, in decimals, because floats may miss the last one.
    span = Fraction(str(parameter.high)) - Fraction(str(parameter.low))
    return span // Fraction(str(step)) + 1


def fits(space: Space, config: Config, whole: Config) -> bool:
    """Return whether `config` has exactly those parameters of `space` that exist, each with a value in its range.

    `config` is dotted name -> value. `whole` is the nested config of these values and of the fixed settings, by which
    conditions are decided.
    """
    names = {name for name, parameter in space.items() if active(parameter.when, whole)}
    return set(config) == names and all(space[name].holds(value) for name, value in config.items())
