"""The figures of a report as data: series, axes, labels, captions. `svg` draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """One line of a chart: points (x, y), and the number of its colour.

    It may have a band: at each point from `low` to `high`. With `dots` its points are drawn too.
    """

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False


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
    """A chart of lines with bands and of single points.

    With `x_names` the x axis has categories: the point at x = i is at `x_names[i]`. Without, x is a number, and the
    ticks of its axis are whole numbers.
    """

    series: Sequence[Series]
    dots: Sequence[Dots] = ()
    x_label: str = ""
    y_label: str = ""
    x_names: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """A chart with the texts above and below it."""

    chart: Lines
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
    # 1e-9 forgives rounding, here and below.
    step = min(power * factor for factor in factors if power * factor >= smallest * (1 - 1e-9))
    # The multiples of the step from `low` to `high`, both included up to rounding.
    first = math.ceil(low / step - 1e-9)
    return [float(f"{step * i:.12g}") for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """Return a number as text with at most four significant digits: `0.1235`."""
    return f"{value:.4g}"
