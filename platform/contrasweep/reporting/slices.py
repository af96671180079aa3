"""The metric of a study along each axis, or by arm where it has none, as figures of a report."""

import numpy as np

from contrasweep.reporting.data import ReportData
from contrasweep.reporting.figures import Dots, Figure, Lines, Series, short

MAX_DOTS = 1500
"""The most points of an arm in a figure."""


def slices(data: ReportData) -> list[Figure]:
    """Return a figure of the metric along each axis, one line per arm: lines that are not parallel are an interaction.

    Where no axis has two values there is one figure, of the metric by arm. There is no figure where there are neither
    axes nor finished trials.
    """
    if not data.axes:
        return [_replicates(data)] if len(data.done) else []
    return [
        Figure(
            _slice(data, axis),
            "Mean of each arm; bars span the middle 80 % of trials.",
            f"{data.names(data.metric)} by {data.names(axis)}",
        )
        for axis in data.axes
        if data.done[axis].nunique() > 1
    ] or [_replicates(data)]


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


def _replicates(data: ReportData) -> Figure:
    """Return a figure with every finished trial as a dot, by arm, and the arm's mean and interval."""
    # The dots of an arm are spread at random around its place.
    rng = np.random.default_rng(0)
    dots = []
    name_of = data.names
    for i, arm in enumerate(data.arms):
        part = data.done[data.done["arm"] == arm].head(MAX_DOTS)
        titles = [
            f"{name_of(arm)}, fold {f}, seed {s}: {short(v)}"
            for f, s, v in zip(part["fold"], part["seed"], part["value"], strict=True)
        ]
        dots.append(
            Dots(
                name_of(arm),
                i,
                list(i + rng.uniform(-0.15, 0.15, len(part))),
                list(part["value"]),
                titles,
            )
        )
    # The means: cells of the table over all axes, whose only label is the arm.
    table = data.overall or data.table
    cells = {(*row, *column)[0]: cell for (row, column), cell in table.cells.items()}
    series = []
    for i, arm in enumerate(data.arms):
        cell = cells.get(arm)
        if cell and cell.mean is not None and cell.low is not None and cell.high is not None:
            ends = [cell.low], [cell.high]
            series.append(Series(name_of(arm), i, [i], [cell.mean], *ends, dots=True, bars=True))
    chart = Lines(
        series,
        dots,
        x_label="arm",
        y_label=name_of(data.metric),
        x_names=list(map(name_of, data.arms)),
    )
    return Figure(
        chart, "Every finished trial, with mean and interval.", f"{name_of(data.metric)} by arm"
    )
