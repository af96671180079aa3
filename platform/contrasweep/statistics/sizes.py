"""Larger designs than the present one: what each would detect and decide, and how large one has to be."""

import math
from dataclasses import replace
from typing import Literal

from scipy import optimize

from contrasweep.statistics.components import Components
from contrasweep.statistics.design import Contrast, Design
from contrasweep.statistics.power_of_designs import POWER, detectable_effect, t_power
from contrasweep.statistics.prediction import Prediction, predict

Unit = Literal["seeds", "repeats"]
MOST_TIMES = 32
"""No design of more than so many times the present replicates is proposed."""


def resized(design: Design, unit: Unit, count: int) -> Design:
    """The design with so many seeds, or repeats of its folds."""
    return replace(design, seeds=count) if unit == "seeds" else replace(design, repeats=count)


def count_of(design: Design, unit: Unit) -> int:
    """How many seeds or repeats a design has."""
    return design.seeds if unit == "seeds" else design.repeats


def detectable_difference(now: Contrast, design: Design, level: float) -> float:
    """The smallest true difference, in units of the metric, that `design` decides at `level` in 80 % of studies whose
    noise is as `now` estimates it; infinite where nothing is known of the noise."""
    if now.n < 2 or now.standard_error == 0:
        return math.inf
    if not design.folds and not design.items:
        return detectable_effect(design.seeds, alpha=level) * now.deviation
    components, degrees = now.components, now.degrees
    error = now.standard_error
    if design != now.design:
        if now.design.folds and now.design.seeds == 1:  # half of it, as the share that is of training is not known
            components = Components(fold=components.fold / 2, residual=components.fold / 2)
        error, degrees = math.sqrt(design.variance(components)), max(1.0, design.degrees(components))
    if error == 0:
        return math.inf
    return error * float(optimize.brentq(lambda x: t_power(x, degrees, level) - POWER, 0, 1e5, xtol=1e-6))


def enough(
    now: Contrast, unit: Unit, level: float, margin: float | None = None, *, wanted: float = POWER, fresh: bool = False
) -> Prediction | None:
    """The smallest design that is predicted to decide the comparison with chance `wanted`, of more seeds or repeats;
    None where none of up to `MOST_TIMES` times the present replicates is."""
    present = count_of(now.design, unit)

    def at(count: int) -> Prediction | None:
        tried = predict(now, resized(now.design, unit, count), level, margin, fresh=fresh)
        return tried if tried is not None and tried.assurance >= wanted else None

    low, high = 1 if fresh else present, present * MOST_TIMES
    best = at(high)
    while best is not None and high - low > max(1, low // 16):  # within the precision that an assurance has
        middle = max(low + 1, min(high - 1, round(math.sqrt(low * high))))
        if (tried := at(middle)) is not None:
            best, high = tried, middle
        else:
            low = middle
    return best
