"""How often each of several tests calls a difference of two arms on 5 folds x 5 seeds, all on the same draws."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special, stats

from contrasweep.statistics.comparison import judge
from contrasweep.statistics.design import Contrast, Design, contrast
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family

ROPE = 0.5
"""The smallest difference of interest of the two methods that have one, in standard deviations of a difference."""


def fold_values(rng: np.random.Generator, seeds: int) -> Any:
    """Values of three equal arms on 5 folds x `seeds`.

    Half of the variance is the folds', correlated by 0.2, as Nadeau and Bengio assume for shared training rows.
    """
    fold_noise = math.sqrt(0.8) * rng.normal(size=(1, 3, 1, 5)) + math.sqrt(0.2) * rng.normal(
        size=(1, 3, 1, 1)
    )
    return (fold_noise + rng.normal(size=(1, 3, seeds, 5))) / 2


def contrast_of(differences: Any, folds: int | None) -> Contrast:
    """The contrast of differences [seeds], or [seeds, folds]."""
    if folds is None:
        return contrast(differences)
    seeds = [seed for seed in range(len(differences)) for _ in range(folds)]
    names = [fold for _ in range(len(differences)) for fold in range(folds)]
    return contrast(differences.ravel(), folds=names, seeds=seeds, design=Design(folds=folds))


def other_methods(seed: int, studies: int) -> Iterator[tuple[str, ...]]:
    """Two arms on 5 folds x 5 seeds, all methods on the same draws; how often each calls a difference."""
    rng = np.random.default_rng(seed)
    for name, effect in {"no difference": 0.0, "1.5 sd": 1.5}.items():
        count: Counter[str] = Counter()
        for _ in range(studies):
            values = fold_values(rng, 5)
            for method, called in calls(
                values[0, 0] - values[0, 1] + effect, _five_by_two(rng, effect)
            ).items():
                count[method] += called
        for method, times in count.items():
            yield name, method, f"{times / studies:.3f}", str(studies)


def _five_by_two(rng: np.random.Generator, effect: float) -> Any:
    """Differences [5 repeats, 2 folds] with the noise of `fold_values`: half of it of the fold, which correlates by 1/2
    with all others, as folds of half the data are taken to."""
    fold_noise = math.sqrt(0.5) * rng.normal(size=(5, 2)) + math.sqrt(0.5) * rng.normal()
    return effect + (fold_noise + rng.normal(size=(5, 2))) / math.sqrt(2)


def calls(d: Any, halves: Any) -> dict[str, bool]:
    """Whether each method calls a difference of the replicates `d` [seeds, folds], at .05 or a posterior of .95."""
    means = d.mean(axis=0)
    n = len(means)
    overlap = 0.25
    corrected = math.sqrt(means.var(ddof=1) * (1 / n + overlap))
    both = 2 * special.stdtr(n - 1, -abs(means.mean()) / corrected)
    signs = np.where(np.random.default_rng(0).integers(0, 2, (999, d.size)), 1, -1)
    beyond = (np.abs(signs @ d.ravel()) >= abs(d.sum())).sum()
    now = contrast_of(d, d.shape[1])
    margin = Family(1, 0.05, ROPE)
    # Benavoli et al. 2017: the posterior of the mean is a t around it with that standard error
    above = special.stdtr(n - 1, (means.mean() - ROPE) / corrected)
    below = special.stdtr(n - 1, (-means.mean() - ROPE) / corrected)
    variances = ((halves - halves.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    f = (halves**2).sum() / (2 * variances.sum())  # Alpaydin 1999
    return {
        "contrasweep": now.p_value(0.05) <= 0.05,
        "contrasweep, smallest difference": judge([Evidence(now)], margin)[0].verdict
        in ("better", "worse"),
        "Nadeau-Bengio": bool(both <= 0.05),
        "Bayesian correlated t-test, rope": bool(max(above, below) > 0.95),
        "5x2cv F (10 trainings, its own draws)": bool(stats.f.sf(f, 10, 5) <= 0.05),
        "mixed model": _mixed_model(d) <= 0.05,
        "plain t over folds": bool(stats.ttest_1samp(means, 0).pvalue <= 0.05),
        "plain t over all": bool(stats.ttest_1samp(d.ravel(), 0).pvalue <= 0.05),
        "sign-flip over all": bool((beyond + 1) / 1000 <= 0.05),
    }


def _mixed_model(d: Any) -> float:
    import warnings

    from statsmodels.regression.mixed_linear_model import MixedLM

    folds = np.tile(np.arange(d.shape[1]), d.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(MixedLM(d.ravel(), np.ones(d.size), groups=folds).fit().pvalues[0])
        except (np.linalg.LinAlgError, ValueError):
            return 1.0
