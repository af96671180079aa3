"""The figures of a report as data: series, axes, labels, captions. `svg` draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


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
    """Single points (x, y) in one colour, with the text of `titles` that a pointer shows over each."""

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    titles: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True)
class Lines:
    """Lines with bands, and points.

    `x_names` makes x a category (position i is `x_names[i]`), `log_x` logarithmic; `whole_x` keeps fractions off its
    ticks. `y_within` are values that the scale holds too, for charts of one scale.
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
    """Horizontal bars: `names` above them, `texts` with `notes` at their ends.

    `marks` are values that are marked beside each bar.
    """

    title: str
    names: Sequence[str]
    values: Sequence[float]
    texts: Sequence[str]
    notes: Sequence[str] = ()
    colours: Sequence[int] = ()
    marks: Sequence[float] = ()


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
    # The least step of 1, 2, 2.5 or 5 times a power of 10 that makes five parts or fewer, and its multiples.
    raw = max((high - low) / 5, 1.0 if whole else 0.0)
    size = 10 ** math.floor(math.log10(raw))
    step = next(
        size * m
        for m in ((1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10))
        if size * m >= raw * (1 - 1e-9)
    )
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high` (both above 0) for a logarithmic scale: 1, 2, 5, 10, or powers of 10 alone."""
    # As many of them in each decade as make no more than six marks.
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        marks = [
            round(m * 10.0**d, 12)
            for d in decades
            for m in digits
            if low * (1 - 1e-9) <= m * 10.0**d <= high * (1 + 1e-9)
        ]
        if len(marks) <= 6:
            break
    return marks if len(marks) > 1 else [low, high]


def short(value: float) -> str:
    """Return a number in four significant digits."""
    return f"{value:.4g}"
