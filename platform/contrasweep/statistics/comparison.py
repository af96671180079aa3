"""A comparison of two arms: its verdict, its numbers, and what is said of both in words.

A verdict is about arm a, and it is read off the interval of the difference. It has two parts. The direction is `better`
or `worse` where the interval lies on one side of 0, else `not sure`. The relevance is `above` where the whole interval
is beyond the smallest difference of interest, `below` where all of it is within, else `unclear`. `MATTERS` has the
words; a direction that is not sure is `equivalent` where the relevance is below, and else `undecided`. The interval is
that of the test: its level is the share of alpha that the family (Holm, Bonferroni) and the looks so far leave to the
comparison. So verdict, interval and adjusted p are one analysis and cannot contradict each other.

Gaps help no arm. The estimate is over the replicates that both arms finished; a verdict for an arm must stand as well
when each replicate in which it failed (or was not finite) counts as a loss, as large as the largest difference seen.
Where it is missing for a cause outside the method, such as a lost host, a bad score counts, as if that cause had ended
its worst trials. A verdict waits while replicates are still to run: until then there is neither an interval nor a p.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from contrasweep.errors import plural
from contrasweep.rows import Mode
from contrasweep.statistics.design import PERMUTATION, SIGN_FLIP, WELCH, Components, Scope
from contrasweep.statistics.evidence import COPIES_HINT, Evidence, Gaps
from contrasweep.statistics.family import LEVEL_DIVISOR, Family
from contrasweep.statistics.resampling import EXACT_UP_TO, constant

Verdict = Literal["better", "worse", "equivalent", "undecided"]
"""What is decided of arm a: a direction, that no difference matters (`equivalent`), or nothing."""
Direction = Literal["better", "worse", "not sure"]
Relevance = Literal["above", "below", "unclear"]
"""Whether a difference is surely above the smallest difference of interest, surely below it, or neither."""
MATTERS: dict[Relevance | None, str] = {
    "above": " and it matters",
    "below": ", by less than matters",
    "unclear": ", unclear whether it matters",
    None: "",
}
"""The words behind `better` or `worse`; none where no smallest difference was declared."""
TURNED: dict[str, str] = {"better": "worse", "worse": "better"}
"""Verdict on a -> the same verdict on b."""


@dataclass(frozen=True)
class Decided:
    """The verdict on arm a against arm b that an earlier look at the study's results gave, with its numbers.

    The first look has the number (`look`) 1. It had `replicates` replicates, which `unit` names: `seeds`, for example.
    `low` to `high` is the interval of the difference a - b at that look, and `p_value` is its adjusted p: of no
    difference, or where the verdict is `equivalent`, of a difference as large as `margin`. `margin` is the smallest
    difference of interest that was declared at that look; None where none was.
    """

    look: int
    replicates: int
    unit: str
    verdict: Verdict
    difference: float
    low: float
    high: float
    p_value: float
    margin: float | None = None

    def relevance(self, margin: float | None) -> Relevance | None:
        """Return where the interval of that look lies: "above" or "below" the `margin`, or "unclear" (`relevance_of`).

        None without a `margin`, which is the smallest difference of interest that is declared now.
        """
        return relevance_of(self.low, self.high, margin)

    def reversed(self) -> "Decided":
        """Return the same decision on b against a: `better` becomes `worse`, and the difference changes its sign."""
        verdict: Verdict = TURNED.get(self.verdict, self.verdict)  # type: ignore[assignment]
        return replace(
            self, verdict=verdict, difference=-self.difference, low=-self.high, high=-self.low
        )


@dataclass(frozen=True)
class Judgement:
    """A verdict on arm a and the numbers that it rests on, all of one analysis.

    Attributes:
        verdict: The verdict.
        raw_p: The p of no difference, of this comparison alone.
        p_value: The p of no difference, adjusted over the family and the looks.
        low: The lower end of the interval of the difference a - b. The interval's level is the share of alpha that the
            family and the earlier looks leave to this comparison.
        high: The upper end of this interval.
        level: The level that the test must be able to reach: an exact test whose smallest possible p is above it is not
            used. It is alpha over the size of the family, divided further for each earlier look.
        equivalence_p: The adjusted p of a difference as large as the margin; None without a margin.
        gaps_decide: Whether the verdict would be another one if no trial had failed or were missing.
        reason: Why there is no verdict; "" where noise is the only reason.
        before: The verdict of an earlier look; None where no earlier look gave one.
        looked_p: The p of no difference, adjusted over the looks, but not over the family.
    """

    verdict: Verdict
    raw_p: float
    p_value: float
    low: float
    high: float
    level: float
    equivalence_p: float | None
    gaps_decide: bool = False
    reason: str = ""
    before: Decided | None = None
    looked_p: float = 1.0


def verdict_of(low: float, high: float, margin: float | None, mode: str) -> Verdict:
    """Return the verdict on a from the interval `low` to `high` of a - b; `mode` says which values are better.

    `margin` is the smallest difference of interest; without it (None) nothing is equivalent.
    """
    if low > 0:
        return "better" if mode == "max" else "worse"
    if high < 0:
        return "worse" if mode == "max" else "better"
    return "equivalent" if relevance_of(low, high, margin) == "below" else "undecided"


def relevance_of(low: float, high: float, margin: float | None) -> Relevance | None:
    """Return how a difference with the interval `low` to `high` compares with the smallest one of interest, `margin`.

    "above" where the whole interval is beyond `margin` on either side of 0, "below" where it is within ±`margin`, else
    "unclear"; None without a `margin`.
    """
    if margin is None:
        return None
    # First the largest size of a difference in the interval, then the smallest. A size that equals the margin up to
    # rounding is neither above nor below it.
    if max(-low, high) < margin * (1 - 1e-12):
        return "below"
    return "above" if max(low, -high) > margin * (1 + 1e-12) else "unclear"


def in_words(verdict: Verdict, relevance: Relevance | None) -> str:
    """Return a verdict and its relevance in words, such as `better, by less than matters`.

    Only `better` and `worse` have a relevance. The words `equivalent` and `undecided` stand alone.
    """
    return verdict + MATTERS[relevance] if verdict in ("better", "worse") else verdict


def judge(
    evidence: Sequence[Evidence],
    family: Family,
    mode: Mode = "max",
    *,
    looks: Sequence[int] | None = None,
) -> list[Judgement]:
    """Judge every comparison of a family together, and return one judgement for each entry of `evidence`.

    `family.size` may be larger than the number of entries: a comparison without any replicate yet has no entry, and
    counts with p = 1. `looks` has for each entry the number of earlier looks, at which there were fewer replicates.
    Each of them divides the level of the comparison by `LEVEL_DIVISOR`. Without `looks` there were none.
    """
    factors = [LEVEL_DIVISOR**count for count in looks or [0] * len(evidence)]
    # The gaps decide a comparison whose verdict is another one in the same family without gaps.
    without_gaps = [Evidence(pair.common, constant=pair.constant) for pair in evidence]
    judgements = _judge(evidence, family, mode, factors)
    others = _judge(without_gaps, family, mode, factors)
    return [
        replace(judgement, gaps_decide=judgement.verdict != other.verdict)
        for judgement, other in zip(judgements, others, strict=True)
    ]


def _judge(
    evidence: Sequence[Evidence], declared: Family, mode: str, factors: Sequence[float]
) -> list[Judgement]:
    """Return the judgement of each comparison, given by its `evidence`, of the family that was `declared`.

    `factors` has a number for each comparison, 1 without earlier looks: its p is multiplied by that number, and its
    level is divided by it. `mode` is "max" where larger values are better.
    """
    # Arms whose values are all equal cannot be decided wrongly, so that they are no part of the family. With a margin
    # they are: they may be called equivalent.
    margin = declared.margin
    family = declared.without(sum(pair.arms_equal for pair in evidence))
    levels = [family.level / factor for factor in factors]
    # The p of each comparison: of the present data, and with the looks before. While trials are to run the latter is 1,
    # which decides nothing.
    raw_ps = []
    looked_ps = []
    for pair, factor, level in zip(evidence, factors, levels, strict=True):
        p = pair.p_value(level, mode)
        raw_ps.append(p)
        looked_ps.append(1.0 if pair.gaps.pending else min(1.0, factor * p))
    # The p-values of the family alone. A comparison that has no replicates yet counts with a p of 1.
    members = [i for i, pair in enumerate(evidence) if margin is not None or not pair.arms_equal]
    family_ps = [looked_ps[i] for i in members] + [1.0] * max(0, family.size - len(members))
    adjusted_ps = family.adjusted(family_ps)

    judgements = []
    for i, pair in enumerate(evidence):
        # Outside the family p is 1. In it the comparison has a share of alpha, by its place among the p-values.
        share = family.level
        p_value = 1.0
        if i in members:
            place = members.index(i)
            share = family.share(family_ps, place)
            p_value = float(adjusted_ps[place])
        low = -math.inf
        high = math.inf
        equivalence_p = None if margin is None else 1.0
        if not pair.gaps.pending:
            low, high = pair.interval(share / factors[i], levels[i], mode)
            # Equivalence by two one-sided tests, adjusted over the whole family by Bonferroni's correction.
            if margin is not None:
                equivalence_p = factors[i] * pair.equivalence_p(margin, levels[i], mode)
                equivalence_p = min(1.0, equivalence_p * max(1, family.size))
        judgements.append(
            Judgement(
                verdict=verdict_of(low, high, margin, mode),
                raw_p=raw_ps[i],
                p_value=p_value,
                low=low,
                high=high,
                level=levels[i],
                equivalence_p=equivalence_p,
                looked_p=looked_ps[i],
            )
        )
    return judgements


ONE_SEED = (
    "one seed per fold: what another seed would change is not known. Where the trials of a seed share it over the "
    "folds (code that draws from the seed alone), the verdict and its interval hold for this seed only"
)
"""The note on folds with one seed, where nobody says whether they share it."""
SEED_UNKNOWN = (
    "one seed on all folds, which they may share: nothing is decided, because what another seed would change is not "
    "known. The intervals of means are of this seed alone. A second seed tells"
)
"""The note on folds of which nobody knows how much a seed that they share changes."""
UNPAIRED = "unpaired: the difference carries the spread of both arms"
"""The note on runs without a partner."""
MISSING = (
    "a replicate that is missing for a cause outside the method (its host was lost, say) is no loss, and the "
    "difference is without it; but a verdict for its arm must stand as well with a bad score there. The same command "
    "runs it again"
)
SHOWN_FIRST = (
    "difference",
    "low",
    "high",
    "p_value",
    "raw_p",
    "verdict",
    "direction",
    "relevance",
    "equivalence_p",
)
"""The attributes of `Comparison` with which `Comparison.to_dict` begins."""
SHOWN_GAPS = ("failed_a", "failed_b", "missing_a", "missing_b", "pending", "planned")
"""The fields of `Gaps` that `Comparison.to_dict` has."""
EARLIER = ("look", "replicates", "verdict", "difference", "low", "high", "p_value")
"""The fields of `Decided` that `Comparison.to_dict` has, with `earlier_` before their names."""
MOST_DECIMALS = 8
"""The most digits of a p-value, and the most after the point of a difference that is not smaller still."""
MOST_NAMED = 3
"""The most collapsed trials of an arm that a sentence names."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Arm A against arm B over paired replicates, with its verdict.

    Attributes:
        evidence: The paired differences, and the same with failures as losses.
        family: The comparisons that are judged together with this one.
        judgement: The verdict and the numbers that it rests on. None for an exploratory comparison, which has no
            verdict.
        mode: "max" where larger values are better, "min" where smaller ones are.
        turned: Whether the evidence is of B against A.
        bounds: The least and the largest value of the metric; None where they are not known. An interval is cut at the
            largest difference that they allow; one that holds every possible difference is infinite.
        names: The names of A and B in sentences.

    Example:
        >>> comparison = results.compare("ocl", "scl")
        >>> comparison.verdict, comparison.p_value
        >>> print(comparison)
    """

    evidence: Evidence
    family: Family
    judgement: Judgement | None = None
    mode: Mode = "max"
    turned: bool = False
    bounds: tuple[float, float] | None = None
    names: tuple[str, str] = ("A", "B")

    @property
    def widest(self) -> float | None:
        """The largest difference that the metric allows: 1 for an accuracy. None for a metric without bounds."""
        return None if self.bounds is None else self.bounds[1] - self.bounds[0]

    def _within(self, low: float, high: float) -> tuple[float, float]:
        """Return the interval of a difference, cut at the largest differences that the metric allows."""
        widest = self.widest
        return within(low, high, (-widest, widest) if widest else None)

    @property
    def difference(self) -> float:
        """Mean of A - B over the replicates that both finished, in units of the metric."""
        difference = self.evidence.common.difference
        return 0.0 - difference if self.turned else difference  # never -0

    @property
    def low(self) -> float:
        """Lower end of the interval of the difference; minus infinity where there is no interval.

        The interval has the level that family and looks leave; an exploratory comparison has a 1 - alpha interval.
        """
        return self._interval[0]

    @property
    def high(self) -> float:
        """Upper end of the interval of the difference; infinity where there is no interval."""
        return self._interval[1]

    @cached_property
    def _interval(self) -> tuple[float, float]:
        """Return the interval of A - B at the judgement's level, cut at what the metric allows."""
        if self.judgement is None:
            low, high = self.evidence.interval(self.family.alpha, self.family.level, self.mode)
        else:
            low = self.judgement.low
            high = self.judgement.high
        low, high = self._within(low, high)
        # Subtracted from 0.0, as -high would make -0.0 of an end that is 0.
        return (0.0 - high, 0.0 - low) if self.turned else (low, high)

    @property
    def level(self) -> float:
        """The level that the test must be able to reach: that of the judgement.

        For an exploratory comparison, which has no judgement, it is alpha over the size of the family.
        """
        return self.family.level if self.judgement is None else self.judgement.level

    @cached_property
    def raw_p(self) -> float:
        """Two-sided p of no difference, of this comparison alone, with failures counted as losses."""
        return self.evidence.p_value(self.level, self.mode)

    @property
    def p_value(self) -> float:
        """Two-sided p of no difference, adjusted over the family and its looks.

        It is 1 while replicates are to run. For an exploratory comparison it is `raw_p`.
        """
        return self.raw_p if self.judgement is None else self.judgement.p_value

    @property
    def equivalence_p(self) -> float | None:
        """Adjusted p of a difference as large as the smallest difference of interest; None where none was declared.

        It is at most alpha exactly where the interval lies within plus and minus this difference.
        """
        return None if self.judgement is None else self.judgement.equivalence_p

    @property
    def decision(self) -> Verdict:
        """The verdict on A without its relevance: better, worse, equivalent or undecided."""
        verdict: Verdict = "undecided" if self.judgement is None else self.judgement.verdict
        return TURNED.get(verdict, verdict) if self.turned else verdict  # type: ignore[return-value]

    @property
    def direction(self) -> Direction | None:
        """The first part of the verdict on A: better, worse or not sure; None for an exploratory comparison."""
        if self.judgement is None:
            return None
        return self.decision if self.decision in ("better", "worse") else "not sure"

    @property
    def relevance(self) -> Relevance | None:
        """The second part of the verdict: whether the difference is above or below the smallest one of interest.

        None for an exploratory comparison, and where the study has declared no smallest difference of interest.
        """
        if self.judgement is None:
            return None
        return relevance_of(self.low, self.high, self.family.margin)

    @property
    def verdict(self) -> str:
        """Return the verdict on A in words, such as `better, by less than matters`.

        It is `exploratory` for a comparison that is not in the study's family, so that the study does not decide it.
        """
        return "exploratory" if self.judgement is None else in_words(self.decision, self.relevance)

    @property
    def before(self) -> Decided | None:
        """What an earlier look, with fewer replicates, decided of A against B; None where none decided anything."""
        if self.judgement is None or self.judgement.before is None:
            return None
        before = self.judgement.before
        low, high = self._within(before.low, before.high)
        before = replace(before, low=low, high=high)
        return before.reversed() if self.turned else before

    @property
    def decided(self) -> bool:
        """Whether the comparison has a verdict other than undecided."""
        return self.decision != "undecided"

    @property
    def n(self) -> int:
        """The number of independent replicates: folds (seeds of a fold averaged), seeds, items or tasks."""
        return self.evidence.common.n

    @property
    def alpha(self) -> float:
        """The chance of any false verdict in the family."""
        return self.family.alpha

    @property
    def test(self) -> str:
        """Return the name of the test that gives the p-value."""
        return self.evidence.common.test(self.level)

    @property
    def scope(self) -> Scope:
        """What the verdict holds for, in words such as `for new training sets of this size` or `on this split`."""
        return self.evidence.common.design.scope

    @property
    def components(self) -> Components:
        """The variances of one paired difference, by their source: folds, seeds, items and the rest."""
        return self.evidence.common.components

    @property
    def gaps(self) -> Gaps:
        """How many of the planned pairs of trials the comparison lacks, by cause."""
        return self.evidence.gaps.reversed() if self.turned else self.evidence.gaps

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences, without a full stop, that a reader must know beside the verdict; empty where there are none."""
        missing = (MISSING,) if self.gaps.missing_a or self.gaps.missing_b else ()
        return (*missing, *self._design_notes())

    def _design_notes(self) -> tuple[str, ...]:
        """Return the note on a weakness of the design, if it has one, as a tuple of at most one sentence.

        It is on one seed for all folds, on runs without a partner, or on too few seeds for an exact test.
        """
        common = self.evidence.common
        design = common.design
        if common.n > 1 and design.folds and design.seeds == 1:
            # What is known of the variance between seeds; None where nobody says whether the folds share their seed.
            part = design.seed_part
            if part is None:
                return (ONE_SEED,)
            if math.isinf(part.variance):
                return (SEED_UNKNOWN,)
            # Where each fold draws anew there is no note.
            if not part.variance:
                return ()
            return (
                f"one seed on all folds: what another seed would change is taken from study {part.study}",
            )
        if self.test in (PERMUTATION, WELCH):
            return (UNPAIRED,)
        # The t-test takes the mean as normal. That holds for many items or tasks, but perhaps not for trainings.
        doubtful = common.n > 1 and (design.counts_trainings or common.n <= EXACT_UP_TO)
        missed = design.exact_test_missed(self.alpha, self.level)
        return (missed,) if doubtful and missed and self.test == "t-test" else ()

    @property
    def collapsed(self) -> list[tuple[str, ...]]:
        """The names of the collapsed trials, `seed 1 on fold 0`, of A and of B."""
        named = [self.evidence.collapsed_a, self.evidence.collapsed_b]
        return named[::-1] if self.turned else named

    def reversed(self) -> "Comparison":
        """Return the same comparison as B against A."""
        return replace(self, turned=not self.turned, names=self.names[::-1])

    def to_dict(self) -> dict[str, object]:
        """Return every number of the comparison by its name, for JSON.

        Returns:
            Name -> value; differences are in units of the metric. A number that is infinite or NaN is None, and so are
            p and noise of fewer than two replicates. Names that begin with `earlier_` are of the look that decided the
            comparison first.
        """
        common = self.evidence.common
        gaps = self.gaps
        parts = self.components
        before = self.before
        row = {
            **{name: getattr(self, name) for name in SHOWN_FIRST},
            "smallest_difference": self.family.margin,
            "scope": self.scope,
            "standard_error": common.standard_error,
            "degrees": common.degrees,
            "variance_fold": parts.fold,
            "variance_seed": parts.seed,
            "variance_item": parts.item,
            "variance_residual": parts.residual,
            "n": self.n,
            "pairs": self.evidence.pairs,
            "unpaired": self.evidence.unpaired,
            **{name: getattr(gaps, name) for name in SHOWN_GAPS},
            **dict(zip(("collapsed_a", "collapsed_b"), self.collapsed, strict=True)),
            "deviation": common.deviation,
            "alpha": self.alpha,
            "test": self.test,
            "smallest_p": common.smallest_p if self.test in (SIGN_FLIP, PERMUTATION) else math.nan,
            "family": self.family.size,
            "correction": self.family.correction,
            "mode": self.mode,
            "notes": list(self.notes),
            **{
                f"earlier_{name}": None if before is None else getattr(before, name)
                for name in EARLIER
            },
        }
        # Fewer than two replicates are not tested, and tell nothing about noise.
        if self.n < 2:
            unknown = ["p_value", "raw_p", "equivalence_p", "standard_error", "deviation"]
            unknown += [name for name in row if name.startswith("variance_")]
            row |= dict.fromkeys(unknown)
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }

    def sentence(self, a: str = "", b: str = "") -> str:
        """Return the verdict and its numbers as a sentence; the numbers alone where the comparison is exploratory.

        Args:
            a: The name of arm A, in place of the first of `names`.
            b: The name of arm B, in place of the second of `names`.

        Returns:
            The sentence without a full stop; a second sentence has what an earlier look decided.
        """
        a = a or self.names[0]
        b = b or self.names[1]
        sentence = self._present_sentence(a, b)
        before = self.before
        if before is None:
            return sentence
        # An equivalence was within the margin of its look, which may have been declared anew since.
        verdict = _decision_text(a, b, before.verdict, before.relevance(self.family.margin))
        if before.verdict == "equivalent" and before.margin is not None:
            verdict += f" within ±{before.margin:g}"
            if before.margin != self.family.margin:
                verdict += ", which was withdrawn"
        numbers = f"{span(before.difference, before.low, before.high)}, p {p_text(before.p_value, self.alpha)}"
        return f"{sentence}. Decided at look {before.look} ({before.replicates} {before.unit}): {verdict}: {numbers}"

    def _present_sentence(self, a: str, b: str) -> str:
        """Return the sentence on the present data, without what an earlier look decided.

        It has the verdict, the difference, the trials that are missing or collapsed, and the reason of an undecided
        verdict.
        """
        numbers = self._numbers()
        # The trials behind the numbers: pairs, missing trials and collapsed ones.
        trials = f", over {plural(self.evidence.pairs, 'pair')}" if self.evidence.unpaired else ""
        missing = _counted("is missing in", (a, self.gaps.missing_a), (b, self.gaps.missing_b))
        if missing:
            trials += f" ({missing} of {self.gaps.planned})"
        for arm, collapsed in zip((a, b), self.collapsed, strict=True):
            if len(collapsed) > MOST_NAMED:
                trials += f"; {arm} collapsed in {len(collapsed)} replicates, which --json names"
            elif collapsed:
                trials += f"; {arm} collapsed at {', '.join(collapsed)}"

        # In the sentence the verdict comes first, then the numbers and the trials, then what limits the verdict.
        decision = self.decision
        margin = self.family.margin
        if self.judgement is None:
            return f"{a} - {b}: {numbers}{trials}"
        if decision == "undecided":
            reason = self._reason(a, b)
            end = f"; {reason}" if reason else ""
            return f"{a} against {b} is undecided: {numbers}{trials}{end}"
        if decision == "equivalent":
            # An equivalence shows its interval, also where all values are equal, and not the p of no difference.
            numbers = f"{self.span()}, within ±{margin:g}"
        elif margin is not None:
            numbers += f"; {margin:g} would matter"
        return f"{_decision_text(a, b, decision, self.relevance)}: {numbers}{trials}{self._unseen(a, b)}"

    def _numbers(self) -> str:
        """Return the difference as text, with its interval and its p: `+0.025 [+0.002, +0.049], p = 0.031`.

        The interval and the p are left out where nothing was tested. Equal values in all replicates are told in words.
        """
        equal_in_all = self.n > 1 and self.evidence.common.standard_error == 0
        if equal_in_all and self.difference == 0:
            return "all values are equal, as if both arms trained the same"
        numbers = self.span()
        # While p is 1 and there is no interval nothing was tested, and p is left out.
        if self.p_value < 1 or not math.isinf(self.low):
            numbers += f", p {p_text(self.p_value, self.alpha)}"
        if equal_in_all and not self.evidence.constant:
            numbers += ", the same in every replicate"
            if math.isinf(self.low):
                numbers += ", so that there is no interval"
        return numbers

    def span(self) -> str:
        """Return the difference with its interval, as text: `+0.025 [+0.002, +0.049]`.

        It shows two digits of the interval's half-width, and more where the ends would else look like 0.
        """
        return span(self.difference, self.low, self.high)

    def _unseen(self, a: str, b: str) -> str:
        """Return the end of a sentence: what share of trials may collapse although no collapse was seen.

        "" where the verdict would stand in spite of so many collapses, where collapses were seen, and where nothing
        tells how deep a collapsed trial falls.
        """
        evidence = self.evidence
        decision = self.decision
        # Nothing is written where collapses were seen, where nobody knows how deep an arm could fall, and where
        # replicates are no trainings, but items or tasks.
        seen = evidence.collapsed_a or evidence.collapsed_b
        depth_unknown = self.bounds is None and not evidence.collapse_depth
        if seen or depth_unknown or not evidence.common.design.counts_trainings:
            return ""
        if evidence.withstands(decision, self.mode, self.family.margin, self.bounds):
            return ""
        share = f"{evidence.unseen:.0%}"
        arm_at_risk = {"better": a, "worse": b}.get(decision, "either")
        return f"; up to {share} of the trials of {arm_at_risk} may collapse unseen, which would change this"

    def _reason(self, a: str, b: str) -> str:
        """Return why a comparison is undecided for a reason other than noise; "" where noise is the only reason."""
        gaps = self.gaps
        judgement = self.judgement
        if judgement is not None and judgement.reason:
            return judgement.reason
        if gaps.pending:
            return f"{gaps.pending} of {gaps.planned} replicates are still to run"
        if judgement is not None and judgement.gaps_decide:
            failures = _counted("failed in", (a, gaps.failed_a), (b, gaps.failed_b))
            if failures:
                return f"{failures} of {gaps.planned}"
            if gaps.missing_a or gaps.missing_b:
                return "bad scores where it is missing would change the verdict"
            return "trials that other arms lack change the verdict"
        if self.n == 1:
            return "one replicate tells nothing about noise"
        if self.evidence.constant:
            return f"each arm has one value in all {plural(self.n, 'replicate')}: {COPIES_HINT}"
        # The test has given a finite interval. But it holds every difference that the metric allows, so that `low` is
        # infinite (`within`).
        if math.isinf(self.low) and judgement is not None and math.isfinite(judgement.low):
            degrees = freedom(self.evidence.common.degrees)
            return f"{degrees}, which leaves every difference possible"
        if self.evidence.common.seed_unknown:
            if constant(self.evidence.common.values):
                return "the same in every replicate of this one seed"
            low, high = self.evidence.common.of_this_seed.interval(self.level)
            if self.turned:  # the evidence is of B against A
                low, high = -high, -low
            # The text is `difference [low, high]`, of which only the interval is shown.
            _, _, interval = span(self.difference, low, high).partition(" ")
            return f"{interval} is of this one seed"
        return ""

    def __str__(self) -> str:
        return self.sentence() + "."

    def __repr__(self) -> str:
        return f"Comparison({self.sentence()})"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}.</p>" for note in self.notes)
        return f"<p><b>{html.escape(str(self))}</b></p>{notes}"


def within(low: float, high: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Return the interval `low` to `high`, cut at `bounds` (least, largest; None: it is not cut).

    It is infinite where it holds all values between the bounds, since it then says nothing.
    """
    if not bounds:
        return low, high
    least, largest = bounds
    if low <= least and high >= largest:
        return -math.inf, math.inf
    return max(low, least), min(high, largest)


def freedom(degrees: float) -> str:
    """Return degrees of freedom in words: `one degree of freedom`, `12 degrees of freedom`."""
    return "one degree of freedom" if round(degrees) <= 1 else f"{degrees:.0f} degrees of freedom"


def _decision_text(a: str, b: str, verdict: Verdict, relevance: Relevance | None) -> str:
    """Return a verdict that decides as a sentence about both arms: `a is better than b and it matters`."""
    if verdict == "equivalent":
        return f"{a} and {b} are equivalent"
    return f"{a} is {verdict} than {b}{MATTERS[relevance]}"


def _counted(what: str, *counts: tuple[str, int]) -> str:
    """Return (arm, number) pairs as text: `ocl failed in 2 and scl failed in 1`; "" where all numbers are 0.

    `what` stands between an arm and its number, such as `failed in`.
    """
    return " and ".join(f"{arm} {what} {number}" for arm, number in counts if number)


def judged_comparisons(
    evidence: Sequence[Evidence],
    family: Family,
    mode: Mode,
    *,
    decisive: bool = True,
    looks: Sequence[int] | None = None,
    bounds: tuple[float, float] | None = None,
) -> list[Comparison]:
    """Return every comparison of a family, judged together by `judge`; exploratory ones where `decisive` is False.

    `evidence` has the paired differences of each. `looks` has for each the number of earlier looks, as in `judge`;
    `bounds` are the least and the largest value of the metric.
    """
    if not decisive:
        return [Comparison(pair, family, None, mode, bounds=bounds) for pair in evidence]
    judgements = judge(evidence, family, mode, looks=looks)
    # Comparisons show the family that was judged, which leaves out arms whose values are all equal.
    family = family.without(sum(pair.arms_equal for pair in evidence))
    return [
        Comparison(pair, family, judgement, mode, bounds=bounds)
        for pair, judgement in zip(evidence, judgements, strict=True)
    ]


def span(difference: float, low: float, high: float) -> str:
    """Return a difference with its interval as text: `+0.025 [+0.002, +0.049]`.

    Where an end is infinite there is no interval, and the difference stands alone. Digits are as in `Comparison.span`.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{difference:+.3g}"
    # Two digits of the half-width (without a width, of the difference), and more as long as an end that is not 0 would
    # be shown as 0.
    half = (high - low) / 2 or abs(difference)
    most = max(MOST_DECIMALS, decimals_of(max(map(abs, (difference, low, high)))))
    decimals = min(most, decimals_of(half))
    while decimals < most and any(
        end != 0 and float(f"{end:.{decimals}f}") == 0 for end in (low, high)
    ):
        decimals += 1
    return f"{difference:+.{decimals}f} [{low:+.{decimals}f}, {high:+.{decimals}f}]"


def decimals_of(size: float) -> int:
    """Return the digits after the point that show a number of this size with two digits: 3 for 0.016; 3 also for 0."""
    return max(0, 1 - math.floor(math.log10(size))) if size > 0 else 3


def p_text(p: float, alpha: float | None = None) -> str:
    """Return a p-value as text behind `=` or `<`: `= 0.037`, or `< 0.0001`.

    It has two digits, and more where the rounded p would be on the other side of `alpha`.
    """
    if p < 1e-4 and (alpha is None or alpha >= 1e-4):
        return "< 0.0001"
    digits = 2
    # As long as the rounded p is on the other side of `alpha` than p.
    while (
        alpha is not None
        and digits < MOST_DECIMALS
        and (float(f"{p:.{digits}g}") <= alpha) != (p <= alpha)
    ):
        digits += 1
    return f"= {p:.{digits}g}"
