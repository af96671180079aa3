"""Scores of single test items: read once a trial, as the values behind a metric."""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contrasweep.data.folds import NAMELESS
from contrasweep.data.reading import GROUP
from contrasweep.rows import ItemColumns
from contrasweep.storage.record import COUNTING, Record

Items = Callable[[str], ItemColumns]
"""A trial's id -> its items."""
THREADS = 16


class ItemReader:
    """Reads the per-item scores of trials by trial id, each file once.

    If `remote`, several files are fetched in parallel once it is known which will be needed.
    """

    def __init__(self, read: Items, *, remote: bool) -> None:
        self.read = read
        self.remote = remote
        self._known: dict[str, ItemColumns] = {}

    def __call__(self, trial_id: str) -> ItemColumns:
        """Return the items of a trial: its scores of test items by name."""
        if trial_id not in self._known:
            self._known[trial_id] = self.read(trial_id)
        return self._known[trial_id]

    def ahead(self, trial_ids: Iterable[str]) -> None:
        """Read the items of trials that will be asked for, so that later calls find them."""
        missing = [trial_id for trial_id in dict.fromkeys(trial_ids) if trial_id not in self._known]
        if self.remote and len(missing) > 1:
            with ThreadPoolExecutor(THREADS) as pool:
                self._known |= zip(missing, pool.map(self.read, missing), strict=True)


@dataclass(frozen=True)
class ItemValues:
    """The scores of test items of trials on one split.

    `means` has by trial id the mean score of each group of items, in an order that all trials of one test part share.
    `parts` is the test part of each trial, as the digest of its dataset, and `sizes` has by test part the number of
    items of each group.
    """

    means: Mapping[str, NDArray[np.float64]]
    parts: Mapping[str, str]
    sizes: Mapping[str, NDArray[np.float64]]


SAME = 1e-6
"""A metric is the mean of its items' scores where it equals it to this relative difference."""


def item_values(
    items: Items, frame: pd.DataFrame, records: Mapping[str, Record], metric: str
) -> ItemValues | None:
    """Return the mean score of each group of test items (or item, where nothing groups them) of every finished trial.

    None where a finished trial left no score called `metric`, trials of one dataset disagree about their items, or the
    metric is not the mean of the scores: then replicates are seeds alone.
    """
    means = {}
    parts = {}
    sizes = dict[str, np.ndarray]()
    names: dict[str, list[str]] = {}
    done = [
        str(trial)
        for trial, status in zip(frame["trial_id"], frame["status"], strict=True)
        if status in COUNTING
    ]
    if any(metric not in records[trial].items for trial in done):
        return None
    for number, trial in enumerate(done):
        # after the first one, which may say that none is wanted
        if number == 1 and isinstance(items, ItemReader):
            items.ahead(done)
        record = records[trial]
        scored = items(trial)
        values = np.asarray(scored.get(metric, ()), dtype=np.float64)
        reported = record.metrics.get(metric, math.nan)
        if not len(values) or not np.isfinite(values).all():
            return None
        if not math.isclose(float(values.mean()), reported, rel_tol=SAME, abs_tol=SAME):
            return None

        # The groups of the items, which all trials of one dataset must have alike.
        part = record.data.digest
        column = f"{metric.rpartition('/')[0]}/{GROUP}"  # of a score that was computed afterwards
        if column not in scored and len(scored.get(GROUP, ())) == len(values):
            column = GROUP
        group_names = enumerate(scored.get(column, [None] * len(values)))
        groups = [f"item {i}" if name in NAMELESS else str(name) for i, name in group_names]
        if names.setdefault(part, groups) != groups and (
            column in scored or len(names[part]) != len(groups)
        ):
            return None

        # The mean of each group, in the order in which the groups are first met.
        codes = {name: i for i, name in enumerate(dict.fromkeys(names[part]))}
        index = np.array([codes[name] for name in names[part]])
        sizes[part] = np.bincount(index).astype(np.float64)
        means[str(trial)] = np.bincount(index, values) / sizes[part]
        parts[str(trial)] = part
    # Trials that failed have a test part too: what counts as their loss is a loss in each of its items.
    parts |= {
        str(t): records[t].data.digest for t in frame["trial_id"] if t in records and t not in parts
    }
    return ItemValues(means, parts, sizes) if means and min(map(len, sizes.values())) > 1 else None
