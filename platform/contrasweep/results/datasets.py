"""Several datasets: which arm ranks how, with datasets as the replicates (Demsar 2006; Agarwal et al. 2021).

Datasets are few and chosen, so none of this is a verdict: it is what papers over many datasets show.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd

from contrasweep.results.building import trials_of
from contrasweep.statistics.checks import Floats
from contrasweep.statistics.family import holm
from contrasweep.statistics.resampling import iqm, stratified_bootstrap, wilcoxon_p
from contrasweep.study.grid import DATA_AXIS
from contrasweep.study.metric_range import metric_range

MIN_DATASETS = 3


@dataclass(frozen=True)
class DatasetSummary:
    """Arms over the datasets that all of them ran on.

    A run is a fold and seed. One that an arm failed counts as a loss: worse than the worst of the other arms there by
    the largest difference in a run of the dataset, within the range of the metric.

    Attributes:
        arms: The arms.
        datasets: The datasets.
        means: The metric's mean over the runs that all arms finished [arms, datasets]; NaN without any.
        ranks: Mean ranks [arms] by the means of the runs that all arms ended, losses counted; 1 is best, ties share.
        p_values: Holm's p of Wilcoxon's signed-rank test by pair of arms: the larger one of the runs that both finished
            and of those with losses.
        runs: The metric of each arm's runs [runs, datasets], losses counted, of the runs that every dataset has.
        failed: How many of those runs each arm failed.
        mode: Whether larger or smaller values are better.
    """

    arms: tuple[str, ...]
    datasets: tuple[str, ...]
    means: Floats
    ranks: Floats
    p_values: Mapping[tuple[str, str], float]
    runs: Mapping[str, Floats]
    failed: Mapping[str, int]
    mode: Literal["max", "min"] = "max"

    @property
    def smallest_p(self) -> float:
        """The smallest p that Wilcoxon's test of so many datasets can reach, before it is adjusted."""
        return float(2.0 ** (1 - len(self.datasets)))

    def cliques(self, alpha: float = 0.05) -> list[tuple[str, ...]]:
        """Return the largest sets of arms, adjacent by rank, in which no two arms differ at `alpha`."""
        order = [self.arms[i] for i in np.argsort(self.ranks, kind="stable")]
        found: list[tuple[str, ...]] = []
        for start in range(len(order)):
            end = start + 1
            while end < len(order) and all(self.p_value(order[end], arm) > alpha for arm in order[start:end]):
                end += 1
            if end - start > 1 and not (found and set(order[start:end]) <= set(found[-1])):
                found.append(tuple(order[start:end]))
        return found

    def p_value(self, a: str, b: str) -> float:
        """The adjusted p of two arms."""
        return self.p_values[(a, b) if (a, b) in self.p_values else (b, a)]

    def interquartile_means(self, alpha: float = 0.05) -> dict[str, tuple[float, float, float]]:
        """Return each arm's interquartile mean over runs and datasets, with its stratified bootstrap interval.

        The interval is NaN of one run a dataset. Of 3 to 10 runs it covers .87 to .93 where .95 is asked for.
        """
        return {
            arm: stratified_bootstrap(runs, alpha=alpha) if len(runs) > 1 else (iqm(runs), math.nan, math.nan)
            for arm, runs in self.runs.items()
        }


def dataset_summary(
    frame: pd.DataFrame, metric: str, axes: Sequence[str], mode: Literal["max", "min"] = "max"
) -> DatasetSummary | None:
    """Return a comparison of the arms over the datasets of a study; `frame` has one row for each trial.

    None with fewer than three datasets on which all arms have ended a run, or fewer than two arms.
    """
    if DATA_AXIS not in axes or metric not in frame:
        return None
    sign, worst = (1, 0) if mode == "max" else (-1, 1)
    trials = trials_of(frame, metric, ("arm", DATA_AXIS))
    keys = [DATA_AXIS, "fold", "seed"]
    runs = trials.assign(value=sign * trials["value"]).groupby([*keys, "arm"], sort=False)
    arms = list(dict.fromkeys(trials["arm"]))
    value = runs["value"].agg(lambda values: values.mean(skipna=False)).unstack("arm")[arms]
    lost = runs["lost"].any().unstack("arm", fill_value=False)[arms] & value.isna()
    ended = (value.notna() | lost).all(axis=1) & value.notna().any(axis=1)
    value, lost = value[ended], lost[ended]
    datasets = list(dict.fromkeys(value.index.get_level_values(DATA_AXIS)))
    apart = (value.max(axis=1) - value.min(axis=1)).where(value.notna().sum(axis=1) > 1)
    if len(datasets) < MIN_DATASETS or len(arms) < 2 or apart.isna().all():
        return None
    loss = value.min(axis=1) - apart.groupby(level=DATA_AXIS).transform("max").fillna(apart.max())
    if bounds := metric_range(metric):
        loss = loss.clip(lower=np.minimum(sign * bounds[worst], value.min(axis=1)))
    counted = value.apply(lambda column: column.fillna(loss))  # what has no value in these runs is lost

    def over_runs(values: pd.DataFrame) -> pd.DataFrame:
        return values.groupby(level=DATA_AXIS).mean().reindex(datasets)

    def raw_p(a: str, b: str) -> float:
        kept = counted[~(lost[a] & lost[b])]
        gains = [(m[a] - m[b]).dropna() for m in (over_runs(value[[a, b]].dropna()), over_runs(kept))]
        return min(1.0, 2 * min(max(wilcoxon_p(gain, side) for gain in gains) for side in ("greater", "less")))

    pairs = list(combinations(arms, 2))
    adjusted = dict(zip(pairs, map(float, holm([raw_p(a, b) for a, b in pairs])), strict=True))
    return DatasetSummary(
        tuple(arms),
        tuple(datasets),
        (sign * over_runs(value.dropna())).to_numpy().T,
        over_runs(counted).rank(axis=1, ascending=False).mean().to_numpy(),
        adjusted,
        {arm: _runs(sign * counted[arm], datasets) for arm in arms},
        {arm: int(lost[arm].sum()) for arm in arms},
        mode,
    )


def _runs(values: pd.Series, datasets: Sequence[str]) -> Floats:
    """[runs, datasets], of the runs that every dataset has; without any the mean of each dataset as one."""
    table = values.unstack(DATA_AXIS)[list(datasets)]
    whole: Floats = table.dropna().to_numpy(dtype=np.float64)
    return whole if len(whole) else table.mean().to_numpy(dtype=np.float64)[None]
