"""Charts as SVG text: no library, no script, colours from the page's style so that they follow light and dark.

They are drawn here and not by Matplotlib because a chart of its own follows the page's theme, can be read by a pointer
and by name (each series is an element that the page's script shows and hides), keeps the size of its text on a phone,
and leaves a report about 1 MB smaller. A drawing is numbers far more than text, so a template would only be longer:
this is the one place of a report that escapes by hand.

A chart is drawn at the size that it has on a phone (360 units wide) and laid out in a grid that gives it about
that many pixels on any screen, so its text keeps its size.
"""

import math
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from contrasweep.reporting.figures import Bars, Chart, Dots, Lines, Series, log_ticks, short, ticks

WIDTH = 360
HEIGHT = 240
LEFT = 56
RIGHT = 12
TOP = 12
BOTTOM = 48
COLOURS = 12
LETTER = 5.6  # width of a tick's letter


def _span(values: Sequence[float], pad: float = 0.06) -> tuple[float, float]:
    """Return the ends of a scale that holds these values, with room for `pad` of their range at either end."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    room = (high - low) * pad or abs(high) * 0.05 or 0.5
    return low - room, high + room


def draw(chart: Chart) -> Markup:
    """Return the drawing of a chart."""
    match chart:
        case Lines():
            return _lines(chart)
        case Bars():
            return _bars(chart)


def _lines(chart: Lines) -> Markup:
    """A chart of lines and dots; the page's script reads values off it, by the scales in its `data-` attributes."""
    # The ends of both scales. Of a logarithmic one they are exponents of 10; names stand at 0, 1, 2 and so on.
    xs = [float(v) for s in chart.series for v in s.x] + [float(v) for d in chart.dots for v in d.x]
    ys = (
        [float(v) for s in chart.series for v in (*s.y, *s.low, *s.high)]
        + [float(v) for d in chart.dots for v in d.y]
        + list(chart.y_within)
    )
    scale = math.log10 if chart.log_x else float
    x_low, x_high = (
        (-0.5, len(chart.x_names) - 0.5) if chart.x_names else _span([scale(x) for x in xs], 0.02)
    )
    y_low, y_high = _span(ys)

    # Where a value is in the drawing, whose y grows downwards.
    def px(x: float) -> float:
        return LEFT + (scale(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    # Axes first, so that lines and dots are drawn over them.
    parts = [_y_axis(y_low, y_high, py, chart.y_label)]
    values = (
        log_ticks(10**x_low, 10**x_high)
        if chart.log_x
        else ticks(x_low, x_high, whole=chart.whole_x)
    )
    marks = list(enumerate(chart.x_names)) if chart.x_names else [(t, short(t)) for t in values]
    parts += _x_ticks(marks, px)
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" '
        f'text-anchor="middle">{escape(chart.x_label)}</text>'
    )
    parts += [_line(s, px, py) for s in chart.series]
    parts += [_dots(d, px, py) for d in chart.dots]
    scales = f"{x_low:.6g} {x_high:.6g} {LEFT} {WIDTH - RIGHT} {y_low:.6g} {y_high:.6g} {HEIGHT - BOTTOM} {TOP}"
    read = (
        ""
        if chart.x_names
        else f' data-scales="{scales}" data-x="{escape(chart.x_label)}"{" data-log" if chart.log_x else ""}'
    )
    return svg(parts, WIDTH, HEIGHT, f"{chart.y_label} over {chart.x_label}", read)


def _y_axis(low: float, high: float, py, label: str) -> str:  # type: ignore[no-untyped-def]
    """Return a line over the whole width at each round number, with the number, and the label up the side."""
    marks = ticks(low, high)
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(t):.1f}" y2="{py(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 5}" y="{py(t) + 3.5:.1f}" text-anchor="end">{short(t)}</text>'
        for t in marks
    )
    middle = (HEIGHT - BOTTOM + TOP) / 2
    return (
        lines + f'<text class="label" transform="translate(11 {middle}) rotate(-90)" '
        f'text-anchor="middle">{escape(label)}</text>'
    )


def _x_ticks(marks: Sequence[tuple[float, str]], px) -> list[str]:  # type: ignore[no-untyped-def]
    """Return names under their places, in up to three rows where they would touch; what is too long even so is cut.

    `marks` are (value, name), `px` gives a value's place in the drawing.
    """
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(marks))
    longest = max((len(name) for _, name in marks), default=0) + 1  # with a gap to the next name
    rows = min(3, math.ceil(longest * LETTER / wide))
    room = max(4, int(rows * wide / LETTER) - 1)
    return [
        f'<text class="tick" x="{px(at):.1f}" y="{HEIGHT - BOTTOM + 12 + 10 * (i % rows)}" text-anchor="middle">'
        f"{escape(name if len(name) <= room else name[: room - 1] + '…')}<title>{escape(name)}</title></text>"
        for i, (at, name) in enumerate(marks)
    ]


def _line(s: Series, px, py) -> str:  # type: ignore[no-untyped-def]
    """Return a series as an element: band or error bars, then the line, then its points; gaps are drawn over."""
    at = [
        (px(x), py(y))
        for x, y in zip(s.x, s.y, strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]
    parts = []
    band = [
        (x, lo, hi)
        for x, lo, hi in zip(s.x, s.low, s.high, strict=False)
        if math.isfinite(lo) and math.isfinite(hi)
    ]
    if band and s.bars:
        parts += [
            f'<line class="stroke" x1="{px(x):.1f}" x2="{px(x):.1f}" y1="{py(lo):.1f}" y2="{py(hi):.1f}"/>'
            for x, lo, hi in band
        ]
    elif band:
        edge = [(px(x), py(hi)) for x, _, hi in band] + [
            (px(x), py(lo)) for x, lo, _ in reversed(band)
        ]
        parts.append(f'<path class="band" d="{path(edge)}Z"/>')
    if len(at) > 1:
        parts.append(f'<path class="stroke" d="{path(at)}"/>')
    if s.dots or len(at) == 1:
        parts += [
            f'<circle class="fill" cx="{x:.1f}" cy="{y:.1f}" r="3.2"><title>{escape(s.name)}: '
            f"{short(value)}</title></circle>"
            for (x, y), value in zip(at, (y for y in s.y if math.isfinite(y)), strict=False)
        ]
    return f'<g class="c{s.colour % COLOURS}" data-name="{escape(s.name)}">{"".join(parts)}</g>'


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the attribute `d` of an SVG path through `points`, which are (x, y) in the drawing."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _dots(d: Dots, px, py) -> str:  # type: ignore[no-untyped-def]
    """Return points as an element; what has no place on the scales is left out."""
    points = zip(d.x, d.y, d.titles or [""] * len(d.x), strict=True)
    circles = "".join(
        f'<circle class="dot" cx="{px(x):.1f}" cy="{py(y):.1f}" r="2.6"><title>{escape(title)}</title></circle>'
        for x, y, title in points
        if math.isfinite(x) and math.isfinite(y)
    )
    return f'<g class="c{d.colour % COLOURS}" data-name="{escape(d.name)}">{circles}</g>'


def svg(parts: Sequence[str], width: float, height: float, title: str, more: str = "") -> Markup:
    """Return the drawing as an element of the page, with `title` for screen readers; `parts` are its elements."""
    opening = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"{more}>'
    return Markup(f"{opening}{''.join(parts)}</svg>")


def _bars(chart: Bars) -> Markup:
    """Return a chart of bars: each has its name above it, its text at its end, and a line where its mark is."""
    # The longest text decides how much room bars have; the largest value or mark fills it.
    names = chart.names
    values = chart.values
    marks = chart.marks
    shown = (
        [*map(", ".join, zip(chart.texts, chart.notes, strict=True))]
        if chart.notes
        else chart.texts
    )
    wide = WIDTH - max(140, *(12 + LETTER * len(words) for words in shown))
    high = max([v for v in [*values, *marks] if math.isfinite(v)], default=0.0) or 1.0
    row = 34
    height = 34 * len(names) + 6
    parts = []
    for i, (name, value, words) in enumerate(zip(names, values, shown, strict=True)):
        length = max(0.0, value / high) * wide if math.isfinite(value) else 0
        colour = chart.colours[i] if chart.colours else 0
        end = length
        if marks and math.isfinite(marks[i]):
            at = marks[i] / high * wide
            end = max(length, at)
            parts.append(
                f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{i * row + 14}" y2="{i * row + 31}"/>'
            )
        parts.append(
            f'<text class="tick" x="0" y="{i * row + 12}">{escape(name)}</text>'
            f'<rect class="c{colour % COLOURS} fill" x="0" y="{i * row + 17}" width="{length:.1f}" height="11" rx="2"/>'
            f'<text class="tick" x="{end + 6:.1f}" y="{i * row + 26}">{escape(words)}</text>'
        )
    return svg(parts, WIDTH, height, chart.title)
