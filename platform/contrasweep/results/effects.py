"""What a study's numbers depend on: the sources of noise, and the budget of a search."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from contrasweep.statistics.budget import best_so_far, expected_best
from contrasweep.statistics.variance import variance_components

ORDER = "order_seed"
"""The setting by which a trainable lets the order of the data vary alone; as an axis it is a source of noise."""
INDEPENDENT = ("random", "quasi-random", "qmc", "sobol", "")
"""Searchers whose trials are independent draws, or more evenly spread than that."""


def noise(done: pd.DataFrame, metric: str, axes: Sequence[str]) -> pd.DataFrame:
    """Return the variance components of `metric` between replicates of a cell (`statistics.variance_components`).

    Sources are the seed (initialisation, and with it data order and augmentation unless `order_seed` is an axis), the
    fold, the order of the data where `order_seed` is an axis, and the rest. Empty where nothing is replicated.
    """
    cells = ["arm", *(axis for axis in axes if axis != ORDER)]
    sources = [name for name in ("seed", "fold", ORDER) if name in done and done[name].nunique(dropna=False) > 1]
    if not sources or len(done) <= done.groupby(cells).ngroups:
        return pd.DataFrame(columns=["source", "variance", "share"])
    return variance_components(done, metric, sources, cells)


def budget_curves(
    search: pd.DataFrame, arms: Sequence[str], *, searcher: str, mode: Literal["max", "min"], alpha: float = 0.05
) -> pd.DataFrame:
    """Return what k trials of each arm's search buy: arm, trials k, best, low, high.

    For a random searcher `best` is the unbiased expected best of k and `low` to `high` the interval of its median
    (`statistics.expected_best`). An adaptive searcher's trials are no independent draws, so `best` is the best so far,
    without an interval.
    """
    parts = []
    for arm in arms:
        values = search.loc[(search["arm"] == arm) & search["value"].notna(), "value"].to_numpy(dtype=np.float64)
        if not len(values):
            continue
        curves: dict[str, object] = {"best": best_so_far(values, mode=mode), "low": np.nan, "high": np.nan}
        if searcher in INDEPENDENT:
            expected = expected_best(values, mode=mode, alpha=alpha)
            curves = {"best": expected["expected"], "low": expected["low"], "high": expected["high"]}
        parts.append(pd.DataFrame({"arm": arm, "trials": np.arange(1, len(values) + 1), **curves}))
    return (
        pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["arm", "trials", "best", "low", "high"])
    )
