"""One comparison with its numbers and its verdict, in words and as rows."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import special, stats

from contrasweep.statistics.components import Components
from contrasweep.statistics.design import SIGN_FLIP, Scope
from contrasweep.statistics.evidence import Evidence, Gaps
from contrasweep.statistics.family import Family
from contrasweep.statistics.resampling import bca_interval, sign_flip_p, smallest_p
from contrasweep.statistics.verdicts import Judgement, Verdict, judge

SHOWN = ("difference", "low", "high", "p_value", "n", "planned", "alpha", "family", "test", "scope", "verdict")
"""What a notebook shows of `Comparison.to_dict`."""
Said = Literal["better", "worse", "equivalent", "undecided", "exploratory"]
TURNED: dict[Said, Said] = {"better": "worse", "worse": "better"}


@dataclass(frozen=True, repr=False)
class Comparison:
    """A against B over paired replicates: `evidence`, and the `judgement` of the `family` that it belongs to (None: it
    is exploratory, and nothing is said but its numbers).

    `turned` says that the evidence is of B against A.
    """

    evidence: Evidence
    family: Family
    judgement: Judgement | None = None
    mode: Literal["max", "min"] = "max"
    turned: bool = False

    @property
    def _sign(self) -> int:
        return -1 if self.turned else 1

    @property
    def difference(self) -> float:
        """Mean of a - b over the replicates that both finished, in units of the metric."""
        return self._sign * self.evidence.common.difference

    @property
    def low(self) -> float:
        """Lower end of the 1 - alpha interval of the difference, not adjusted for the family."""
        return self._interval[0]

    @property
    def high(self) -> float:
        """Upper end of that interval."""
        return self._interval[1]

    @cached_property
    def _interval(self) -> tuple[float, float]:
        low, high = self.evidence.common.interval(self.family.alpha, self.family.level)
        return (-high, -low) if self.turned else (low, high)

    @cached_property
    def raw_p(self) -> float:
        """Two-sided p of no difference, of this comparison alone; failures count as losses."""
        return self.evidence.p_value(self.family.level, self.mode)

    @property
    def p_value(self) -> float:
        """Two-sided p of no difference, adjusted over the family; of an exploratory comparison `raw_p`."""
        return self.raw_p if self.judgement is None else self.judgement.p_value

    @property
    def equivalence_p(self) -> float | None:
        """p of a difference of the smallest difference of interest or more, adjusted; None without one."""
        return None if self.judgement is None else self.judgement.equivalence_p

    @property
    def verdict(self) -> Said:
        """About A: better, worse, equivalent or undecided; `exploratory` outside the study's family."""
        if self.judgement is None:
            return "exploratory"
        said: Said = self.judgement.verdict
        return TURNED.get(said, said) if self.turned else said

    @property
    def decided(self) -> bool:
        """Whether it has a verdict other than undecided."""
        return self.verdict not in ("undecided", "exploratory")

    @property
    def n(self) -> int:
        """Independent replicates: folds (seeds of a fold averaged), or seeds."""
        return self.evidence.common.n

    @property
    def alpha(self) -> float:
        """The chance of any false verdict in the family."""
        return self.family.alpha

    @property
    def test(self) -> str:
        """The test that the p-value is of."""
        return self.evidence.common.test(self.family.level)

    @property
    def scope(self) -> Scope:
        """What the comparison generalises to."""
        return self.evidence.common.scope

    @property
    def components(self) -> Components:
        """The variances of one paired difference."""
        return self.evidence.common.components

    @property
    def differences(self) -> tuple[float, ...]:
        """The difference of each independent replicate."""
        return tuple(self._sign * d for d in self.evidence.common.values)

    @property
    def gaps(self) -> Gaps:
        """What the comparison lacks."""
        return self.evidence.gaps.reversed() if self.turned else self.evidence.gaps

    @cached_property
    def probability_of_improvement(self) -> tuple[float, float, float]:
        """Share of replicates in which A beats B, ties half, with Wilson's (1927) 1 - alpha interval."""
        better = np.array(self.differences) * (1 if self.mode == "max" else -1)
        share, n = float(((better > 0) + 0.5 * (better == 0)).mean()), len(better)
        z = -float(special.ndtri(self.alpha / 2))
        centre = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return share, max(0.0, centre - half), min(1.0, centre + half)

    @cached_property
    def wilcoxon_p(self) -> float:
        """Two-sided p of Wilcoxon's signed-rank test of the same differences (SciPy's)."""
        return float(stats.wilcoxon(np.asarray(self.differences)).pvalue) if np.any(self.differences) else 1.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know beside the verdict, as sentences."""
        common, level = self.evidence.common, self.family.level
        if common.n > 1 and not common.design.folds and not common.design.items and self.test != SIGN_FLIP:
            share = f"alpha / {self.family.size} = {level:.2g}" if self.family.size > 1 else f"alpha = {level:.2g}"
            return (
                f"with {common.n} seeds the exact sign-flip test reaches no p below {smallest_p(common.n):.2g}, above "
                f"{share}: the t-test decides, which takes differences as normal",
            )
        return ()

    def reversed(self) -> "Comparison":
        """B against A."""
        return Comparison(self.evidence, self.family, self.judgement, self.mode, not self.turned)

    def to_dict(self) -> dict[str, object]:
        """Every number as JSON has it: None for an infinite end."""
        won, won_low, won_high = self.probability_of_improvement
        common, gaps, parts = self.evidence.common, self.gaps, self.components
        bca = bca_interval(np.asarray(self.differences), self.alpha, expanded=True)
        row = {
            "difference": self.difference,
            "low": self.low,
            "high": self.high,
            "p_value": self.p_value,
            "verdict": self.verdict,
            "equivalence_p": self.equivalence_p,
            "smallest_difference": self.family.margin,
            "scope": self.scope,
            "standard_error": common.standard_error,
            "degrees": common.degrees,
            "variance_fold": parts.fold,
            "variance_seed": parts.seed,
            "variance_item": parts.item,
            "variance_residual": parts.residual,
            "probability_of_improvement": won,
            "probability_low": won_low,
            "probability_high": won_high,
            "n": self.n,
            "failed_a": gaps.failed_a,
            "failed_b": gaps.failed_b,
            "pending": gaps.pending,
            "planned": gaps.planned,
            "deviation": common.deviation,
            "alpha": self.alpha,
            "test": self.test,
            "sign_flip_p": sign_flip_p(common.values),
            "smallest_p": smallest_p(self.n),
            "family": self.family.size,
            "correction": self.family.correction,
            "mode": self.mode,
            "wilcoxon_p": self.wilcoxon_p,
            "bca_low": bca[0],
            "bca_high": bca[1],
            "notes": list(self.notes),
        }
        return {name: _plain(value) for name, value in row.items()}

    def sentence(self, a: str = "A", b: str = "B") -> str:
        """The verdict in words with its numbers, for people; of an exploratory comparison the numbers alone."""
        numbers = f"{self.span()}, p {p_text(self.p_value)}"
        verdict = self.verdict
        if self.n == 1:
            numbers = self.span()
        if self.difference == 0 and self.low == self.high:
            numbers = "all values are equal"
        if verdict == "exploratory":
            return f"{a} - {b}: {numbers}"
        if verdict == "equivalent":
            return f"{a} and {b} are equivalent: {self.span()}, within ±{self.family.margin:g}"
        if verdict != "undecided":
            return f"{a} is {verdict} than {b}: {numbers}"
        reason = self._reason(a, b)
        return f"{a} against {b} is undecided: {numbers}" + (f"; {reason}" if reason else "")

    def span(self) -> str:
        """The difference with its interval: `+0.025 [+0.002, +0.049]`, to two digits of its half-width."""
        if math.isinf(self.low):
            return f"{self.difference:+.3g}"
        half = (self.high - self.low) / 2 or abs(self.difference)
        decimals = min(8, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else 3
        return " ".join([f"{self.difference:+.{decimals}f}", f"[{self.low:+.{decimals}f}, {self.high:+.{decimals}f}]"])

    def _reason(self, a: str, b: str) -> str:
        """Why nothing is decided, where it is not the noise."""
        gaps = self.gaps
        if self.judgement is not None and self.judgement.reason:
            return self.judgement.reason
        if gaps.pending:
            return f"{gaps.pending} of {gaps.planned} replicates are still to run"
        if self.judgement is not None and self.judgement.gaps_decide:
            lost = [(a, gaps.failed_a), (b, gaps.failed_b)]
            return " and ".join(f"{arm} failed in {n}" for arm, n in lost if n) + f" of {gaps.planned}"
        if self.n == 1:
            return "one replicate tells nothing about noise"
        return ""

    def __str__(self) -> str:
        return self.sentence() + "."

    def __repr__(self) -> str:
        return f"Comparison({self.sentence()})"

    def _repr_html_(self) -> str:
        row = self.to_dict()
        shown = {name: row[name] for name in SHOWN if row[name] is not None}
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in shown)
        cells = "".join(f"<td>{f'{v:.4g}' if isinstance(v, float) else v}</td>" for v in shown.values())
        notes = "".join(f"<p>{html.escape(note)}.</p>" for note in self.notes)
        return f"<p><b>{html.escape(str(self))}</b></p><table><tr>{head}</tr><tr>{cells}</tr></table>{notes}"


def judged(
    evidence: Sequence[Evidence], family: Family, mode: Literal["max", "min"], *, decisive: bool = True
) -> list[Comparison]:
    """Every comparison of a family, judged together; with `decisive` False each is exploratory."""
    if not decisive:
        return [Comparison(e, family, None, mode) for e in evidence]
    return [Comparison(e, family, j, mode) for e, j in zip(evidence, judge(evidence, family, mode), strict=True)]


def p_text(p: float) -> str:
    """`= 0.037`, or `< 0.0001`."""
    return "< 0.0001" if p < 1e-4 else f"= {p:.2g}"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


__all__ = ["Comparison", "Said", "Verdict", "judged", "p_text"]
