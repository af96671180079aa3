"""Bars and heat maps as SVG text, in the manner of `charts`."""

import math
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from contrasweep.report.charts import COLOURS, WIDTH, short, svg


def bar_chart(
    names: Sequence[str],
    values: Sequence[float],
    shown: Sequence[str],
    *,
    title: str,
    colours: Sequence[int] | None = None,
    marks: Sequence[float] = (),
) -> Markup:
    """Horizontal bars with their names above them and their values at their ends; `marks` are values that are marked
    beside each bar."""
    high = max([v for v in [*values, *marks] if math.isfinite(v)], default=0.0) or 1.0
    row, height, parts = 34, 34 * len(names) + 6, []
    for i, (name, value, words) in enumerate(zip(names, values, shown, strict=True)):
        length = max(0.0, value / high) * (WIDTH - 140) if math.isfinite(value) else 0
        colour = colours[i] if colours else 0
        end = length
        if marks and math.isfinite(marks[i]):
            at = marks[i] / high * (WIDTH - 140)
            end = max(length, at)
            parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{i * row + 14}" y2="{i * row + 31}"/>')
        parts.append(
            f'<text class="tick" x="0" y="{i * row + 12}">{escape(name)}</text>'
            f'<rect class="c{colour % COLOURS} fill" x="0" y="{i * row + 17}" width="{length:.1f}" height="11" rx="2"/>'
            f'<text class="tick" x="{end + 6:.1f}" y="{i * row + 26}">{escape(words)}</text>'
        )
    return svg(parts, WIDTH, height, title)


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    title: str,
    row_label: str,
    column_label: str,
) -> Markup:
    """A grid of shaded cells with their values; NaN stays empty."""
    finite = [v for line in values for v in line if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    left, size, tall = 84, (WIDTH - 90) / max(1, len(columns)), 30
    height = 44 + tall * len(rows)
    parts = [
        f'<text class="label" x="{left}" y="10">{escape(column_label)}</text><text class="label" x="0" '
        f'y="24">{escape(row_label)}</text>'
    ]
    parts += [
        f'<text class="tick" x="{left + size * (j + 0.5):.1f}" y="26" text-anchor="middle">{escape(name[:9])}</text>'
        for j, name in enumerate(columns)
    ]
    for i, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = 32 + tall * i
        parts.append(f'<text class="tick" x="0" y="{y + 19}">{escape(name[:13])}</text>')
        for j, value in enumerate(line):
            if math.isfinite(value):
                shade = 0.08 + 0.62 * ((value - low) / (high - low) if high > low else 0.5)
                parts.append(
                    f'<rect class="c0 fill" x="{left + size * j:.1f}" y="{y}" width="{size - 2:.1f}" '
                    f'height="{tall - 2}" fill-opacity="{shade:.2f}"/>'
                    f'<text class="tick strong" x="{left + size * (j + 0.5) - 1:.1f}" y="{y + 18}" '
                    f'text-anchor="middle">{short(value)}</text>'
                )
    return svg(parts, WIDTH, height, title)
