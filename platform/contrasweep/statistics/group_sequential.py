"""A family of comparisons over the looks at a study that grows: what stands after each look, and what goes on.

Each comparison has the p-values of its looks so far. Their sequential p-values (`spending`) are adjusted over the
family as those of a study without looks are, which is the group-sequential Holm procedure. What is not decided is
futile where even a difference worth finding would hardly be decided by the last look; futility is no verdict, costs no
level, and only says that further replicates would most likely be wasted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from contrasweep.statistics.checks import Floats
from contrasweep.statistics.family import Family
from contrasweep.statistics.spending import Looks, conditional_power

Decision = Literal["open", "better", "worse", "equivalent", "futile"]
FUTILE_BELOW = 0.2
"""Below this chance of a decision at the last look a comparison is futile."""
POWER_WANTED = 0.8
"""Without a smallest difference of interest, one that the last look decides with this chance is worth finding."""


@dataclass(frozen=True)
class Standing:
    """A comparison after a look: its sequential p (adjusted over the family too), the same of equivalence (None: no
    margin), and what follows."""

    sequential_p: float
    adjusted_p: float
    equivalence_p: float | None
    decision: Decision


def judge_looks(
    p_values: Sequence[Sequence[float]],
    differences: Sequence[float],
    looks: Looks,
    family: Family,
    *,
    equivalence_p: Sequence[Sequence[float]] | None = None,
    standard_errors: Sequence[float] | None = None,
    mode: Literal["max", "min"] = "max",
    inflation: float = 1.0,
) -> list[Standing]:
    """What stands after as many looks as each comparison has `p_values` [comparisons][looks] (two-sided; NaN: not
    tested at that look). `differences` are the latest estimates (a - b), `equivalence_p` the larger p of two one-sided
    tests against the family's margin, `standard_errors` those that the estimates will have at the last look.
    Sequential p-values are multiplied by `inflation` (`Looks.t_inflation`, where the statistics are those of seeds).
    """
    p = np.asarray(p_values, dtype=np.float64)
    same = None if equivalence_p is None else np.asarray(equivalence_p, dtype=np.float64)
    sequential = np.minimum(1.0, inflation * looks.sequential_p(p))
    waiting = [1.0] * max(0, family.size - len(p))
    adjusted = family.adjusted([*sequential, *waiting])
    equivalent: Floats = np.ones(len(p))
    if same is not None and family.margin is not None:  # one-sided tests: each side has twice the share of alpha
        sides = np.minimum(1.0, inflation * looks.sequential_p(np.minimum(1.0, 2 * same)))
        equivalent = family.adjusted([*(sides / 2), *waiting])
    decided = int((adjusted <= family.alpha).sum())
    level = family.levels(decided)
    standings = []
    for i, difference in enumerate(differences):
        decision: Decision = "open"
        if equivalent[i] <= family.alpha:
            decision = "equivalent"
        elif adjusted[i] <= family.alpha:
            decision = "better" if (difference > 0) == (mode == "max") else "worse"
        elif _futile(
            p[i], difference, looks, level, family.margin, None if standard_errors is None else standard_errors[i]
        ):
            decision = "futile"
        margin_p = None if same is None or family.margin is None else float(equivalent[i])
        standings.append(Standing(float(sequential[i]), float(adjusted[i]), margin_p, decision))
    return standings


def _futile(
    p: Floats, difference: float, looks: Looks, level: float, margin: float | None, error: float | None
) -> bool:
    """Whether neither a difference worth finding nor, with a margin, equivalence has a fair chance by the last look."""
    tested = np.flatnonzero(np.isfinite(p))
    if not len(tested) or len(p) == len(looks.times):  # nothing to come that could be spared
        return False
    look = int(tested[-1])
    time = looks.information[look] / looks.information[-1]
    critical = float(looks.critical_values(level)[-1])
    z = -float(special.ndtri(max(p[look], 1e-300) / 2))
    if margin is None or not error:
        drift = critical + float(special.ndtri(POWER_WANTED))
        return bool(conditional_power(z, time, critical, drift) < FUTILE_BELOW)
    if conditional_power(z, time, critical, margin / error) >= FUTILE_BELOW:
        return False
    room = margin / error - float(looks.critical_values(min(2 * level, 0.99))[-1])
    centre, spread = time * difference / error, (1 - time) ** 0.5
    if room <= 0:
        return True
    if spread == 0:
        return abs(centre) > room
    chance = special.ndtr((room - centre) / spread) - special.ndtr((-room - centre) / spread)
    return bool(chance < FUTILE_BELOW)
