"""Parallel coordinates: every trial as a line over its settings and its value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup

from contrasweep.report.charts import COLOURS, log_ticks, path, short, svg, ticks

GAP, WIDTH, HEIGHT = 128, 1040, 330
LEFT, RIGHT, TOP, BOTTOM = 84, 66, 34, 314
SMALLEST = 0.8  # of its size, so that its text stays legible
SINGLE = 400  # up to so many lines each is an element of its own, which a pointer can find


@dataclass(frozen=True)
class Axis:
    """An upright axis: positions 0 to 1 of each line (NaN where a trial lacks it), and marks (position, text)."""

    name: str
    positions: Sequence[float]
    marks: Sequence[tuple[float, str]]


def axis(name: str, values: Sequence[object], *, log: bool = False) -> Axis:
    """Numbers by size (by magnitude with `log` or where they span decades), anything else by name."""
    try:
        numbers = np.array([float(v) for v in values], dtype=np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        names = list(dict.fromkeys(map(str, values)))
        at = {n: (i + 0.5) / len(names) for i, n in enumerate(names)}
        marks = [(p, n if len(n) <= 11 else n[:10] + "…") for n, p in at.items()] if len(names) <= 14 else []
        return Axis(name, [at[str(v)] for v in values], marks)
    finite = numbers[np.isfinite(numbers)]
    low, high = float(finite.min()), float(finite.max())
    log = low > 0 and (log or high / low > 50)
    distinct = [float(v) for v in np.unique(finite)]
    shown = distinct if len(distinct) <= 6 else log_ticks(low, high) if log else ticks(low, high)

    def place(value: float) -> float:
        scale = math.log if log else float
        return (scale(value) - scale(low)) / ((scale(high) - scale(low)) or 1.0) if math.isfinite(value) else math.nan

    return Axis(name, [place(float(v)) for v in numbers], [(place(v), short(v)) for v in shown])


def parallel_chart(
    axes: Sequence[Axis], colours: Sequence[int], names: Sequence[str], *, title: str, tips: Sequence[str] = ()
) -> Markup:
    """One line a trial, in the colour and under the name (its arm) of the same place; `tips` for a pointer over it."""
    gap = max(GAP, (WIDTH - LEFT - RIGHT) / max(1, len(axes) - 1))
    width = LEFT + gap * (len(axes) - 1) + RIGHT
    groups: dict[tuple[int, str], list[str]] = {}
    for i, (colour, name) in enumerate(zip(colours, names, strict=True)):
        at = [
            (LEFT + gap * j, BOTTOM - a.positions[i] * (BOTTOM - TOP))
            for j, a in enumerate(axes)
            if math.isfinite(a.positions[i])
        ]
        tip = f"<title>{escape(tips[i])}</title>" if tips else ""
        one = f'<path class="thin" d="{path(at)}">{tip}</path>' if len(names) <= SINGLE else path(at)
        groups.setdefault((colour % COLOURS, name), []).append(one)
    parts = []
    for (colour, name), lines in groups.items():
        inner = "".join(lines) if len(names) <= SINGLE else f'<path class="thin" d="{"".join(lines)}"/>'
        parts.append(f'<g class="c{colour}" data-name="{escape(name)}">{inner}</g>')
    for j, a in enumerate(axes):
        x = LEFT + gap * j
        side, anchor = (-6, "end") if j == 0 else (6, "start")
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>')
        parts.append(f'<text class="label" x="{x:.1f}" y="16" text-anchor="middle">{escape(a.name)}</text>')
        parts += [
            f'<text class="tick halo" x="{x + side:.1f}" y="{BOTTOM - p * (BOTTOM - TOP) + 3.5:.1f}" '
            f'text-anchor="{anchor}">{escape(text)}</text>'
            for p, text in a.marks
        ]
    smallest = f' style="min-width:{round(SMALLEST * width)}px"'  # a phone scrolls
    return svg(parts, round(width), HEIGHT, title, smallest)
