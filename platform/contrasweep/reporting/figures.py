"""The figures of a report as data: series, axes, labels, captions. `svg` draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """One line: points (x, y), an optional band (low, high) of the same length, and the number of a colour.

    With `dots` its points are drawn too; with `bars` the band is one error bar at each point.
    """

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False
    bars: bool = False


@dataclass(frozen=True)
class Dots:
    """Single points (x, y) in one colour; a pointer over a point shows its text in `titles`."""

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    titles: Sequence[str]


@dataclass(frozen=True)
class Lines:
    """Lines with bands, and points.

    With `x_names` x is a category: position i is `x_names[i]`. With `log_x` it is logarithmic, and with `whole_x` its
    ticks have no fractions. `y_within` are further values that the scale of y must hold, so that charts share a scale.
    """

    series: Sequence[Series]
    dots: Sequence[Dots] = ()
    x_label: str = ""
    y_label: str = ""
    x_names: Sequence[str] = ()
    log_x: bool = False
    whole_x: bool = False
    y_within: Sequence[float] = ()


@dataclass(frozen=True)
class Bars:
    """Horizontal bars in one colour: each has its name above it, its text at its end, and a line at its mark's value.

    All sequences have one entry for each bar.
    """

    title: str
    names: Sequence[str]
    values: Sequence[float]
    texts: Sequence[str]
    marks: Sequence[float]
    colour: int


Chart = Lines | Bars


@dataclass(frozen=True)
class Figure:
    """A chart with the texts above and below it."""

    chart: Chart
    caption: str = ""
    title: str = ""


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return round numbers from `low` to `high`, at most 6 of them; with `whole` no fractions."""
    if not high > low:
        return [low]
    # The smallest round step that makes at most five parts: a factor times a power of 10.
    smallest = max((high - low) / 5, 1.0 if whole else 0.0)
    power = 10 ** math.floor(math.log10(smallest))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = min(power * f for f in factors if power * f >= smallest * (1 - 1e-9))
    # The multiples of the step from `low` to `high`, both included up to rounding.
    first = math.ceil(low / step - 1e-9)
    return [float(f"{step * i:.12g}") for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers from 10**`low` to 10**`high` for a logarithmic scale.

    They are 1, 2 and 5, or 1 and 3, or only 1, times powers of 10: the first of these that makes at most six. Where all
    make more, they are every second power of 10, or every third, and so on.
    """
    decades = range(math.floor(low), math.ceil(high) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        # Beyond the ends of what a float holds these are 0 and infinite.
        numbers = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
        marks = [
            n for n in numbers if 0 < n < math.inf and low - 1e-9 <= math.log10(n) <= high + 1e-9
        ]
        if len(marks) <= 6:
            break
    marks = marks[:: math.ceil(len(marks) / 6) or 1]
    return marks if len(marks) > 1 else [10 ** max(low, -323.0), 10 ** min(high, 308.25)]


def short(value: float) -> str:
    """Return a number in four significant digits."""
    return f"{value:.4g}"
