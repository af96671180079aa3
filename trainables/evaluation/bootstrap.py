"""Resampling of the test set: how much of a score or a difference is the choice of test items.

It holds test noise only. What another seed or fold would give is another question; the platform's tables answer it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Real

from contrasweep.errors import SpecError

PERCENTILES = (0.025, 0.975)


@dataclass(frozen=True)
class BootstrapInterval:
    """A mean over test items, the mean over resamples, and the percentiles 2.5 and 97.5 of the resamples."""

    value: float
    mean: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Of a difference: whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def bootstrap(
    scores: Mapping[str, Real[np.ndarray, " n"]], iterations: int = 1000, seed: int = 123
) -> dict[str, Float[np.ndarray, " iterations"]]:
    """The mean of each model's per-item scores in each resample of the items (with replacement, n of n).

    The same items are drawn for all models, so differences between the results are paired. The draws are those of
    torch.randint after torch.manual_seed(seed), one call a resample, as in SINCERE's code.
    """
    columns = {name: torch.as_tensor(np.asarray(values), dtype=torch.float32) for name, values in scores.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if not lengths or len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise SpecError("paired scores need one value per test item for every model", place="scores", value=lengths)
    n = next(iter(lengths.values()))
    generator = torch.Generator().manual_seed(seed)
    means: dict[str, list[torch.Tensor]] = {name: [] for name in columns}
    for _ in range(iterations):
        rows = torch.randint(n, (n,), generator=generator)
        for name, values in columns.items():
            means[name].append(values[rows].mean())
    return {name: torch.stack(values).numpy() for name, values in means.items()}


def interval(
    scores: Real[np.ndarray, " n"],
    against: Real[np.ndarray, " n"] | None = None,
    *,
    iterations: int = 1000,
    seed: int = 123,
) -> BootstrapInterval:
    """The interval of a model's mean score, or of its mean paired difference to `against`."""
    columns = {"a": np.asarray(scores)} if against is None else {"a": np.asarray(scores), "b": np.asarray(against)}
    resampled = bootstrap(columns, iterations, seed)
    values = resampled["a"] - (resampled["b"] if against is not None else 0)
    value = columns["a"].mean() - (columns["b"].mean() if against is not None else 0)
    low, high = np.quantile(values.astype(np.float64), PERCENTILES)
    return BootstrapInterval(float(value), float(values.mean(dtype=np.float64)), float(low), float(high))
