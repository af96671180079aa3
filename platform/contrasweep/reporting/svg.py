"""Charts as SVG text: no library, no script, colours from the page's style so that they follow light and dark.

They are drawn here and not by Matplotlib for four reasons: such a chart follows the page's theme; a pointer can read
values off it, and the page's script show and hide each series; its text keeps its size on a phone; and a report is
about 1 MB smaller. As a drawing is more numbers than text, a template would only be longer: this is the one place of a
report that escapes by hand.

A chart is drawn at the size that it has on a phone (360 units wide). It is laid out in a grid that gives it about that
many pixels on any screen, so that its text keeps its size.
"""

import math
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from contrasweep.reporting.figures import Lines, Series, short, ticks

# The size of a drawing, and its margins around the plotted area.
WIDTH = 360
HEIGHT = 240
LEFT = 56
RIGHT = 12
TOP = 12
BOTTOM = 48
COLOURS = 12
"""How many colours the page's style has; further series begin with the first one again."""
LETTER = 5.6
"""The width of a letter of a tick's text."""
LABEL_LETTER = 6.4
"""The width of a letter of an axis's label, in a wide font."""


def _span(values: Sequence[float], pad: float = 0.06) -> tuple[float, float]:
    """Return the ends of a scale that holds these values, with room for `pad` of their range at either end."""
    finite = [value for value in values if abs(value) < 5e307]  # so that their range is finite too
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    room = (high - low) * pad or abs(high) * 0.05 or 0.5
    return low - room, high + room


def draw(chart: Lines) -> Markup:
    """Return a chart as SVG.

    Attributes of it have the scales, from which the page's script computes the values under a pointer.
    """
    # The ends of both scales; names stand at 0, 1, 2 and so on.
    xs: list[float] = []
    ys: list[float] = []
    for series in chart.series:
        xs += series.x
        ys += [*series.y, *series.low, *series.high]
    for dots in chart.dots:
        xs += dots.x
        ys += dots.y
    x_low, x_high = (-0.5, len(chart.x_names) - 0.5) if chart.x_names else _span(xs, 0.02)
    y_low, y_high = _span(ys)

    def px(x: float) -> float:
        """Return the distance from the left at which the value `x` is drawn, in units of the drawing."""
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        """Return the distance from the top at which the value `y` is drawn, in units of the drawing."""
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    # Axes first, so that lines and dots are drawn over them: a line over the whole width at each round number.
    parts = []
    for tick in ticks(y_low, y_high):
        y = py(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{short(tick)}</text>'
        )
    # The vertical label is centred at the plot's middle, and may be twice as long as the middle is from the top.
    middle = (HEIGHT - BOTTOM + TOP) / 2
    parts.append(
        f'<text class="label" transform="translate(11 {middle}) rotate(-90)" '
        f'text-anchor="middle">{_fitted(chart.y_label, 2 * middle / LABEL_LETTER)}</text>'
    )
    if chart.x_names:
        parts += _x_ticks(list(enumerate(chart.x_names)), px)
    else:
        values = ticks(x_low, x_high, whole=True)
        parts += _x_ticks([(value, short(value)) for value in values], px)
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" '
        f'text-anchor="middle">{_fitted(chart.x_label, (WIDTH - LEFT) / LABEL_LETTER)}</text>'
    )
    parts += [_line(series, px, py) for series in chart.series]
    for dots in chart.dots:
        circles = "".join(
            f'<circle class="dot" cx="{px(x):.1f}" cy="{py(y):.1f}" r="2.6"><title>{escape(title)}</title></circle>'
            for x, y, title in zip(dots.x, dots.y, dots.titles, strict=True)
            if math.isfinite(x) and math.isfinite(y)
        )
        name = escape(dots.name)
        parts.append(f'<g class="c{dots.colour % COLOURS}" data-name="{name}">{circles}</g>')
    # What the page's script needs to read values; names are no values.
    attributes = ""
    if not chart.x_names:
        scales = f"{x_low:.6g} {x_high:.6g} {LEFT} {WIDTH - RIGHT} {y_low:.6g} {y_high:.6g} {HEIGHT - BOTTOM} {TOP}"
        attributes = f' data-scales="{scales}" data-x="{escape(chart.x_label)}"'
    title = escape(f"{chart.y_label} over {chart.x_label}")
    opening = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"{attributes}>'
    return Markup(f"{opening}{''.join(parts)}</svg>")


def _x_ticks(marks: Sequence[tuple[float, str]], px) -> list[str]:  # type: ignore[no-untyped-def]
    """Return the name of each mark under its place, in up to three rows where names would touch; longer ones are cut.

    `marks` are (value, name); `px` gives the place of a value in the drawing.
    """
    # The width between two marks, how many rows the longest name needs, and the letters that fit. With r rows every
    # r-th name stands in the same row, and has r times that width.
    width_of_mark = (WIDTH - LEFT - RIGHT) / max(1, len(marks))
    longest = max((len(name) for _, name in marks), default=0) + 1  # with a gap to the next name
    rows = min(3, math.ceil(longest * LETTER / width_of_mark))
    room = max(4, int(rows * width_of_mark / LETTER) - 1)
    texts = []
    for i, (value, name) in enumerate(marks):
        y = HEIGHT - BOTTOM + 12 + 10 * (i % rows)
        texts.append(
            f'<text class="tick" x="{px(value):.1f}" y="{y}" text-anchor="middle">{_fitted(name, room)}</text>'
        )
    return texts


def _fitted(text: str, room: float) -> str:
    """Return the escaped content of a text element with room for so many letters.

    A longer text is cut, and the whole of it is the element's title, which a pointer shows.
    """
    if len(text) <= room:
        return escape(text)
    return f"{escape(text[: int(room) - 1])}…<title>{escape(text)}</title>"


def _line(s: Series, px, py) -> str:  # type: ignore[no-untyped-def]
    """Return a series as an element: its band, then the line, then its points.

    `px` and `py` give the place of a value in the drawing, from the left and from the top. Values that are not finite
    are left out, so that the line goes on over a gap.
    """
    parts = []
    band = [
        (px(x), py(low), py(high))
        for x, low, high in zip(s.x, s.low, s.high, strict=False)
        if math.isfinite(low) and math.isfinite(high)
    ]
    if band:
        # Along the upper edge, and back along the lower one.
        edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        parts.append(f'<path class="band" d="{path(edge)}Z"/>')
    points = [
        (x, y) for x, y in zip(s.x, s.y, strict=True) if math.isfinite(x) and math.isfinite(y)
    ]
    if len(points) > 1:
        parts.append(f'<path class="stroke" d="{path([(px(x), py(y)) for x, y in points])}"/>')
    if s.dots or len(points) == 1:
        parts += [
            f'<circle class="fill" cx="{px(x):.1f}" cy="{py(y):.1f}" r="3.2"><title>{escape(s.name)}: '
            f"{short(y)}</title></circle>"
            for x, y in points
        ]
    return f'<g class="c{s.colour % COLOURS}" data-name="{escape(s.name)}">{"".join(parts)}</g>'


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the attribute `d` of an SVG path through `points`, which are (x, y) in the drawing."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
