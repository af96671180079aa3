"""The figures of a report, each as HTML; an empty text where there is nothing to show."""

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
import pandas as pd

from contrasweep.report.charts import Dots, Series, bar_chart, heat_map, parallel_chart, short, xy_chart
from contrasweep.report.source import Source
from contrasweep.report.table import Cell
from contrasweep.statistics import best_so_far, expected_best, interactions, variance_components

PANELS = 12
STEPS = 120
LINES = 2000
POINTS = 1500


def figure(svg: str, caption: str, title: str = "") -> str:
    head = f"<h3>{escape(title)}</h3>" if title else ""
    return f"<figure>{head}{svg}<figcaption>{escape(caption)}</figcaption></figure>" if svg else ""


def keys(source: Source) -> str:
    """The legend of all charts: one button an arm, which shows and hides it everywhere."""
    return '<div class="keys">' + "".join(
        f'<button class="key c{source.colour(arm) % 8}" data-name="{escape(arm)}" aria-pressed="true"><i></i><span>{escape(arm)}</span></button>'
        for arm in source.arms) + "</div>"  # fmt: skip


def slices(source: Source) -> list[str]:
    """The metric along every axis, one line an arm: lines that are not parallel are an interaction."""
    if not source.axes:
        return [_replicates(source)] if len(source.done) else []
    return [figure(_slice(source, axis), "Mean of each arm; bars span the middle 80 % of trials.", f"{source.metric} by {axis}")
            for axis in source.axes if source.done[axis].nunique() > 1] or [_replicates(source)]  # fmt: skip


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
    series = [Series(a, i, [i], [c.mean or 0.0], [c.low or 0.0], [c.high or 0.0], dots=True, bars=True)
              for i, (a, c) in enumerate(_arm_cells(source)) if c and c.mean is not None]  # fmt: skip
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
                [
                    float(means.loc[a, n]) if a in means.index and n in means.columns else math.nan
                    for n in names
                ]
                for a in source.arms
            ]
            svg = heat_map(
                source.arms, names, grid, title=f"mean {source.metric}", row_label="arm", column_label=axis
            )
            made.append(figure(svg, f"Mean {source.metric}; darker is larger.", f"arm x {axis}"))
    factors = ["arm", *source.axes]
    if len(source.done) > 2 and sum(source.done[f].nunique() > 1 for f in factors) > 0:
        found = interactions(source.done, "value", factors)
        p_values = [
            "" if math.isnan(p) else f", p {'< 0.001' if p < 1e-3 else f'= {p:.2g}'}"
            for p in found["p_value"]
        ]
        shown = [f"{100 * s:.1f} %{p}" for s, p in zip(found["share"], p_values, strict=True)]
        svg = bar_chart(list(found["effect"]), list(found["share"]), shown, title="share of variation")
        made.append(figure(svg, "Share of the variation between trials that each factor explains, and each pair beyond its two. "
                                "The F test takes trials as independent: a screen, not a verdict.", "What the metric depends on"))  # fmt: skip
    return made


def variance_figure(source: Source) -> str:
    """What makes replicates of one cell differ."""
    sources = [
        name
        for name in ("seed", "fold", "order")
        if name in source.done and source.done[name].nunique(dropna=False) > 1
    ]
    cells = ["arm", *source.axes]
    if not sources or len(source.done) <= source.done.groupby(cells).ngroups:
        return ""
    found = variance_components(source.done, "value", sources, cells)
    words = {"seed": "seed (initialisation and order)", "rest": "rest (arm-specific noise)"}
    names = [words.get(name, name) for name in found["source"]]
    shown = [
        f"{100 * share:.0f} % (sd {short(math.sqrt(v))})"
        for share, v in zip(found["share"], found["variance"], strict=True)
    ]
    svg = bar_chart(names, list(found["share"]), shown, title="variance components", colours=[2] * len(names))
    return figure(svg, "Variance components within a cell. What all arms share, pairing takes out of the comparison.",
                  "Where the noise comes from")  # fmt: skip


def curve_figures(source: Source) -> str:
    """Learning curves of every metric, one panel a combination of the axes."""
    curves = source.curves
    if curves is None or curves.empty:
        return ""
    taken = {"trial_id", "step", "time"}
    metrics = [str(c) for c in curves.columns if c not in taken and pd.api.types.is_numeric_dtype(curves[c])]
    metrics.sort(key=lambda m: m != source.metric)
    arms = dict(zip(source.done["trial_id"], source.done["arm"], strict=True))
    settings = (
        zip(*(source.done[axis] for axis in source.axes), strict=True) if source.axes else [()] * len(arms)
    )
    panels = {
        trial: ", ".join(f"{axis} {value}" for axis, value in zip(source.axes, row, strict=True))
        for trial, row in zip(source.done["trial_id"], settings, strict=True)
    }
    curves = curves[curves["trial_id"].isin(arms)]
    curves = curves.assign(arm=curves["trial_id"].map(arms), panel=curves["trial_id"].map(panels))
    boxes = "".join(_curve_box(source, curves, metric) for metric in metrics[:10])
    options = "".join(f"<option>{escape(m)}</option>" for m in metrics[:10])
    return f'<label class="soft">Metric <select data-shows="curves">{options}</select></label>{boxes}'


def _curve_box(source: Source, curves: pd.DataFrame, metric: str) -> str:
    panels = list(dict.fromkeys(curves["panel"]))
    shown = []
    stats = (
        curves.groupby(["panel", "arm", "step"], sort=False)[metric].agg(["mean", "min", "max"]).sort_index()
    )
    for panel in panels[:PANELS]:
        series = []
        for arm in source.arms:
            if (panel, arm) not in stats.index:
                continue
            part = stats.loc[(panel, arm)].dropna()
            part = part.iloc[:: max(1, math.ceil(len(part) / STEPS))]
            series.append(_banded(source, arm, part.reset_index(), "step", "mean", "min", "max"))
        shown.append(
            figure(
                xy_chart(series, x_label="step", y_label=metric),
                "Mean over replicates; the band is their range.",
                panel,
            )
        )
    more = (
        f'<p class="soft">{len(panels) - PANELS} more combinations are not drawn.</p>'
        if len(panels) > PANELS
        else ""
    )
    return f'<div data-group="curves" data-option="{escape(metric)}"><div class="figures">{"".join(shown)}</div>{more}</div>'


def _banded(source: Source, arm: str, frame: pd.DataFrame, x: str, y: str, low: str, high: str) -> Series:
    return Series(
        arm, source.colour(arm), list(frame[x]), list(frame[y]), list(frame[low]), list(frame[high])
    )


def parallel_figure(source: Source) -> str:
    """Every trial as a line over its settings and its value."""
    if source.search is not None and len(source.search):
        frame, settings = (
            source.search,
            [c for c in source.search.columns if c not in ("trial_id", "arm", "value", "status")],
        )
    else:
        frame, settings = source.done, list(source.axes)
    frame = frame[frame["value"].notna()]
    settings = [s for s in settings if frame[s].nunique(dropna=True) > 1]
    if not settings or not len(frame):
        return ""
    total = len(frame)
    frame = frame.sample(LINES, random_state=0) if total > LINES else frame
    axes = [_scale("arm", list(frame["arm"]))] if len(source.arms) > 1 else []
    axes += [_scale(name, list(frame[name])) for name in settings] + [
        _scale(source.metric, list(frame["value"]))
    ]
    arms = [str(a) for a in frame["arm"]]
    svg = parallel_chart(axes, [source.colour(a) for a in arms], arms, title="parallel coordinates")
    note = f"{LINES} of {total} trials, drawn at random." if total > LINES else f"{total} trials."
    return figure(svg, f"One line a trial; {note} Click an arm above to hide it.", "Parallel coordinates")


def _scale(name: str, values: Sequence[object]) -> tuple[str, list[float], list[tuple[float, str]]]:
    """Positions 0..1 of `values` on an axis: numbers by size (by magnitude where they span decades), else by name."""
    try:
        numbers = np.array([float(v) for v in values], dtype=np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        names = list(dict.fromkeys(map(str, values)))
        at = {n: (i + 0.5) / len(names) for i, n in enumerate(names)}
        return (
            name,
            [at[str(v)] for v in values],
            [(p, n[:11]) for n, p in at.items()] if len(names) <= 14 else [],
        )
    finite = numbers[np.isfinite(numbers)]
    low, high = float(finite.min()), float(finite.max())
    logarithmic = low > 0 and high / low > 50
    scaled = np.log(numbers) if logarithmic else numbers
    low, high = (math.log(low), math.log(high)) if logarithmic else (low, high)
    distinct = np.unique(finite)
    marks = (
        distinct
        if len(distinct) <= 6
        else np.exp(np.linspace(low, high, 5))
        if logarithmic
        else np.linspace(low, high, 5)
    )
    width = (high - low) or 1.0
    return (
        name,
        list((scaled - low) / width),
        [(((math.log(m) if logarithmic else m) - low) / width, short(float(m))) for m in marks],
    )


def search_figures(source: Source) -> list[str]:
    """What the search's budget bought, and how each setting went."""
    search = source.search
    if search is None or search.empty:
        return []
    made, searcher = [], str(source.facts.get("searcher", ""))
    independent = searcher in ("random", "quasi-random", "qmc", "sobol", "")
    series = []
    for arm in source.arms:
        values = search.loc[(search["arm"] == arm) & search["value"].notna(), "value"].to_numpy(
            dtype=np.float64
        )
        if not len(values):
            continue
        if independent:
            best = expected_best(values, mode=source.mode, alpha=source.facts.get("alpha", 0.05))
            series.append(_banded(source, arm, best, "trials", "expected", "low", "high"))
        else:
            series.append(
                Series(
                    arm,
                    source.colour(arm),
                    list(range(1, len(values) + 1)),
                    list(best_so_far(values, mode=source.mode)),
                )
            )
    caption = ("Expected best of k random trials (unbiased); the band is the exact interval of its median, drawn as far as these trials bound it."
               if independent else f"Best found so far; {searcher} adapts, so its trials are no independent draws and have no band.")  # fmt: skip
    made.append(
        figure(
            xy_chart(series, x_label="trials", y_label=f"best {source.metric}"), caption, "What a budget buys"
        )
    )
    for name in [c for c in search.columns if c not in ("trial_id", "arm", "value", "status")]:
        numbers = pd.to_numeric(search[name], errors="coerce")
        if numbers.notna().sum() > 1 and numbers.nunique() > 1:
            log = numbers.min() > 0 and numbers.max() / numbers.min() > 50
            dots = []
            for arm in source.arms:
                part = search[(search["arm"] == arm) & search["value"].notna() & numbers.notna()].head(POINTS)
                x = numbers[part.index].to_numpy(dtype=np.float64)
                titles = [
                    f"{arm}, {name} {short(a)}: {short(b)}" for a, b in zip(x, part["value"], strict=True)
                ]
                dots.append(
                    Dots(
                        arm, source.colour(arm), list(np.log10(x) if log else x), list(part["value"]), titles
                    )
                )
            svg = xy_chart([], dots, x_label=f"log10 {name}" if log else name, y_label=source.metric)
            made.append(figure(svg, "One point a search trial.", f"Slice: {name}"))
    return made


def importance_figures(source: Source) -> list[str]:
    """How much of the metric each searched setting explains, by arm."""
    made = []
    for arm, shares in source.importance.items():
        ranked = sorted(shares.items(), key=lambda item: -item[1])
        if ranked:
            colour = source.colour(arm) if arm in source.arms else 0
            svg = bar_chart([n for n, _ in ranked], [v for _, v in ranked], [f"{100 * v:.0f} %" for _, v in ranked],
                            title=f"importance, {arm}", colours=[colour] * len(ranked))  # fmt: skip
            made.append(figure(svg, "Share of importance (PED-ANOVA).", f"Importance of settings: {arm}"))
    return made
