"""The list of all trials: the page's script draws it from JSON, filtered and sorted, so that ten thousand stay
quick."""

import json
import os
from html import escape
from typing import Any

import pandas as pd

from contrasweep.report.data import ReportData
from contrasweep.results.cells import label

LARGEST = 20_000


def trial_list(data: ReportData) -> str:
    """A box to filter in, the head of the table, and the trials as data: one array of values a trial, its run last."""
    frame = data.frame.head(LARGEST)
    if frame.empty:
        return ""
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
    content = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    left = len(data.frame) - len(frame)
    more = (
        f'<p class="soft">The first {LARGEST} of {len(data.frame)} trials; trials.csv has all.</p>' if left > 0 else ""
    )
    return (
        f'<div class="trials"><h3>Every trial</h3><input type="search" placeholder="filter, for example: '
        f'{escape(example)}" aria-label="filter the trials">'
        f'<span class="soft count"></span><div class="wide"><table '
        f'class="plain"><thead></thead><tbody></tbody></table></div>'
        f'<button class="more">show more</button>{more}<script type="application/json">{content}</script></div>'
    )
