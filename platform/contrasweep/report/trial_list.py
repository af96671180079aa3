"""The list of all trials: the page's script draws it from JSON, filtered and sorted, so that ten thousand stay
quick."""

import json
import os
from html import escape
from typing import Any

import pandas as pd

from contrasweep.report.source import Source
from contrasweep.report.table import label

LARGEST = 20_000


def trial_list(source: Source) -> str:
    """A box to filter in, the head of the table, and the trials as data: one array of values a trial, its run last."""
    frame = source.frame.head(LARGEST)
    if frame.empty:
        return ""
    texts = ["arm", *source.axes, "fold", "seed", "status"]
    numbers = [name for name in (source.metric, "seconds") if name in frame]
    links = list(source.links.values())
    start = os.path.commonprefix(links) if len(links) > 1 else ""  # noqa: RUF071  # characters it is
    columns: list[list[Any]] = [[label(v) for v in frame[name]] for name in texts]
    columns += [[None if pd.isna(v) else round(float(v), 6) for v in frame[name]] for name in numbers]
    columns += [
        list(frame["trial_id"].astype(str)),
        [source.links.get(i, start)[len(start) :] for i in frame["trial_id"]],
    ]
    data = {"head": [*texts, *numbers, "trial"], "start": start, "rows": list(zip(*columns, strict=True))}
    example = f"{source.arms[0]} {source.axes[0]}={columns[1][0]}" if source.axes else f"{source.arms[0]} failed"
    content = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    left = len(source.frame) - len(frame)
    more = (
        f'<p class="soft">The first {LARGEST} of {len(source.frame)} trials; trials.csv has all.</p>'
        if left > 0
        else ""
    )
    return (
        f'<div class="trials"><h3>Every trial</h3><input type="search" placeholder="filter, for example: '
        f'{escape(example)}" aria-label="filter the trials">'
        f'<span class="soft count"></span><div class="wide"><table '
        f'class="plain"><thead></thead><tbody></tbody></table></div>'
        f'<button class="more">show more</button>{more}<script type="application/json">{content}</script></div>'
    )
