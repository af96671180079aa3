"""Charts as SVG text: no library, no script, colours from the page's style so that they follow light and dark.

A chart is drawn at the size that it has on a phone (360 units wide) and laid out in a grid that gives it about
that many pixels on any screen, so its text keeps its size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 360, 240
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 40
COLOURS = 8


@dataclass(frozen=True)
class Series:
    """One line: points (x, y), an optional band (low, high) of the same length, and a colour by `name`."""

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False
    bars: bool = False  # the band as error bars at the points


@dataclass(frozen=True)
class Dots:
    """Single points with what a pointer shows over each."""

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    titles: Sequence[str] = field(default_factory=list)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, at most `most` + 1 of them."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _span(values: Sequence[float], pad: float = 0.06) -> tuple[float, float]:
    finite = [v for v in values if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    room = (high - low) * pad or abs(high) * 0.05 or 0.5
    return low - room, high + room


def short(value: float) -> str:
    return f"{value:.4g}"


def xy_chart(series: Sequence[Series], dots: Sequence[Dots] = (), *, x_label: str, y_label: str, title: str = "",
             x_names: Sequence[str] | None = None) -> str:  # fmt: skip
    """Lines with bands and points. `x_names` makes x a category: position i is `x_names[i]`."""
    xs = [float(v) for s in series for v in s.x] + [float(v) for d in dots for v in d.x]
    ys = [float(v) for s in series for v in (*s.y, *s.low, *s.high)] + [float(v) for d in dots for v in d.y]
    x_low, x_high = (-0.5, len(x_names) - 0.5) if x_names else _span(xs, 0.02)
    y_low, y_high = _span(ys)

    def px(x: float) -> float:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [_y_axis(y_low, y_high, py, y_label)]
    marks = list(enumerate(x_names)) if x_names else [(t, short(t)) for t in ticks(x_low, x_high)]
    parts += [_x_tick(px(at), name, len(marks)) for at, name in marks]
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts += [_line(s, px, py) for s in series]
    parts += [_dots(d, px, py) for d in dots]
    return _svg(parts, WIDTH, HEIGHT, title or f"{y_label} over {x_label}")


def _y_axis(low: float, high: float, py, label: str) -> str:  # type: ignore[no-untyped-def]
    marks = ticks(low, high)
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(t):.1f}" y2="{py(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 5}" y="{py(t) + 3.5:.1f}" text-anchor="end">{short(t)}</text>' for t in marks)  # fmt: skip
    middle = (HEIGHT - BOTTOM + TOP) / 2
    return (
        lines
        + f'<text class="label" transform="translate(11 {middle}) rotate(-90)" text-anchor="middle">{escape(label)}</text>'
    )


def _x_tick(x: float, name: str, count: int) -> str:
    room = int(44 / max(1, count - 3)) + 4
    shown = name if len(name) <= room else name[: room - 1] + "…"
    return (f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">'
            f"{escape(shown)}<title>{escape(name)}</title></text>")  # fmt: skip


def _line(s: Series, px, py) -> str:  # type: ignore[no-untyped-def]
    at = [(px(x), py(y)) for x, y in zip(s.x, s.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
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
        edge = [(px(x), py(hi)) for x, _, hi in band] + [(px(x), py(lo)) for x, lo, _ in reversed(band)]
        parts.append(f'<path class="band" d="{_path(edge)}Z"/>')
    if len(at) > 1:
        parts.append(f'<path class="stroke" d="{_path(at)}"/>')
    if s.dots or len(at) == 1:
        parts += [
            f'<circle class="fill" cx="{x:.1f}" cy="{y:.1f}" r="3.2"><title>{escape(s.name)}: {short(value)}</title></circle>'
            for (x, y), value in zip(at, (y for y in s.y if math.isfinite(y)), strict=False)
        ]
    return f'<g class="c{s.colour % COLOURS}" data-name="{escape(s.name)}">{"".join(parts)}</g>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _dots(d: Dots, px, py) -> str:  # type: ignore[no-untyped-def]
    points = zip(d.x, d.y, d.titles or [""] * len(d.x), strict=True)
    circles = "".join(
        f'<circle class="dot" cx="{px(x):.1f}" cy="{py(y):.1f}" r="2.6"><title>{escape(title)}</title></circle>'
        for x, y, title in points if math.isfinite(x) and math.isfinite(y))  # fmt: skip
    return f'<g class="c{d.colour % COLOURS}" data-name="{escape(d.name)}">{circles}</g>'


def bar_chart(names: Sequence[str], values: Sequence[float], shown: Sequence[str], *, title: str,
              colours: Sequence[int] | None = None) -> str:  # fmt: skip
    """Horizontal bars with their names above them and their values at their ends."""
    high = max([v for v in values if math.isfinite(v)], default=0.0) or 1.0
    row, height, parts = 34, 34 * len(names) + 6, []
    for i, (name, value, words) in enumerate(zip(names, values, shown, strict=True)):
        length = max(0.0, value / high) * (WIDTH - 140) if math.isfinite(value) else 0
        colour = colours[i] if colours else 0
        parts.append(
            f'<text class="tick" x="0" y="{i * row + 12}">{escape(name)}</text>'
            f'<rect class="c{colour % COLOURS} fill" x="0" y="{i * row + 17}" width="{length:.1f}" height="11" rx="2"/>'
            f'<text class="tick" x="{length + 6:.1f}" y="{i * row + 26}">{escape(words)}</text>'
        )
    return _svg(parts, WIDTH, height, title)


def parallel_chart(axes: Sequence[tuple[str, Sequence[float], Sequence[tuple[float, str]]]], colours: Sequence[int],
                   names: Sequence[str], *, title: str) -> str:  # fmt: skip
    """One upright axis for each (name, positions 0..1 [n], marks (position, text)); one line a trial."""
    gap = 118
    width, height = max(WIDTH, gap * (len(axes) - 1) + 150), 300
    top, bottom = 34, height - 14
    lines: dict[tuple[int, str], list[str]] = {}
    for i, (colour, name) in enumerate(zip(colours, names, strict=True)):
        at = [(50 + gap * j, bottom - positions[i] * (bottom - top)) for j, (_, positions, _) in enumerate(axes)
              if math.isfinite(positions[i])]  # fmt: skip
        lines.setdefault((colour % COLOURS, name), []).append(_path(at))
    parts = [
        f'<g class="c{colour}" data-name="{escape(name)}"><path class="thin" d="{"".join(paths)}"/></g>'
        for (colour, name), paths in lines.items()
    ]
    for j, (name, _, marks) in enumerate(axes):
        x = 50 + gap * j
        parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="label" x="{x}" y="16" text-anchor="middle">{escape(name)}</text>')
        parts += [
            f'<text class="tick halo" x="{x + 5}" y="{bottom - p * (bottom - top) + 3.5:.1f}">{escape(text)}</text>'
            for p, text in marks
        ]
    return f'<div class="wide">{_svg(parts, width, height, title, fixed=True)}</div>'


def heat_map(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], *, title: str, row_label: str,
             column_label: str) -> str:  # fmt: skip
    """A grid of shaded cells with their values; NaN stays empty."""
    finite = [v for line in values for v in line if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    left, size, tall = 84, (WIDTH - 90) / max(1, len(columns)), 30
    height = 44 + tall * len(rows)
    parts = [
        f'<text class="label" x="{left}" y="10">{escape(column_label)}</text><text class="label" x="0" y="24">{escape(row_label)}</text>'
    ]
    parts += [f'<text class="tick" x="{left + size * (j + 0.5):.1f}" y="26" text-anchor="middle">{escape(name[:9])}</text>'
              for j, name in enumerate(columns)]  # fmt: skip
    for i, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = 32 + tall * i
        parts.append(f'<text class="tick" x="0" y="{y + 19}">{escape(name[:13])}</text>')
        for j, value in enumerate(line):
            if math.isfinite(value):
                shade = 0.08 + 0.62 * ((value - low) / (high - low) if high > low else 0.5)
                parts.append(
                    f'<rect class="c0 fill" x="{left + size * j:.1f}" y="{y}" width="{size - 2:.1f}" height="{tall - 2}" fill-opacity="{shade:.2f}"/>'
                    f'<text class="tick strong" x="{left + size * (j + 0.5) - 1:.1f}" y="{y + 18}" text-anchor="middle">{short(value)}</text>'
                )
    return _svg(parts, WIDTH, height, title)


def _svg(parts: Sequence[str], width: float, height: float, title: str, fixed: bool = False) -> str:
    size = f' width="{width}" height="{height}"' if fixed else ""
    return f'<svg viewBox="0 0 {width} {height}"{size} role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
