"""Checks of the numbers that a statistic is given."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasweep.errors import SpecError

Floats = NDArray[np.float64]


def checked_replicates(values: ArrayLike, place: str) -> Floats:
    """Return `values` as a float array [n], n >= 1, all finite; raise `SpecError` that says what is wrong otherwise."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise SpecError("replicates are numbers", place=place, value=values) from None
    if array.ndim != 1:
        raise SpecError("replicates are a flat list, one number each", place=place, value=f"shape {array.shape}")
    if array.size < 1:
        raise SpecError("at least 1 replicate is needed", place=place, value=0)
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise SpecError(
            "replicates must be finite",
            place=f"{place}[{bad}]",
            value=float(array[bad]),
            hint="leave failed replicates out of both sides",
        )
    return array


def checked_pairs(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    """Return `a` and `b` as two checked arrays of one length."""
    first, second = checked_replicates(a, "a"), checked_replicates(b, "b")
    if len(first) != len(second):
        raise SpecError(
            "paired replicates come in two equally long lists, a[i] and b[i] from one fold and seed",
            place="a, b",
            value=f"{len(first)} and {len(second)} replicates",
        )
    return first, second


def checked_level(alpha: float) -> float:
    """Return `alpha` as a float; raise `SpecError` unless it is a probability between 0 and 1."""
    if not 0 < alpha < 1:
        raise SpecError("alpha is a probability between 0 and 1", place="alpha", value=alpha, hint="for example 0.05")
    return float(alpha)
