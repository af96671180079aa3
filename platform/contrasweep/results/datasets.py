"""Several datasets: which arm ranks how, with datasets as the replicates (Demsar 2006; Agarwal et al. 2021).

Datasets are few and chosen, so none of this is a verdict: it is what papers over many datasets show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from contrasweep.results.table import label
from contrasweep.statistics.checks import Floats
from contrasweep.statistics.family import holm
from contrasweep.statistics.resampling import iqm, stratified_bootstrap, wilcoxon_p
from contrasweep.storage.record import COUNTING
from contrasweep.study.grid import DATA_AXIS

MIN_DATASETS = 3


@dataclass(frozen=True)
class DatasetSummary:
    """Arms over the datasets that all of them finished.

    Attributes:
        arms: The arms.
        datasets: The datasets.
        means: The metric's mean over all finished trials [arms, datasets].
        ranks: Mean ranks [arms]; 1 is best, ties share.
        p_values: Holm's p of Wilcoxon's signed-rank test by pair of arms.
        runs: The metric of each arm's runs [runs, datasets], of the runs that every dataset has.
        mode: Whether larger or smaller values are better.
    """

    arms: tuple[str, ...]
    datasets: tuple[str, ...]
    means: Floats
    ranks: Floats
    p_values: Mapping[tuple[str, str], float]
    runs: Mapping[str, Floats]
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
        """Return each arm's interquartile mean over runs and datasets, with its stratified bootstrap interval."""
        return {arm: stratified_bootstrap(runs, iqm, alpha=alpha) for arm, runs in self.runs.items()}

    def profiles(self, points: int = 60) -> tuple[Floats, dict[str, Floats]]:
        """Return performance profiles: scores, and by arm the share of its runs that are better than each score."""
        every = np.concatenate([runs.ravel() for runs in self.runs.values()])
        at = np.linspace(every.min(), every.max(), points)
        sign = 1 if self.mode == "max" else -1
        better = {arm: (sign * runs.ravel()[:, None] > sign * at[None]).mean(axis=0) for arm, runs in self.runs.items()}
        return at, better


def dataset_summary(
    frame: pd.DataFrame, metric: str, axes: Sequence[str], mode: Literal["max", "min"] = "max"
) -> DatasetSummary | None:
    """Return a comparison of the arms over the datasets of a study; `frame` has one row for each trial.

    None with fewer than three datasets that all arms have finished trials of, or fewer than two arms.
    """
    if DATA_AXIS not in axes or metric not in frame:
        return None
    done = frame[frame["status"].isin(COUNTING) & np.isfinite(frame[metric].astype("float64"))]
    rows = pd.DataFrame(
        {
            "arm": [str(arm) for arm in done["arm"]],
            "data": [label(value) for value in done[DATA_AXIS]],
            "run": [f"{label(fold)} {label(seed)}" for fold, seed in zip(done["fold"], done["seed"], strict=True)],
            "value": done[metric].astype("float64").to_numpy(),
        }
    )
    wide = rows.pivot_table(index=["data", "run"], columns="arm", values="value", sort=False).dropna()
    datasets = list(dict.fromkeys(wide.index.get_level_values("data")))
    arms = [str(arm) for arm in wide.columns]
    if len(datasets) < MIN_DATASETS or len(arms) < 2:
        return None
    means = rows.groupby(["data", "arm"])["value"].mean().unstack("arm").loc[datasets, arms].to_numpy().T
    sign = -1 if mode == "max" else 1
    ranks = pd.DataFrame(sign * means).rank().mean(axis=1).to_numpy()
    pairs = [(a, b) for i, a in enumerate(arms) for b in arms[i + 1 :]]
    raw = [wilcoxon_p(means[arms.index(a)] - means[arms.index(b)]) for a, b in pairs]
    runs = {arm: _runs(wide[arm], datasets) for arm in arms}
    adjusted = dict(zip(pairs, map(float, holm(raw)), strict=True))
    return DatasetSummary(tuple(arms), tuple(datasets), means, ranks, adjusted, runs, mode)


def _runs(values: pd.Series, datasets: Sequence[str]) -> Floats:
    """[runs, datasets], of the runs that every dataset has; without any the mean of each dataset as one."""
    table = values.unstack("data")[list(datasets)]
    whole: Floats = table.dropna().to_numpy(dtype=np.float64)
    return whole if len(whole) else table.mean().to_numpy(dtype=np.float64)[None]
