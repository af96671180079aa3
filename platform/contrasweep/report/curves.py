"""Learning curves: the mean over replicates and its band, one panel a combination of the axes or a metric."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from contrasweep.report.charts import Series, xy_chart
from contrasweep.report.data import ReportData
from contrasweep.report.figures import figure

PANELS = 12
METRICS = 12
STEPS = 120
Spread = dict[Any, pd.DataFrame]
"""By panel and arm: mean, min and max of each metric (columns) at each step (rows)."""

CAPTION = "Mean over replicates; the band is their range."


def curve_figures(data: ReportData) -> str:
    """The study's metric first; another by the list above them. Without axes all metrics at once."""
    curves = data.curves
    if curves is None or curves.empty:
        return ""
    metrics = [
        str(c)
        for c in curves.columns
        if c not in ("trial_id", "step", "time") and pd.api.types.is_numeric_dtype(curves[c])
    ]
    curves = curves[curves["trial_id"].isin(data.done["trial_id"])]
    if curves.empty:
        return ""
    moving = [m for m in metrics if curves[m].nunique() > 1]
    metrics = sorted(moving, key=lambda m: (m != data.metric, not m.startswith("loss"), "_class_" in m))[:METRICS]
    named = data.done.set_index("trial_id")
    settings = [
        ", ".join(f"{axis} {value}" for axis, value in zip(data.axes, row, strict=True))
        for row in named[data.axes].itertuples(index=False)
    ]
    panels, arms = dict(zip(named.index, settings, strict=True)), named["arm"].astype(str).to_dict()
    stats = curves.assign(arm=curves["trial_id"].map(arms), panel=curves["trial_id"].map(panels)).groupby(
        ["panel", "arm", "step"], observed=True
    )
    spread = {
        key: part.droplevel([0, 1])
        for key, part in stats[metrics].agg(["mean", "min", "max"]).groupby(level=["panel", "arm"])
    }
    order = list(dict.fromkeys(settings))
    if len(order) == 1:
        shown = "".join(_panel(data, spread, order[0], metric, metric) for metric in metrics)
        return f'<p class="soft">{CAPTION}</p><div class="figures">{shown}</div>'
    more = f'<p class="soft">{len(order) - PANELS} more combinations are not drawn.</p>' if len(order) > PANELS else ""
    boxes = "".join(
        f'<div data-group="curves" data-option="{escape(m)}"{" class=off" if i else ""}><div class="figures">'
        f"{_panels(data, spread, order[:PANELS], m)}</div></div>"
        for i, m in enumerate(metrics)
    )
    options = "".join(f"<option>{escape(m)}</option>" for m in metrics)
    chooser = f'<label>Metric <select data-shows="curves">{options}</select></label>'
    return f'<p class="soft">{chooser} {CAPTION}</p>{boxes}{more}'


def _panels(data: ReportData, spread: Spread, panels: Sequence[str], metric: str) -> str:
    within = _range(spread, panels, metric)
    return "".join(_panel(data, spread, panel, metric, panel, within) for panel in panels)


def _panel(data: ReportData, spread: Spread, panel: str, metric: str, title: str, within: Sequence[float] = ()) -> str:
    series = []
    for arm in data.arms:
        if (panel, arm) in spread:
            part = spread[panel, arm][metric].dropna()
            part = part.iloc[:: max(1, math.ceil(len(part) / STEPS))]
            series.append(
                Series(
                    arm, data.colour(arm), list(part.index), list(part["mean"]), list(part["min"]), list(part["max"])
                )
            )
    svg = xy_chart(series, x_label="step", y_label=metric, whole_x=True, y_within=within)
    return figure(svg, "", title) if any(s.x for s in series) else ""


def _range(spread: Spread, panels: Sequence[str], metric: str) -> list[float]:
    """Least and largest value over all panels, so that they compare."""
    ends = [
        (part[metric, "min"].min(), part[metric, "max"].max()) for (panel, _), part in spread.items() if panel in panels
    ]
    finite = [float(v) for end in ends for v in end if math.isfinite(v)]
    return [min(finite), max(finite)] if finite else []
