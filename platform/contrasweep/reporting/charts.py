"""Charts of a report: learning curves, and the metric along each axis."""

import math
from typing import Any

import pandas as pd

from contrasweep.reporting.data import ReportData, Variables
from contrasweep.reporting.figures import Figure, Lines, Series
from contrasweep.storage.record import LARGEST

MAX_METRICS = 12
"""The most metrics that have curves."""
MAX_STEPS = 120
"""The most steps of a curve that are drawn."""


def curves_section(data: ReportData) -> Variables:
    """Return the learning curves for the report: a figure for each metric of `drawn_metrics`; empty without any.

    A figure has a line for each arm: the mean over all of its finished trials at each step, and their range as a band.
    """
    metrics = drawn_metrics(data)
    if data.curves is None or not metrics:
        return {}
    # One metric after the other, as the curves of a big study are large. Each trial is grouped by the number of its arm
    # and step; one that is not finished has no number, and is in no group.
    arms = {
        trial: data.colour(str(arm))
        for trial, arm in zip(data.done["trial_id"], data.done["arm"], strict=True)
    }
    groups = data.curves.groupby([data.curves["trial_id"].map(arms).to_numpy(), "step"])
    figures = []
    for metric in metrics:
        stats = groups[metric].agg(["mean", "min", "max"])
        # A value that is so large that it counts as lost would overflow the scale.
        stats = stats.where(stats.abs() <= LARGEST).dropna()
        series = [
            _line(data.names(arm), number, stats.loc[number])
            for number, arm in enumerate(data.arms)
            if number in stats.index
        ]
        name = data.names(metric)
        if series:
            chart = Lines(series, x_label="step", y_label=name)
            figures.append(Figure(chart, title=name))
    return {"shown": figures} if figures else {}


def drawn_metrics(data: ReportData) -> list[str]:
    """Return the names of the metrics whose curves are drawn, at most `MAX_METRICS`; [] without curves.

    They are metrics that had different values in finished trials. The study's metric comes first, then losses, then the
    others, and metrics of a single class (`f1_class_3`) last.
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
    # False sorts before True.
    return sorted(
        metrics,
        key=lambda metric: (
            metric != data.metric,
            not metric.startswith("loss"),
            "_class_" in metric,
        ),
    )[:MAX_METRICS]


def _line(arm: str, colour: int, stats: Any) -> Series:
    """Return the line of an arm, with its range as a band.

    `stats` has the mean, min and max of its trials, a row for each step. `colour` is the number of the line's colour.
    Of more than `MAX_STEPS` steps every n-th is drawn.
    """
    stats = stats.iloc[:: max(1, math.ceil(len(stats) / MAX_STEPS))]
    return Series(
        arm, colour, list(stats.index), list(stats["mean"]), list(stats["min"]), list(stats["max"])
    )


def slices_section(data: ReportData) -> Variables:
    """Return a figure of the metric along each axis that has several values, for the report; empty where none has.

    A figure has a line for each arm. Lines that are not parallel mean that the effect of the arm depends on the axis.
    """
    figures = [
        Figure(
            _slice(data, axis),
            "Mean of each arm; the band has the middle 80 % of trials.",
            f"{data.names(data.metric)} by {data.names(axis)}",
        )
        for axis in data.axes
        if data.done[axis].nunique() > 1
    ]
    return {"shown": figures} if figures else {}


def _slice(data: ReportData, axis: str) -> Lines:
    """Return the chart of the metric along one axis, whose values stand side by side."""
    names = list(dict.fromkeys(data.done[axis]))
    series = []
    for i, arm in enumerate(data.arms):
        # The values of the arm's trials, grouped by their value of the axis, of which an arm may lack some.
        values = data.done[data.done["arm"] == arm].groupby(axis, sort=False)["value"]
        mean = values.mean()
        present = [name for name in names if name in mean.index]
        series.append(
            Series(
                data.names(arm),
                i,
                list(map(names.index, present)),
                list(mean[present]),
                list(values.quantile(0.1)[present]),
                list(values.quantile(0.9)[present]),
                dots=True,
            )
        )
    shown = [data.names(name) for name in names]
    return Lines(series, x_label=data.names(axis), y_label=data.names(data.metric), x_names=shown)
