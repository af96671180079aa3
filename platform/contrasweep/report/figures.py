"""The figures of a report, each as HTML; an empty text where there is nothing to show."""

import math
from collections.abc import Iterable
from html import escape

import numpy as np

from contrasweep.report.bars import bar_chart, heat_map
from contrasweep.report.charts import COLOURS, Dots, Series, short, xy_chart
from contrasweep.report.source import Source
from contrasweep.report.table import Cell
from contrasweep.results.effects import ORDER, effects, noise

POINTS = 1500


def figure(svg: str, caption: str, title: str = "") -> str:
    head = f"<h3>{escape(title)}</h3>" if title else ""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{head}{svg}{below}</figure>" if svg else ""


def keys(source: Source) -> str:
    """The legend of all charts: one button an arm, which shows and hides it everywhere."""
    return (
        '<div class="keys">'
        + "".join(
            f'<button class="key c{source.colour(arm) % COLOURS}" data-name="{escape(arm)}" '
            f'aria-pressed="true"><i></i><span>{escape(arm)}</span></button>'
            for arm in source.arms
        )
        + "</div>"
    )


def slices(source: Source) -> list[str]:
    """The metric along every axis, one line an arm: lines that are not parallel are an interaction."""
    if not source.axes:
        return [_replicates(source)] if len(source.done) else []
    return [
        figure(
            _slice(source, axis), "Mean of each arm; bars span the middle 80 % of trials.", f"{source.metric} by {axis}"
        )
        for axis in source.axes
        if source.done[axis].nunique() > 1
    ] or [_replicates(source)]


def _slice(source: Source, axis: str) -> str:
    names = list(dict.fromkeys(source.done[axis]))
    series, shift = [], np.linspace(-0.16, 0.16, max(2, len(source.arms)))
    for i, arm in enumerate(source.arms):
        part = source.done[source.done["arm"] == arm].groupby(axis, sort=False)["value"]
        mean, low, high = part.mean(), part.quantile(0.1), part.quantile(0.9)
        at = [n for n in names if n in mean.index]
        x = [names.index(n) + float(shift[i]) for n in at]
        series.append(Series(arm, i, x, list(mean[at]), list(low[at]), list(high[at]), dots=True, bars=True))
    return xy_chart(series, x_label=axis, y_label=source.metric, x_names=names)


def _replicates(source: Source) -> str:
    rng = np.random.default_rng(0)
    dots = []
    for i, arm in enumerate(source.arms):
        part = source.done[source.done["arm"] == arm].head(POINTS)
        titles = [
            f"{arm}, fold {f}, seed {s}: {short(v)}"
            for f, s, v in zip(part["fold"], part["seed"], part["value"], strict=True)
        ]
        dots.append(Dots(arm, i, list(i + rng.uniform(-0.15, 0.15, len(part))), list(part["value"]), titles))
    series = [
        Series(a, i, [i], [c.mean or 0.0], [c.low or 0.0], [c.high or 0.0], dots=True, bars=True)
        for i, (a, c) in enumerate(_arm_cells(source))
        if c and c.mean is not None
    ]
    svg = xy_chart(series, dots, x_label="arm", y_label=source.metric, x_names=source.arms)
    return figure(svg, "Every finished trial, with mean and interval.", f"{source.metric} by arm")


def _arm_cells(source: Source) -> Iterable[tuple[str, "Cell | None"]]:
    table = source.overall or source.table
    found = {row[-1]: table.cells.get((row, ())) for row in table.rows}
    return [(arm, found.get(arm)) for arm in source.arms]


def interaction_figures(source: Source) -> list[str]:
    """Arms against every axis as a heat map of means, and how much each effect explains."""
    made = []
    for axis in source.axes:
        names = list(dict.fromkeys(source.done[axis]))
        if len(names) > 1 and len(source.arms) > 1 and len(names) <= 8:
            means = source.done.pivot_table(index="arm", columns=axis, values="value", sort=False)
            grid = [
                [float(means.loc[a, n]) if a in means.index and n in means.columns else math.nan for n in names]
                for a in source.arms
            ]
            svg = heat_map(source.arms, names, grid, title=f"mean {source.metric}", row_label="arm", column_label=axis)
            made.append(figure(svg, f"Mean {source.metric}; darker is larger.", f"arm x {axis}"))
    found = effects(source.done, "value", source.axes)
    if len(found):
        p_values = ["" if math.isnan(p) else f", p {'< 0.001' if p < 1e-3 else f'= {p:.2g}'}" for p in found["p_value"]]
        shown = [f"{100 * s:.1f} %{p}" for s, p in zip(found["share"], p_values, strict=True)]
        svg = bar_chart(list(found["effect"]), list(found["share"]), shown, title="share of variation")
        made.append(
            figure(
                svg,
                "Share of the variation between trials that each factor explains, and each pair beyond its two. "
                "The F test takes trials as independent: a screen, not a verdict.",
                "What the metric depends on",
            )
        )
    return made


def variance_figure(source: Source) -> str:
    """What makes replicates of one cell differ."""
    found = noise(source.done, "value", source.axes)
    if found.empty:
        return ""
    apart = ORDER in set(found["source"])
    words = {
        "seed": "seed (initialisation and augmentation)" if apart else "seed (initialisation and order)",
        ORDER: "order of the data",
        "rest": "rest (arm-specific noise)",
    }
    names = [words.get(name, name) for name in found["source"]]
    shown = [
        f"{100 * share:.0f} % (sd {short(math.sqrt(v))})"
        for share, v in zip(found["share"], found["variance"], strict=True)
    ]
    svg = bar_chart(names, list(found["share"]), shown, title="variance components", colours=[2] * len(names))
    return figure(
        svg,
        "Variance components within a cell. What all arms share, pairing takes out of the comparison.",
        "Where the noise comes from",
    )
