"""Learning curves: the mean over replicates and its band, one panel a combination of the axes or a metric."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from contrasweep.reporting.data import TrialData, Variables
from contrasweep.reporting.figures import Figure, Lines, Series
from contrasweep.rows import row_tuples

PANELS = 12
"""Panels of a metric that are drawn at most."""
METRICS = 12
"""Metrics that have curves at most."""
STEPS = 120
"""Steps of a curve that are drawn, about, at most."""
Spread = dict[Any, pd.DataFrame]
"""By panel and arm: mean, min and max of each metric (columns) at each step (rows)."""


def curves_section(data: TrialData) -> Variables:
    """Return the learning curves of the finished trials; empty where no trial has reported a metric that changed.

    `by_metric` has the panels of each metric, the study's first. A panel is of one combination of the axes, with one
    line an arm; the panels of a metric share a scale, so that they compare. `panels` counts all combinations.
    """
    curves = data.curves
    if curves is None or curves.empty:
        return {}

    # The metrics that change: the study's first, then losses, and those of single classes last.
    metrics = [
        str(c)
        for c in curves.columns
        if c not in ("trial_id", "step", "time") and pd.api.types.is_numeric_dtype(curves[c])
    ]
    finished = curves["trial_id"].isin(data.done["trial_id"])
    moving = [m for m in metrics if curves.loc[finished, m].nunique() > 1]
    if not moving:  # a single report, or none of a finished trial
        return {}
    metrics = sorted(
        moving, key=lambda m: (m != data.metric, not m.startswith("loss"), "_class_" in m)
    )[:METRICS]

    # Each finished trial's panel, by the values of its axes, and its arm.
    named = data.done.set_index("trial_id")
    settings = [
        ", ".join(
            f"{data.names(axis)} {data.names(value)}"
            for axis, value in zip(data.axes, row, strict=True)
        )
        for row in row_tuples(named, data.axes)
    ]
    panels = dict(zip(named.index, settings, strict=True))
    arms = named["arm"].astype(str).to_dict()

    # Mean and range of the trials of each panel and arm at each step.
    shown = curves.loc[finished, ["step", *metrics]]  # what is not drawn is not copied
    trials = curves.loc[finished, "trial_id"]
    groups = [trials.map(panels).to_numpy(), trials.map(arms).to_numpy(), "step"]
    stats = shown.groupby(groups, observed=True)
    spread = {
        key: part.droplevel([0, 1])
        for key, part in stats[metrics].agg(["mean", "min", "max"]).groupby(level=[0, 1])
    }

    # A single panel has the metric as its title, others have their values of the axes.
    order = list(dict.fromkeys(settings))
    by_metric = {}
    for metric in metrics:
        name = data.names(metric)
        titles = order if len(order) > 1 else [name]
        by_metric[name] = _panels(data, spread, order[:PANELS], metric, titles)
    return {
        "caption": "Mean over replicates; the band is their range.",
        "panels": len(order),
        "by_metric": by_metric,
        "omitted": len(order) - PANELS,
    }


def _panels(
    data: TrialData, spread: Spread, panels: Sequence[str], metric: str, titles: Sequence[str]
) -> list[Figure]:
    """Return the figures of a metric, one for each of these panels, on one scale; without those that have no line."""
    within = _range(spread, panels, metric) if len(panels) > 1 else ()
    drawn = []
    for panel, title in zip(panels, titles, strict=False):
        series = [
            _line(data.names(arm), data.colour(arm), spread[panel, arm][metric].dropna())
            for arm in data.arms
            if (panel, arm) in spread
        ]
        if any(line.x for line in series):
            chart = Lines(
                series, x_label="step", y_label=data.names(metric), whole_x=True, y_within=within
            )
            drawn.append(Figure(chart, title=title))
    return drawn


def _line(arm: str, colour: int, part: Any) -> Series:
    """Return the line of an arm: the mean of `part` (mean, min and max by step) with its range, thinned out."""
    part = part.iloc[:: max(1, math.ceil(len(part) / STEPS))]
    return Series(
        arm, colour, list(part.index), list(part["mean"]), list(part["min"]), list(part["max"])
    )


def _range(spread: Spread, panels: Sequence[str], metric: str) -> list[float]:
    """Return the least and the largest value over these panels, so that they compare; empty without a finite one."""
    ends = [
        (part[metric, "min"].min(), part[metric, "max"].max())
        for (panel, _), part in spread.items()
        if panel in panels
    ]
    finite = [float(v) for end in ends for v in end if math.isfinite(v)]
    return [min(finite), max(finite)] if finite else []
