"""The metric of a study along each axis, or by arm where it has none, as figures of a report."""

import numpy as np

from contrasweep.reporting.data import ReportData
from contrasweep.reporting.figures import Dots, Figure, Lines, Series, short

POINTS = 1500
"""Points of an arm that a figure has at most."""


def slices(data: ReportData) -> list[Figure]:
    """Return the metric along every axis, one line an arm: lines that are not parallel are an interaction.

    By arm alone where no axis has two values; empty without axes and finished trials.
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
    # Arms stand a little beside each other, so that their bars do not hide one another.
    shift = np.linspace(-0.16, 0.16, max(2, len(data.arms)))
    for i, arm in enumerate(data.arms):
        part = data.done[data.done["arm"] == arm].groupby(axis, sort=False)["value"]
        mean = part.mean()
        low = part.quantile(0.1)
        high = part.quantile(0.9)
        at = [n for n in names if n in mean.index]
        x = [names.index(n) + float(shift[i]) for n in at]
        series.append(
            Series(
                data.names(arm),
                i,
                x,
                list(mean[at]),
                list(low[at]),
                list(high[at]),
                dots=True,
                bars=True,
            )
        )
    shown = [data.names(name) for name in names]
    return Lines(series, x_label=data.names(axis), y_label=data.names(data.metric), x_names=shown)


def _replicates(data: ReportData) -> Figure:
    """Return every finished trial as a dot, by arm, with the arm's mean and interval."""
    # Dots of an arm are spread at random around its place.
    rng = np.random.default_rng(0)
    dots = []
    named = data.names
    for i, arm in enumerate(data.arms):
        part = data.done[data.done["arm"] == arm].head(POINTS)
        titles = [
            f"{named(arm)}, fold {f}, seed {s}: {short(v)}"
            for f, s, v in zip(part["fold"], part["seed"], part["value"], strict=True)
        ]
        dots.append(
            Dots(
                named(arm),
                i,
                list(i + rng.uniform(-0.15, 0.15, len(part))),
                list(part["value"]),
                titles,
            )
        )
    # The arms' cells in the table without axes, whose rows are the arms and which has no columns.
    table = data.overall or data.table
    cells = {row[-1]: table.cells.get((row, ())) for row in table.rows}
    series = [
        Series(named(arm), i, [i], [c.mean], [c.low or 0.0], [c.high or 0.0], dots=True, bars=True)
        for i, arm in enumerate(data.arms)
        if (c := cells.get(arm)) and c.mean is not None
    ]
    chart = Lines(
        series, dots, x_label="arm", y_label=named(data.metric), x_names=list(map(named, data.arms))
    )
    return Figure(
        chart, "Every finished trial, with mean and interval.", f"{named(data.metric)} by arm"
    )
