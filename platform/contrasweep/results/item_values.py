"""The scores of test items behind a metric, for studies on one split: so that what they decide holds for new items."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from contrasweep.data.folds import NAMELESS
from contrasweep.data.reading import GROUP
from contrasweep.results.comparing import ItemValues
from contrasweep.results.item_reader import Items, read_ahead
from contrasweep.rows import ItemColumns
from contrasweep.storage.record import Record, Status

SAME = 1e-6
"""A metric is the mean of its items' scores where it equals it to this relative difference."""


def item_values(
    items: Items, frame: pd.DataFrame, records: Mapping[str, Record], metric: str, *, whole: bool = True
) -> ItemValues | None:
    """The mean score of each group of test items (or item, where nothing groups them) of every finished trial.

    None where a finished trial left no score called `metric`, trials of one dataset disagree about their items, or
    (with `whole`) the metric is not the mean of the scores: then replicates are seeds alone.
    """
    means, parts, sizes = {}, {}, dict[str, np.ndarray]()
    names: dict[str, list[str]] = {}
    done = [
        str(trial) for trial, status in zip(frame["trial_id"], frame["status"], strict=True) if status == Status.DONE
    ]
    if any(metric not in records[trial].items for trial in done):
        return None
    for number, trial in enumerate(done):
        if number == 1:  # after the first one, which may say that none is wanted
            read_ahead(items, done)
        record, scored = records[trial], items(trial)
        values = np.asarray(scored.get(metric, ()), dtype=np.float64)
        reported = record.metrics.get(metric, math.nan)
        if not len(values) or not np.isfinite(values).all():
            return None
        if whole and not math.isclose(float(values.mean()), reported, rel_tol=SAME, abs_tol=SAME):
            return None
        part = record.data.digest
        own = item_groups(scored, len(values))
        if names.setdefault(part, own) != own and (GROUP in scored or len(names[part]) != len(own)):
            return None
        codes = {name: i for i, name in enumerate(dict.fromkeys(names[part]))}
        index = np.array([codes[name] for name in names[part]])
        sizes[part] = np.bincount(index).astype(np.float64)
        means[str(trial)] = np.bincount(index, values) / sizes[part]
        parts[str(trial)] = part
    parts |= {str(t): records[t].data.digest for t in frame["trial_id"] if t in records and t not in parts}
    return ItemValues(means, parts, sizes) if means and min(map(len, sizes.values())) > 1 else None


def item_groups(items: ItemColumns, n: int, where: str = "") -> list[str]:
    """The group of each of `n` items; one that has no name is a group of its own."""
    names = items.get(GROUP, [None] * n)
    return [f"{where}item {i}" if name in NAMELESS else str(name) for i, name in enumerate(names)]
