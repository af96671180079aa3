"""Use of resources by a study: trials and training time by arm and phase, GPUs, cores, memory and hosts over time."""

import numpy as np
import pandas as pd

from contrasweep.reporting.data import ReportData, Variables
from contrasweep.reporting.figures import Figure, Lines, Series
from contrasweep.storage.record import COUNTING

MOMENTS = 120
MIN_ROWS = 3
FIGURES = {
    "gpu_utilization_percentage": ("How busy GPUs were", "percent"),
    "gpu_memory_gib": ("GPU memory that trials held", "GiB"),
    "cpu_utilization_percentage": ("How busy the hosts' cores were", "percent"),
    "process_memory_gib": ("Host memory that trials held", "GiB"),
}
"""Measurement -> the title of its figure, and its unit: of percentages the mean is shown, of memory the sum."""


def time_unit(seconds: float) -> tuple[float, str]:
    """Return `seconds` of the largest unit that fits an axis of this length, and the unit's name."""
    return (1.0, "seconds") if seconds < 180 else (60.0, "minutes") if seconds < 7200 else (3600.0, "hours")


def use_figures(system: pd.DataFrame | None) -> list[Figure]:
    """Return figures of the load of GPUs and cores and of the memory of all trials, over the time of the study."""
    if system is None or len(system) < MIN_ROWS or system["time"].max() <= system["time"].min():
        return []
    began, over = float(system["time"].min()), float(system["time"].max())
    unit, name = time_unit(over - began)
    edges = np.linspace(began, over, min(MOMENTS, max(2, int((over - began) / 10))) + 1)
    place = np.clip(np.searchsorted(edges, system["time"].to_numpy(), side="right") - 1, 0, len(edges) - 2)
    moments = (edges[:-1] + edges[1:] - 2 * began) / 2 / unit
    figures = []
    for colour, (column, (title, unit_name)) in enumerate(FIGURES.items()):
        if column not in system or not system[column].notna().any():
            continue
        # Of percentages the mean of all measurements at a moment; of memory the sum over the trials that run.
        how, values = "Mean", system.groupby(place)[column].mean()
        if unit_name != "percent":
            each = system.groupby([place, system["trial_id"].astype(str)])[column].mean()
            how, values = "Sum", each.groupby(level=0).sum(min_count=1)
        values = values.dropna()
        x, y = [float(moments[i]) for i in values.index], [float(v) for v in values]
        line = Series(title, colour, x, y, dots=len(x) < MIN_ROWS)
        chart = Lines([line], x_label=f"{name} since the first measurement", y_label=unit_name, y_within=[0.0])
        figures.append(Figure(chart, f"{how} over the trials that ran, measured every 10 s.", title))
    return figures


COURSE_MOMENTS = 200  # points of the course of a study


def budget_section(data: ReportData) -> Variables:
    """Costs by arm and by host, and the course of the study; empty before a trial has ended."""
    spent = data.spent if data.spent is not None else data.frame
    if "seconds" not in spent or not spent["seconds"].notna().any():
        return {}
    phased = "phase" in spent and spent["phase"].nunique() > 1
    keys = [(arm, phase) for arm in data.arms for phase in (dict.fromkeys(spent["phase"]) if phased else [None])]
    rows, counts = [], dict[str | None, set[int]]()
    for arm, phase in keys:
        part = spent[(spent["arm"].astype(str) == arm) & (phase is None or spent.get("phase") == phase)]
        if len(part):
            counts.setdefault(phase, set()).add(len(part))
            rows.append([data.names(arm), *([phase] if phase else []), *_costs(part)])
    head = [
        "arm",
        *(["phase"] if phased else []),
        "trials",
        "done",
        "training time",
        "median trial",
        "peak GPU memory",
        "GPU busy",
    ]
    return {
        "total": duration(float(spent["seconds"].astype("float64").sum())),
        "equal": all(len(sizes) == 1 for sizes in counts.values()),
        "costs": [head, *rows],
        "course": [*_course(data, spent), *use_figures(data.system)],
        "hosts": _hosts(spent),
    }


def duration(seconds: float) -> str:
    """Seconds as people say them: 45 s, 12.5 min, 3.2 h."""
    if pd.isna(seconds):
        return "–"
    return (
        f"{seconds:.1f} s"
        if seconds < 90
        else f"{seconds / 60:.1f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def _costs(part: pd.DataFrame) -> list[str]:
    seconds = part["seconds"].astype("float64")
    memory, busy = _column(part, "gpu_memory_gib"), _column(part, "gpu_utilisation")
    return [
        str(len(part)),
        str(int(part["status"].isin(COUNTING).sum())),
        duration(float(seconds.sum())),
        duration(float(seconds.median())),
        _or_dash(memory.max(), "{:.2f} GiB"),
        _or_dash(busy.mean() * 100, "{:.0f} %"),
    ]


def _course(data: ReportData, spent: pd.DataFrame) -> list[Figure]:
    """Return the number of ended trials over the time since the first one began, by arm."""
    if not {"started", "ended"} <= set(spent.columns):
        return []
    ran = spent[(_column(spent, "started") > 0) & (_column(spent, "ended") > _column(spent, "started"))]
    if len(ran) < 2:
        return []
    began, over = float(ran["started"].min()), float(ran["ended"].max())
    unit, name = time_unit(over - began)
    moments = np.linspace(began, over, COURSE_MOMENTS)
    series = []
    for arm in data.arms:
        ends = np.sort(ran.loc[ran["arm"].astype(str) == arm, "ended"].to_numpy(dtype=np.float64))
        ended = np.searchsorted(ends, moments, side="right")
        series.append(
            Series(
                data.names(arm), data.colour(arm), list((moments - began) / unit), [float(n) for n in ended], steps=True
            )
        )
    busy = float((ran["ended"] - ran["started"]).sum()) / (over - began)
    chart = Lines(series, x_label=f"{name} since the first trial began", y_label="trials ended")
    caption = f"From first to last trial {duration(over - began)}, on average {busy:.1f} trials at once."
    return [Figure(chart, caption, "The course of the study")]


def _hosts(spent: pd.DataFrame) -> list[list[str]]:
    """Name, trials and training time of each host."""
    if "host" not in spent:
        return []
    named = spent[spent["host"].fillna("").astype(str).str.len().gt(0)]
    used = named.groupby("host")["seconds"].agg(["size", "sum"])
    return [[str(host), str(int(size)), duration(float(total))] for host, size, total in used.itertuples()]


def _column(frame: pd.DataFrame, name: str) -> "pd.Series[float]":
    values = frame[name] if name in frame else pd.Series(float("nan"), index=frame.index)
    return pd.to_numeric(values, errors="coerce").astype("float64")


def _or_dash(value: float, form: str) -> str:
    return "–" if pd.isna(value) else form.format(value)
