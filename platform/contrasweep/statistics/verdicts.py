"""What is said of a comparison: better, worse, equivalent or undecided.

A verdict is about arm a. It is `better` or `worse` where "no difference" is rejected at the level that the family gives
it, `equivalent` where "a difference of the smallest difference of interest or more" is (two one-sided tests), and
`undecided` else. A difference that is surely not 0 and surely below the margin is called equivalent.

Gaps help no arm. The estimate is over the replicates that both arms finished; a verdict for an arm must stand as well
when each replicate in which it failed (or was not finite) counts as a loss, as large as the largest difference seen. It
waits while replicates are still to run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contrasweep.statistics.checks import Floats
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family

Verdict = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """A verdict on arm a with what it rests on: `raw_p` of no difference, `p_value` adjusted over the family, and
    `equivalence_p` adjusted (None without a margin). `gaps_decide`: it would be decided but for the gaps. `reason` says
    why else it is undecided."""

    verdict: Verdict
    raw_p: float
    p_value: float
    equivalence_p: float | None = None
    gaps_decide: bool = False
    reason: str = ""


def judge(evidence: Sequence[Evidence], family: Family, mode: Literal["max", "min"] = "max") -> list[Judgement]:
    """Every comparison of a family, judged together. `family.size` may be more than there are, while others wait for
    their first replicates: p-values are then those of the whole family, the others' being 1."""
    raw, p_values, same = _adjusted(evidence, family, mode)
    _, ideal_p, ideal_same = _adjusted([Evidence(e.common) for e in evidence], family, mode)
    judgements = []
    for i, e in enumerate(evidence):
        ideal = _verdict(e.common.difference, ideal_p[i], ideal_same[i], family.alpha, mode)
        verdict: Verdict = "undecided"
        if e.gaps.pending == 0:
            verdict = _verdict(e.common.difference, p_values[i], same[i], family.alpha, mode)
        judgements.append(
            Judgement(
                verdict, raw[i], float(p_values[i]), None if family.margin is None else float(same[i]), verdict != ideal
            )
        )
    return judgements


def _adjusted(evidence: Sequence[Evidence], family: Family, mode: str) -> tuple[list[float], Floats, Floats]:
    """Of each comparison the plain p of no difference, that adjusted, and the adjusted p of a relevant difference."""
    waiting = [1.0] * max(0, family.size - len(evidence))
    raw = [e.p_value(family.level, mode) for e in evidence]
    same = [1.0 if family.margin is None else e.equivalence_p(family.margin, family.level) for e in evidence]
    return raw, family.adjusted([*raw, *waiting]), family.adjusted([*same, *waiting])


def _verdict(difference: float, p: float, equivalence_p: float, alpha: float, mode: str) -> Verdict:
    if equivalence_p <= alpha:
        return "equivalent"
    if p > alpha or difference == 0:
        return "undecided"
    return "better" if (difference > 0) == (mode == "max") else "worse"
