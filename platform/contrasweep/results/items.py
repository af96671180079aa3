"""Scores of single test items: read once a trial, as the values behind a metric."""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contrasweep.data.folds import is_nameless
from contrasweep.data.reading import GROUP
from contrasweep.rows import ItemColumns
from contrasweep.storage.record import COUNTING, RecordsById

Items = Callable[[str], ItemColumns]
"""A trial's id -> its items, which are read at the first call."""
THREADS = 16


@dataclass(frozen=True)
class ItemValues:
    """The scores of test items of trials on one split. A test part is the test set of one dataset.

    Where nothing groups items, each item is a group of its own. `means` is trial id -> mean score of each group of
    items [groups]; all trials of one test part have the same groups in the same order. `parts` is trial id -> the
    trial's test part, as the digest of its dataset. `sizes` is test part -> number of items of each group [groups].
    """

    means: Mapping[str, NDArray[np.float64]]
    parts: Mapping[str, str]
    sizes: Mapping[str, NDArray[np.float64]]


SAME = 1e-6
"""A metric is the mean of its items' scores if both are equal up to this relative difference."""


def item_values(
    items: Items, frame: pd.DataFrame, records: RecordsById, metric: str
) -> ItemValues | None:
    """Return the scores called `metric` of the test items of every finished trial of `frame`.

    `records` is trial id -> record. None where replicates are seeds alone: a finished trial has no such scores, the
    metric is not their mean, trials of one dataset have different items, or a test part has a single group.
    """
    means = {}
    parts = {}
    sizes = dict[str, np.ndarray]()
    groups_of_part: dict[str, list[str]] = {}  # test part -> the group of each item
    done = frame["trial_id"][frame["status"].isin(COUNTING)].astype(str).tolist()
    if any(metric not in records[trial].items for trial in done):
        return None
    for number, trial in enumerate(done):
        # Once the first trial has shown that scores are needed, those of all others are read at once, and kept by
        # `items` for the turn of each.
        if number == 1:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(items, done))
        columns = items(trial)
        record = records[trial]
        scores = np.asarray(columns.get(metric, ()), dtype=np.float64)
        reported = record.metrics.get(metric, math.nan)
        if not len(scores) or not np.isfinite(scores).all():
            return None
        if not math.isclose(float(scores.mean()), reported, rel_tol=SAME, abs_tol=SAME):
            return None

        # A score DATASET/NAME, which was computed afterwards, has a column of groups for itself. Without it, the groups
        # of the trial's items count, if the trial has as many items. An item without a name is a group by itself.
        column = f"{metric.rpartition('/')[0]}/{GROUP}"
        if column not in columns and len(columns.get(GROUP, ())) == len(scores):
            column = GROUP
        names = columns.get(column, [None] * len(scores))
        groups = [f"item {i}" if is_nameless(name) else str(name) for i, name in enumerate(names)]

        # All trials of one dataset must have the same groups; a trial that names none must have as many items.
        part = record.data.digest
        groups_of_first = groups_of_part.setdefault(part, groups)
        if len(groups) != len(groups_of_first):
            return None
        if column in columns and groups != groups_of_first:
            return None

        # The mean of each group, in the order in which the groups are first met.
        index, _ = pd.factorize(np.array(groups_of_first, dtype=object))
        sizes[part] = np.bincount(index).astype(np.float64)
        means[trial] = np.bincount(index, scores) / sizes[part]
        parts[trial] = part
    if not means or min(map(len, sizes.values())) < 2:
        return None
    # Trials that failed have a test part too: each counts as a loss in all items of its part.
    for trial in map(str, frame["trial_id"]):
        if trial in records:
            parts[trial] = records[trial].data.digest
    return ItemValues(means, parts, sizes)
