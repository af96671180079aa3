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
from contrasweep.statistics.verdicts import TURNED, Decided, Judgement, Verdict, judge

SHOWN = ("difference", "low", "high", "p_value", "n", "planned", "alpha", "family", "test", "scope", "verdict")
"""What a notebook shows of `Comparison.to_dict`."""
ONE_SEED = (
    "one seed a fold: what another seed would change is not known. Where the trials of a seed share it over the folds "
    "(code that draws from the seed alone), the verdict and its interval hold for this seed only"
)
"""The note on folds with one seed."""
MISSING = (
    "a replicate that is missing for a cause outside the method (its host was lost, say) is left out and is no loss; "
    "the same command runs it again. If what ended it has to do with the score it would have had, the result is biased"
)
EARLIER = ("look", "replicates", "verdict", "difference", "low", "high", "p_value")
"""What `Comparison.to_dict` has of the look that decided it first."""
Said = Literal["better", "worse", "equivalent", "undecided", "exploratory"]
MOST_DECIMALS = 8


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
        """Lower end of the interval of the difference. Its level is that of the test in its family and after its looks;
        of an exploratory comparison 1 - alpha. Infinite where there is no interval."""
        return self._interval[0]

    @property
    def high(self) -> float:
        """Upper end of that interval."""
        return self._interval[1]

    @cached_property
    def _interval(self) -> tuple[float, float]:
        if self.judgement is None:
            low, high = self.evidence.interval(self.family.alpha, self.family.level, self.mode)
        else:
            low, high = self.judgement.low, self.judgement.high
        return (-high, -low) if self.turned else (low, high)

    @property
    def level(self) -> float:
        """The level that chose the test."""
        return self.family.level if self.judgement is None else self.judgement.level

    @cached_property
    def raw_p(self) -> float:
        """Two-sided p of no difference, of this comparison alone; failures count as losses."""
        return self.evidence.p_value(self.level, self.mode)

    @property
    def p_value(self) -> float:
        """Two-sided p of no difference, adjusted over the family and its looks (1 while replicates are to run); of an
        exploratory comparison `raw_p`."""
        return self.raw_p if self.judgement is None else self.judgement.p_value

    @property
    def equivalence_p(self) -> float | None:
        """p of a difference of the smallest difference of interest or more, adjusted; None without one. At most alpha
        where the interval lies within it."""
        return None if self.judgement is None else self.judgement.equivalence_p

    @property
    def verdict(self) -> Said:
        """About A: better, worse, equivalent or undecided; `exploratory` outside the study's family."""
        if self.judgement is None:
            return "exploratory"
        said = self.judgement.verdict
        return TURNED.get(said, said) if self.turned else said  # type: ignore[return-value]

    @property
    def before(self) -> Decided | None:
        """What an earlier look decided of A against B, with fewer replicates."""
        before = None if self.judgement is None else self.judgement.before
        return before.reversed() if before is not None and self.turned else before

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
        return self.evidence.common.test(self.level)

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
        missing = (MISSING,) if self.gaps.missing_a or self.gaps.missing_b else ()
        return (*missing, *self._design_notes())

    def _design_notes(self) -> tuple[str, ...]:
        common, level = self.evidence.common, self.level
        if common.n > 1 and common.design.folds and common.design.shared and common.design.seeds == 1:
            return (ONE_SEED,)
        if common.n > 1 and not common.design.folds and not common.design.items and self.test != SIGN_FLIP:
            parts = round(self.alpha / level)
            share = f"alpha / {parts} = {level:.2g}" if parts > 1 else f"alpha = {level:.2g}"
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
        before = self.before
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
            "pairs": self.evidence.pairs,
            "unpaired": self.evidence.unpaired,
            "failed_a": gaps.failed_a,
            "failed_b": gaps.failed_b,
            "missing_a": gaps.missing_a,
            "missing_b": gaps.missing_b,
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
            **{f"earlier_{name}": None if before is None else getattr(before, name) for name in EARLIER},
        }
        return {name: _plain(value) for name, value in row.items()}

    def sentence(self, a: str = "A", b: str = "B") -> str:
        """The verdict in words with its numbers, for people; of an exploratory comparison the numbers alone. What an
        earlier look decided is a sentence of its own."""
        said = self._said(a, b)
        if (before := self.before) is None:
            return said
        told = f"{a} and {b} are equivalent" if before.verdict == "equivalent" else f"{a} is {before.verdict} than {b}"
        numbers = f"{span(before.difference, before.low, before.high)}, p {p_text(before.p_value, self.alpha)}"
        return f"{said}. Decided at look {before.look} ({before.replicates} {before.unit}): {told}: {numbers}"

    def _said(self, a: str, b: str) -> str:
        verdict, numbers = self.verdict, self.span()
        if self.p_value < 1 or not math.isinf(self.low):
            numbers += f", p {p_text(self.p_value, self.alpha)}"
        if self.difference == 0 and self.n > 1 and self.evidence.common.standard_error == 0:
            numbers = "all values are equal"
        gone = [(a, self.gaps.missing_a), (b, self.gaps.missing_b)]
        lacks = " and ".join(f"{arm} is missing in {n}" for arm, n in gone if n)
        over = f", over {self.evidence.pairs} pair{'s' * (self.evidence.pairs != 1)}" * bool(self.evidence.unpaired)
        over += f" ({lacks} of {self.gaps.planned})" * bool(lacks)
        if verdict == "exploratory":
            return f"{a} - {b}: {numbers}{over}"
        if verdict == "equivalent":
            return f"{a} and {b} are equivalent: {self.span()}, within ±{self.family.margin:g}{over}"
        if verdict != "undecided":
            margin = self.family.margin
            less = "" if margin is None or max(-self.low, self.high) >= margin else f", by less than {margin:g}"
            return f"{a} is {verdict} than {b}: {numbers}{less}{over}"
        reason = self._reason(a, b)
        return f"{a} against {b} is undecided: {numbers}{over}" + (f"; {reason}" if reason else "")

    def span(self) -> str:
        """The difference with its interval: `+0.025 [+0.002, +0.049]`, to two digits of its half-width, or as many as
        show on which side of 0 its ends are."""
        return span(self.difference, self.low, self.high)

    def _reason(self, a: str, b: str) -> str:
        """Why nothing is decided, where it is not the noise."""
        gaps = self.gaps
        if self.judgement is not None and self.judgement.reason:
            return self.judgement.reason
        if gaps.pending:
            return f"{gaps.pending} of {gaps.planned} replicates are still to run"
        if self.judgement is not None and self.judgement.gaps_decide and (gaps.failed_a or gaps.failed_b):
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
    evidence: Sequence[Evidence],
    family: Family,
    mode: Literal["max", "min"],
    *,
    decisive: bool = True,
    looks: Sequence[int] | None = None,
) -> list[Comparison]:
    """Every comparison of a family, judged together (`looks` as in `verdicts.judge`); with `decisive` False each is
    exploratory."""
    if not decisive:
        return [Comparison(e, family, None, mode) for e in evidence]
    judgements = judge(evidence, family, mode, looks=looks)
    return [Comparison(e, family, j, mode) for e, j in zip(evidence, judgements, strict=True)]


def span(difference: float, low: float, high: float) -> str:
    """A difference with its interval, as `Comparison.span` has it; the difference alone where there is no interval."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{difference:+.3g}"
    half = (high - low) / 2 or abs(difference)
    decimals = min(MOST_DECIMALS, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else 3
    while decimals < MOST_DECIMALS and any(end != 0 and float(f"{end:.{decimals}f}") == 0 for end in (low, high)):
        decimals += 1
    return f"{difference:+.{decimals}f} [{low:+.{decimals}f}, {high:+.{decimals}f}]"


def p_text(p: float, alpha: float | None = None) -> str:
    """`= 0.037`, or `< 0.0001`; with as many digits as show on which side of alpha it is."""
    if p < 1e-4 and (alpha is None or alpha >= 1e-4):
        return "< 0.0001"
    digits = 2
    while alpha is not None and digits < MOST_DECIMALS and (float(f"{p:.{digits}g}") <= alpha) != (p <= alpha):
        digits += 1
    return f"= {p:.{digits}g}"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


__all__ = ["Comparison", "Said", "Verdict", "judged", "p_text", "span"]
