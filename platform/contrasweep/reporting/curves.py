"""Learning curves: the mean over replicates and its band, one panel a combination of the axes or a metric."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from contrasweep.reporting.data import TrialData, Variables
from contrasweep.reporting.figures import Figure, Lines, Series
from contrasweep.rows import row_tuples
from contrasweep.storage.record import LARGEST

PANELS = 12
"""The most panels of a metric that are drawn."""
METRICS = 12
"""The most metrics that have curves."""
STEPS = 120
"""The most steps of a curve that are drawn, about."""
Spread = dict[Any, pd.DataFrame]
"""(panel, arm) -> mean, min and max of each metric (columns) at each step (rows)."""


def curves_section(data: TrialData) -> Variables:
    """Return the learning curves of the finished trials; empty where no finished trial has a metric that changed.

    `by_metric` has the panels of each metric, the study's first. A panel is one combination of values of the axes, with
    one line per arm. The panels of a metric share a scale, so that they can be compared. `panels` counts all
    combinations, `omitted` those that are not drawn (below 0: none).
    """
    curves = data.curves
    if curves is None or curves.empty:
        return {}

    metrics = drawn_metrics(data)
    if not metrics:
        return {}

    # The panel of each finished trial, named by the values of its axes, and its arm.
    named = data.done.set_index("trial_id")
    settings = [
        ", ".join(
            f"{data.names(axis)} {data.names(value)}"
            for axis, value in zip(data.axes, row, strict=True)
        )
        for row in row_tuples(named, data.axes)
    ]
    lines = list(zip(settings, named["arm"].astype(str), strict=True))
    # Each line, a panel and an arm, has a number, by which its trials are grouped.
    numbers = {line: number for number, line in enumerate(dict.fromkeys(lines))}
    number_of = {trial: numbers[line] for trial, line in zip(named.index, lines, strict=True)}

    # Mean and range of the trials of each line at each step: one metric after the other, as the curves of a big study
    # are large. A trial that is not finished has no number, and is in no group.
    groups = curves.groupby([curves["trial_id"].map(number_of).to_numpy(), "step"], observed=True)
    stats = pd.concat(
        {metric: groups[metric].agg(["mean", "min", "max"]) for metric in metrics}, axis=1
    )
    # One that counts as lost would overflow the scale.
    stats = stats.where(stats.abs() <= LARGEST)
    spread = {
        line: stats.loc[[number]].droplevel(0)
        for line, number in numbers.items()
        if number in stats.index
    }

    # A single panel has the metric as its title; several have their values of the axes.
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


def drawn_metrics(data: TrialData) -> list[str]:
    """Return the metrics whose curves are drawn, at most `METRICS`; [] without curves.

    They are the metrics that change in finished trials: the study's first, then losses, those of single classes last.
    """
    curves = data.curves
    if curves is None:
        return []
    finished = curves["trial_id"].isin(data.done["trial_id"])
    metrics = []
    for column in curves.columns.drop(["trial_id", "step", "time"], errors="ignore"):
        values = curves.loc[finished, column]
        if pd.api.types.is_numeric_dtype(values) and values.min() < values.max():
            metrics.append(str(column))
    return sorted(
        metrics, key=lambda m: (m != data.metric, not m.startswith("loss"), "_class_" in m)
    )[:METRICS]


def _panels(
    data: TrialData, spread: Spread, panels: Sequence[str], metric: str, titles: Sequence[str]
) -> list[Figure]:
    """Return a figure of a metric for each of these panels that has a line, all on one scale."""
    # The least and the largest value over several panels, which then have one scale.
    ends = [
        end
        for (panel, _), part in spread.items()
        if panel in panels
        for end in (float(part[metric, "min"].min()), float(part[metric, "max"].max()))
        if math.isfinite(end)
    ]
    within = [min(ends), max(ends)] if ends and len(panels) > 1 else ()
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
    """Return the line of an arm from `part`, its mean, min and max by step; of many steps it takes every n-th."""
    part = part.iloc[:: max(1, math.ceil(len(part) / STEPS))]
    return Series(
        arm, colour, list(part.index), list(part["mean"]), list(part["min"]), list(part["max"])
    )
