"""Checks of the numbers that a statistic is given."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasweep.errors import SpecError

Floats = NDArray[np.float64]


def floats(values: ArrayLike) -> Floats:
    """Return `values` as an array of 64-bit floats.

    An array that is one already is returned itself, not copied.
    """
    return np.asarray(values, dtype=np.float64)


def finite_or_none(value: float) -> float | None:
    """Return `value`, or None where it is infinite or NaN, which JSON cannot hold."""
    return value if np.isfinite(value) else None


def checked_level(alpha: float) -> float:
    """Return the level `alpha` as a float; raise `SpecError` unless it is a probability above 0 and below 1."""
    if not 0 < alpha < 1:
        raise SpecError(
            "alpha is a probability between 0 and 1",
            place="alpha",
            value=alpha,
            hint="for example 0.05",
        )
    return float(alpha)
