"""Many comparisons in one table."""

from collections.abc import Sequence

import numpy as np

from contrasweep.errors import SpecError
from contrasweep.statistics.checks import Floats


def holm(p_values: Sequence[float]) -> Floats:
    """Holm's (1979) adjusted p-values [m], in the order given: rejecting those <= alpha keeps the chance of
    any false rejection in the family at alpha, whatever the tests' dependence."""
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise SpecError("p-values are a flat list of numbers from 0 to 1", place="p_values", value=list(p_values))
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def bonferroni(p_values: Sequence[float], size: int | None = None) -> Floats:
    """p-values times the number of comparisons (`size`, or as many as there are), at most 1."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted: Floats = np.minimum(p * (len(p) if size is None else size), 1)
    return adjusted
