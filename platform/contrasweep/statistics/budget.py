"""The result that a search budget buys: the best of k trials, from n trials drawn at random."""

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from contrasweep.statistics.checks import checked_level, checked_replicates


def expected_best(values: ArrayLike, *, mode: Literal["max", "min"] = "max", alpha: float = 0.05) -> pd.DataFrame:
    """Best of k = 1..n independently drawn configurations, from the final values [n] of n of them.

    Valid for random and quasi-random search. An adaptive searcher's trials are not independent draws: for it show
    best-so-far over repeated searches instead (`best_so_far`).

    Returns:
        Columns `trials` k; `expected`, the mean best of k, by the unbiased estimator over all k-subsets (Tang et al.
        2020; the plug-in of Dodge et al. 2019 is biased); `median`, the middle best of k; `low` and `high`, a 1 - alpha
        interval for the true median, by order statistics, so exact for any distribution. An end that n trials cannot
        bound is NaN: no band of n trials bounds the best of many more.
    """
    from scipy import stats  # takes a second to import

    y = np.sort(checked_replicates(values, "values") * (1 if mode == "max" else -1))
    n, alpha = len(y), checked_level(alpha)
    k = np.arange(1, n + 1)
    quantile = 0.5 ** (1 / k)  # the median of the best of k is this quantile of one trial
    below = stats.binom.ppf(alpha / 2, n, quantile).astype(int)  # y_(r), r = below, exceeds it with chance < alpha / 2
    above = stats.binom.ppf(1 - alpha / 2, n, quantile).astype(int) + 1
    padded = np.concatenate([[np.nan], y, [np.nan]])
    low, high = padded[np.maximum(below, 0)], padded[np.minimum(above, n + 1)]
    median = y[np.clip(np.ceil(quantile * n).astype(int), 1, n) - 1]
    curves = {"expected": _subset_best(y), "median": median, "low": low, "high": high}
    if mode == "min":
        curves = {name: -curve for name, curve in curves.items()} | {"low": -high, "high": -low}
    return pd.DataFrame({"trials": k, **curves})


def _subset_best(y: np.ndarray) -> np.ndarray:
    """Mean of the maximum over all k-subsets of sorted `y` [n], for k = 1..n: sum_i C(i-1, k-1) / C(n, k) y_i."""
    n = len(y)
    i, best = np.arange(1, n + 1), np.empty(n)
    logs = special.gammaln(np.arange(n + 2))  # logs[m + 1] = log m!
    for k in range(1, n + 1):
        top = i[k - 1 :]
        weights = logs[top] - logs[k] - logs[top - k + 1] - (logs[n + 1] - logs[k + 1] - logs[n - k + 1])
        best[k - 1] = np.exp(weights) @ y[k - 1 :]
    return best


def best_so_far(values: ArrayLike, *, mode: Literal["max", "min"] = "max") -> np.ndarray:
    """Running best [n] of values in the order of the trials; NaN (a failed trial) never is the best."""
    y = np.asarray(values, dtype=np.float64)
    return np.fmax.accumulate(y) if mode == "max" else np.fmin.accumulate(y)
