"""The verdicts of a study that was looked at before.

A study that is looked at as it grows has the verdicts of its last look, and none between looks. A study of a fixed size
that was extended after its end has stricter verdicts. What an earlier look decided is told beside them, with that
look's own interval and p.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from contrasweep.config import Config
from contrasweep.errors import plural
from contrasweep.statistics.comparison import Comparison, Decided, verdict_of
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import LEVEL_DIVISOR
from contrasweep.storage.interim_log import EXTENDED, VERDICTS, Context, LookLog, read_looks
from contrasweep.storage.records import StudyRecords

TOO_EARLY = ": a verdict before the last look must stand though collapses may not have shown; this needs more trials"
SAME_DATA = 1e-9
"""Estimates of the same trials agree to this share of their size and standard error."""


def decided_before(log: LookLog, context: Context, a: str, b: str, pairs: int) -> Decided | None:
    """Return what an earlier look decided of `a` against `b`; None where no look decided anything.

    Of several looks the first that decided is returned. `context` is the place of the comparison in the table, and
    `pairs` its present number of pairs of trials. Only looks with fewer pairs are earlier ones.
    """
    history = log.history(context, a, b)
    for number, (look, entry) in enumerate(zip(log.looks, history, strict=True), start=1):
        if entry is not None and entry.pairs < pairs and entry.decision in VERDICTS:
            # The p is that of equivalence for arms that are equivalent, else that of no difference.
            p_value = entry.adjusted_p
            if entry.decision == "equivalent":
                p_value = entry.adjusted_equivalence_p or 1.0
            decided = Decided(
                number,
                look.replicates,
                log.unit,
                entry.decision,  # type: ignore[arg-type]
                entry.difference,
                *entry.interval,
                p_value,
                look.margin,
            )
            return decided if entry.a == a else decided.reversed()
    return None


@dataclass(frozen=True)
class InterimVerdicts:
    """The verdicts of a study that grows: those of its looks, which `log` has.

    The study grows to at most `most` seeds or repeats; `unit` says which. `earlier_confirmations` is how often the
    study was confirmed before the present confirmation. Each of these divides alpha by `LEVEL_DIVISOR`, which is four.
    """

    log: LookLog
    unit: str
    most: int
    earlier_confirmations: int = 0

    @classmethod
    def of(cls, spec: Config, records: StudyRecords, earlier_confirmations: int = 0) -> Self | None:
        """Return the verdicts of a study declared as `spec`; None where its number of replicates is fixed.

        `records` has the log of its looks. `earlier_confirmations` is how often the study was confirmed before the
        present confirmation.
        """
        declared = spec.get("replicates")
        if not declared:
            return None
        log = read_looks(records) or LookLog(declared["spending"], declared["of"])
        return cls(log, declared["of"], declared["most"], earlier_confirmations)

    def looks_before(self, context: Context, a: str, b: str, evidence: Evidence) -> int:
        """Return 0, the number of earlier looks that divide the level of a comparison.

        In a study that grows, its looks share alpha among them from the start, so that none of them divides it.
        """
        return 0

    def verdict_on(self, context: Context, a: str, b: str, comparison: Comparison) -> Comparison:
        """Return the `comparison` of `a` with `b`, with the verdict, interval and p of the look at the same data.

        `context` is the place of the comparison in the table. Where no look had exactly these data, there is no
        verdict. An exploratory comparison is returned unchanged.
        """
        judgement = comparison.judgement
        if judgement is None:
            return comparison
        evidence = comparison.evidence
        entry = self.log.newest(context, a, b)
        # No verdict, no interval and a p of 1, as long as no look at these data has settled them.
        unsettled = replace(
            judgement,
            verdict="undecided",
            p_value=1.0,
            low=-math.inf,
            high=math.inf,
            equivalence_p=None,
            looked_p=1.0,
            gaps_decide=False,
            reason="no look yet" if entry is None else "between looks",
            before=decided_before(self.log, context, a, b, evidence.gaps.planned),
        )
        if entry is None:
            return replace(comparison, judgement=unsettled)
        # The log's entry may be of b against a.
        low, high = entry.interval
        difference = entry.difference
        if entry.a != a:
            low, high, difference = -high, -low, -difference
        # The data differ from those of the look if trials were added, or have another result since.
        common = evidence.common
        changed = abs(difference - common.difference) > SAME_DATA * (
            abs(difference) + common.standard_error
        )
        if evidence.gaps.planned != entry.pairs or evidence.gaps.pending or changed:
            return replace(comparison, judgement=unsettled)
        # Why there is no verdict, where noise alone is not the reason.
        reason = ""
        if entry.decision == "futile":
            reason = f"futile: {self.most} {self.unit} would hardly decide it"
        elif entry.decision == "open" and not self.log.over:
            reason = "open" if entry.low is not None else f"open{TOO_EARLY}"
        # The numbers of the look; each p is multiplied for earlier confirmations of the study.
        factor = LEVEL_DIVISOR**self.earlier_confirmations
        verdict = verdict_of(low, high, comparison.family.margin, comparison.mode)
        p_value = min(1.0, factor * entry.adjusted_p)
        equivalence_p = entry.adjusted_equivalence_p
        if equivalence_p is not None:
            equivalence_p = min(1.0, factor * equivalence_p)
        # The look settles all but `before` and `gaps_decide`, which its log does not keep.
        judgement = replace(
            unsettled,
            verdict=verdict,
            p_value=p_value,
            looked_p=p_value,
            low=low,
            high=high,
            equivalence_p=equivalence_p,
            level=entry.level,
            reason=reason,
        )
        return replace(comparison, judgement=judgement)

    @property
    def finished(self) -> bool:
        """Whether no look is to come: the last look was taken, or no comparison is open."""
        looks = self.log.looks
        return self.log.over or (
            bool(looks)
            and all(comparison.decision != "open" for comparison in looks[-1].comparisons)
        )

    @property
    def notes(self) -> list[str]:
        """Return notes for the table: how often the study was looked at, and how alpha is spread over the looks."""
        looks = self.log.looks
        if not looks:
            return [
                f"the study grows up to {self.most} {self.unit} and had no look yet: no verdicts"
            ]
        at = ", ".join(str(look.replicates) for look in looks)
        number = plural(len(looks), "look")
        lines = [
            f"judged at {number} (at {at} of at most {self.most} {self.unit}); alpha is spread over all looks "
            f"({self.log.spending}), and every interval and p allows for them"
        ]
        if self.log.earlier:
            earlier = plural(len(self.log.earlier), "earlier look")
            lines.append(f"{earlier} had trials that were trained again since")
        return lines


@dataclass(frozen=True)
class ExtensionVerdicts:
    """Verdicts of a study of a fixed size that was extended once its trials had ended.

    The first look has the whole of alpha, and each later look a quarter of the level of the look before. So any number
    of looks has a false verdict with a chance of less than 4/3 alpha (1 + 1/4 + 1/16 + ...).
    """

    log: LookLog
    further_looks: int = 0  # how many later declarations and confirmations count as looks

    @classmethod
    def of(cls, records: StudyRecords, further_looks: int = 0) -> Self | None:
        """Return the verdicts of a study that was looked at before; None where this is the first look.

        `further_looks` counts the declarations and confirmations that were looks, beside those of the log.
        """
        log = read_looks(records)
        # A log of another kind is of a study that grew, and was declared with a fixed size since.
        if log is None or log.spending != EXTENDED:
            log = LookLog(EXTENDED, "replicates")
        return cls(log, further_looks) if log.looks or further_looks else None

    @property
    def looks(self) -> int:
        """How many looks there were before, with the declarations and confirmations that count as looks."""
        return len(self.log.looks) + self.further_looks

    @property
    def finished(self) -> bool:
        """Return False: the study may be extended again."""
        return False

    @property
    def unit(self) -> str:
        """The name of what the log counts at each look: `replicates`."""
        return self.log.unit

    def looks_before(self, context: Context, a: str, b: str, evidence: Evidence) -> int:
        """Return how many earlier looks the comparison of `a` with `b` had; each of them divides its level by four.

        An earlier look is one with fewer pairs of trials than `evidence` has. `context` is the place of the comparison
        in the table.
        """
        history = self.log.history(context, a, b)
        return self.further_looks + sum(
            comparison is not None and comparison.pairs < evidence.gaps.planned
            for comparison in history
        )

    def verdict_on(self, context: Context, a: str, b: str, comparison: Comparison) -> Comparison:
        """Return `comparison`, which is of all data, and add the verdict of the first earlier look that gave one.

        `context` is the place of the comparison in the table.
        """
        before = decided_before(self.log, context, a, b, comparison.evidence.gaps.planned)
        if comparison.judgement is None or before is None:
            return comparison
        return replace(comparison, judgement=replace(comparison.judgement, before=before))

    @property
    def notes(self) -> list[str]:
        """Return a note for the table: the number of this look, and by which factor its p-values are multiplied."""
        at = ", ".join(str(look.replicates) for look in self.log.looks)
        after = f"extended after its trials had ended (at {at} {self.unit}): " if at else ""
        # 1 + 1/4 + ... + 1/4^looks, the sum of a geometric series
        most = (LEVEL_DIVISOR - LEVEL_DIVISOR**-self.looks) / (LEVEL_DIVISOR - 1)
        factor = LEVEL_DIVISOR**self.looks
        return [
            f"{after}this is look {self.looks + 1}, whose p are multiplied by {factor:g} and whose intervals "
            f"are wider to match; over all looks a false verdict has a chance of at most {most:.3g} alpha"
        ]
