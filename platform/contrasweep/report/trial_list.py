"""The list of all trials: the page's script draws it from JSON, filtered and sorted, so that ten thousand stay
quick."""

import os
from typing import Any

import pandas as pd

from contrasweep.report.data import ReportData, Variables
from contrasweep.report.searching import parallel_figure
from contrasweep.results.cells import label

LARGEST = 20_000


def trials_section(data: ReportData) -> Variables:
    """All trials as lines over their settings, and as data: one array of values a trial, its run last."""
    parallel, frame = parallel_figure(data), data.frame.head(LARGEST)
    if frame.empty:
        return {}
    texts = ["arm", *data.axes, "fold", "seed", "status"]
    numbers = [name for name in (data.metric, "seconds") if name in frame]
    links = list(data.links.values())
    start = os.path.commonprefix(links) if len(links) > 1 else ""  # noqa: RUF071  # characters it is
    columns: list[list[Any]] = [[label(v) for v in frame[name]] for name in texts]
    columns += [[None if pd.isna(v) else round(float(v), 6) for v in frame[name]] for name in numbers]
    columns += [
        list(frame["trial_id"].astype(str)),
        [data.links.get(i, start)[len(start) :] for i in frame["trial_id"]],
    ]
    listed = {"head": [*texts, *numbers, "trial"], "start": start, "rows": list(zip(*columns, strict=True))}
    example = f"{data.arms[0]} {data.axes[0]}={columns[1][0]}" if data.axes else f"{data.arms[0]} failed"
    logs = data.log_command("TRIAL")
    return {
        "logs": logs,
        "parallel": parallel,
        "listed": listed,
        "example": example,
        "omitted": len(data.frame) - len(frame),
    }
