"""A family of comparisons over the looks at a study that grows: what stands after each look, and what goes on.

Each comparison has the p-values of its looks so far. The repeated p-value of its latest data (`spending`) is adjusted
over the family as those of a study without looks are, and what a look decided stays decided and passes its share of
alpha on, which is the group-sequential Holm procedure. What is not decided is futile where even a difference worth
finding would hardly be decided by the last look; futility is no verdict, costs no level, and only says that further
replicates would most likely be wasted.
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
    """A comparison after a look, by the data that it had when it was last tested: its repeated p adjusted over the
    family, the same of equivalence (None: no margin), the two-sided `level` at which that look tested it, and what
    follows. `decision` is better, worse or equivalent exactly where the 1 - `level` interval says so."""

    p_value: float
    equivalence_p: float | None
    level: float
    decision: Decision


def judge_looks(
    p_values: Sequence[Sequence[float]],
    differences: Sequence[float],
    looks: Looks,
    family: Family,
    *,
    equivalence_p: Sequence[Sequence[float]] | None = None,
    standard_errors: Sequence[float] | None = None,
    decided: Sequence[bool] | None = None,
    mode: Literal["max", "min"] = "max",
    inflation: float = 1.0,
) -> list[Standing]:
    """What stands after as many looks as each comparison has `p_values` [comparisons][looks] (two-sided; NaN: not
    tested at that look). `differences` are the latest estimates (a - b), `equivalence_p` those of the family's margin
    (`Evidence.equivalence_p`), `standard_errors` those that the estimates will have at the last look. `decided` says
    which of them an earlier look decided: these pass their share of alpha on, whatever they come to now.
    Repeated p-values are multiplied by `inflation` (`Looks.t_inflation`, where the statistics are those of seeds).
    """
    p = np.asarray(p_values, dtype=np.float64)
    before = [False] * len(p) if decided is None else list(decided)
    tested = [int(np.flatnonzero(np.isfinite(row))[-1]) if np.isfinite(row).any() else -1 for row in p]
    repeated = [
        1.0 if look < 0 else min(1.0, inflation * looks.repeated_p(row[look], look))
        for row, look in zip(p, tested, strict=True)
    ]
    passed = [0.0 if done else own for own, done in zip(repeated, before, strict=True)]
    waiting = [1.0] * max(0, family.size - len(p))
    left = family.levels(sum(one <= family.alpha for one in family.adjusted([*passed, *waiting])[: len(p)]))
    standings = []
    for i, (difference, look) in enumerate(zip(differences, tested, strict=True)):
        family_p = [*passed[:i], repeated[i], *passed[i + 1 :], *waiting]
        adjusted, share = float(family.adjusted(family_p)[i]), family.share(family_p, i)
        same = None
        if family.margin is not None and equivalence_p is not None:
            same = 1.0 if look < 0 else inflation * looks.repeated_p(equivalence_p[i][look], look)
            same = min(1.0, same * max(1, family.size))
        decision: Decision = "open"
        if adjusted <= family.alpha:
            decision = "better" if (difference > 0) == (mode == "max") else "worse"
        elif same is not None and same <= family.alpha:
            decision = "equivalent"
        elif _futile(
            p[i], difference, looks, left, family.margin, None if standard_errors is None else standard_errors[i]
        ):
            decision = "futile"
        level = looks.level_at(share / inflation, max(0, look))
        standings.append(Standing(adjusted, same, level, decision))
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
    room = margin / error - critical
    centre, spread = time * difference / error, (1 - time) ** 0.5
    if room <= 0:
        return True
    if spread == 0:
        return abs(centre) > room
    chance = special.ndtr((room - centre) / spread) - special.ndtr((-room - centre) / spread)
    return bool(chance < FUTILE_BELOW)
