"""What GPUs, cores and memory did over a study, from what its trials noted every few seconds."""

from typing import Any

import numpy as np
import pandas as pd

from contrasweep.report.charts import Series, xy_chart
from contrasweep.report.data import ReportData
from contrasweep.report.figures import Figure

MOMENTS = 120
MIN_ROWS = 3
SHOWN = {
    "gpu_utilization_percentage": ("How busy GPUs were", "percent"),
    "gpu_memory_gib": ("GPU memory that trials held", "GiB"),
    "cpu_utilization_percentage": ("How busy the hosts' cores were", "percent"),
    "process_memory_gib": ("Host memory that trials held", "GiB"),
}
"""Measurement -> the title of its figure, and its unit: of percentages the mean is shown, of memory the sum."""


def time_unit(seconds: float) -> tuple[float, str]:
    """Seconds in a unit, and its name, for an axis that is so long."""
    return (1.0, "seconds") if seconds < 180 else (60.0, "minutes") if seconds < 7200 else (3600.0, "hours")


def use_figures(data: ReportData) -> list[Figure]:
    """How busy GPUs and cores were, and how much memory the trials held together, over the time of the study."""
    system = data.system
    if system is None or len(system) < MIN_ROWS or system["time"].max() <= system["time"].min():
        return []
    began, over = float(system["time"].min()), float(system["time"].max())
    unit, name = time_unit(over - began)
    edges = np.linspace(began, over, min(MOMENTS, max(2, int((over - began) / 10))) + 1)
    place = np.clip(np.searchsorted(edges, system["time"].to_numpy(), side="right") - 1, 0, len(edges) - 2)
    moments = (edges[:-1] + edges[1:] - 2 * began) / 2 / unit
    figures = []
    for colour, (column, (title, unit_name)) in enumerate(SHOWN.items()):
        if column not in system or not system[column].notna().any():
            continue
        pooled, how = (_mean, "Mean") if unit_name == "percent" else (_sum, "Sum")
        values = pooled(system, column, place).dropna()
        x, y = [float(moments[i]) for i in values.index], [float(v) for v in values]
        line = Series(title, colour, x, y, dots=len(x) < MIN_ROWS)
        svg = xy_chart([line], x_label=f"{name} since the first measurement", y_label=unit_name, y_within=[0.0])
        figures.append(Figure(svg, f"{how} over the trials that ran, measured every 10 s.", title))
    return figures


def _mean(system: pd.DataFrame, column: str, place: Any) -> "pd.Series[float]":
    """The mean at each moment over all measurements."""
    return system.groupby(place)[column].mean()


def _sum(system: pd.DataFrame, column: str, place: Any) -> "pd.Series[float]":
    """The sum at each moment over the trials' means."""
    return system.groupby([place, system["trial_id"].astype(str)])[column].mean().groupby(level=0).sum(min_count=1)
