"""The metric of a study along each axis, as figures of a report."""

import numpy as np

from contrasweep.reporting.data import ReportData, Variables
from contrasweep.reporting.figures import Figure, Lines, Series


def slices_section(data: ReportData) -> Variables:
    """Return a figure of the metric along each axis that has several values; empty where none has.

    It has a line for each arm: lines that are not parallel are an interaction.
    """
    figures = [
        Figure(
            _slice(data, axis),
            "Mean of each arm; bars span the middle 80 % of trials.",
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
    # Arms are shifted a little, so that their bars do not hide one another.
    shift = np.linspace(-0.16, 0.16, max(2, len(data.arms)))
    for i, arm in enumerate(data.arms):
        # By value of the axis, the values of the arm's trials; an arm may lack values of the axis.
        values = data.done[data.done["arm"] == arm].groupby(axis, sort=False)["value"]
        mean = values.mean()
        present = [name for name in names if name in mean.index]
        series.append(
            Series(
                data.names(arm),
                i,
                [names.index(name) + float(shift[i]) for name in present],
                list(mean[present]),
                list(values.quantile(0.1)[present]),
                list(values.quantile(0.9)[present]),
                dots=True,
                bars=True,
            )
        )
    shown = [data.names(name) for name in names]
    return Lines(series, x_label=data.names(axis), y_label=data.names(data.metric), x_names=shown)
