"""What is said of a comparison: better, worse, equivalent or undecided.

A verdict is about arm a, and it is read off the interval of the difference: `better` or `worse` where the interval lies
on one side of 0, `equivalent` where it holds 0 and lies within the smallest difference of interest, and `undecided`
else. The interval is that of the test: its level is the share of alpha that the family (Holm, Bonferroni) and the looks
so far leave to the comparison. So verdict, interval and adjusted p are one analysis and cannot contradict each other.

Gaps help no arm. The estimate is over the replicates that both arms finished; a verdict for an arm must stand as well
when each replicate in which it failed (or was not finite) counts as a loss, as large as the largest difference seen. A
replicate that is missing for a cause outside the method, such as a lost host, is no loss and is left out. A verdict
waits while replicates are still to run: until then there is neither an interval nor a p.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family

Verdict = Literal["better", "worse", "equivalent", "undecided"]
TURNED: dict[str, str] = {"better": "worse", "worse": "better"}
"""Verdicts on a as those on b."""


@dataclass(frozen=True)
class Decided:
    """What an earlier look decided of a against b, with the interval and the adjusted p of that look: look number
    `look`, at so many `replicates` (`unit`)."""

    look: int
    replicates: int
    unit: str
    verdict: Verdict
    difference: float
    low: float
    high: float
    p_value: float

    def reversed(self) -> "Decided":
        """The same of b against a."""
        verdict: Verdict = TURNED.get(self.verdict, self.verdict)  # type: ignore[assignment]
        return Decided(
            self.look, self.replicates, self.unit, verdict, -self.difference, -self.high, -self.low, self.p_value
        )


@dataclass(frozen=True)
class Judgement:
    """A verdict on arm a with what it rests on, all of one analysis: `raw_p` of no difference, `p_value` adjusted over
    the family and the looks, the interval `low` to `high` of the same level, and `equivalence_p` adjusted (None without
    a margin). `level` chose the test. `gaps_decide`: it would be decided but for the gaps. `reason` says why else it is
    undecided. `before` is what an earlier look decided."""

    verdict: Verdict
    raw_p: float
    p_value: float
    low: float
    high: float
    level: float
    equivalence_p: float | None = None
    gaps_decide: bool = False
    reason: str = ""
    before: Decided | None = None


def verdict_of(low: float, high: float, margin: float | None, mode: str) -> Verdict:
    """What the interval of a - b says of a."""
    if low > 0:
        return "better" if mode == "max" else "worse"
    if high < 0:
        return "worse" if mode == "max" else "better"
    if margin is not None and max(-low, high) < margin * (1 - 1e-12):
        return "equivalent"
    return "undecided"


def judge(
    evidence: Sequence[Evidence],
    family: Family,
    mode: Literal["max", "min"] = "max",
    *,
    looks: Sequence[int] | None = None,
) -> list[Judgement]:
    """Every comparison of a family, judged together. `family.size` may be more than there are, while others wait for
    their first replicates: p-values are then those of the whole family, the others' being 1.

    `looks` counts the looks that were taken at each comparison before, with fewer replicates: each halves its level.
    """
    factors = [2.0**count for count in looks or [0] * len(evidence)]
    ideal = _judge([Evidence(e.common) for e in evidence], family, mode, factors)
    return [
        Judgement(
            j.verdict, j.raw_p, j.p_value, j.low, j.high, j.level, j.equivalence_p, gaps_decide=j.verdict != i.verdict
        )
        for j, i in zip(_judge(evidence, family, mode, factors), ideal, strict=True)
    ]


def _judge(evidence: Sequence[Evidence], family: Family, mode: str, factors: Sequence[float]) -> list[Judgement]:
    levels = [family.level / factor for factor in factors]
    raw = [e.p_value(level, mode) for e, level in zip(evidence, levels, strict=True)]
    waiting = [1.0] * max(0, family.size - len(evidence))
    counted = [
        1.0 if e.gaps.pending else min(1.0, factor * p) for e, factor, p in zip(evidence, factors, raw, strict=True)
    ]
    p_values = family.adjusted([*counted, *waiting])
    judgements = []
    for i, (e, level, factor) in enumerate(zip(evidence, levels, factors, strict=True)):
        low, high = -math.inf, math.inf
        if not e.gaps.pending:
            low, high = e.interval(family.share([*counted, *waiting], i) / factor, level, mode)
        same = None
        if family.margin is not None:
            same = 1.0 if e.gaps.pending else min(1.0, factor * e.equivalence_p(family.margin, level, mode))
            same = min(1.0, same * max(1, family.size))
        verdict = verdict_of(low, high, family.margin, mode)
        judgements.append(Judgement(verdict, raw[i], float(p_values[i]), low, high, level, same))
    return judgements
