"""What is said of a study that was looked at before: one that is looked at as it grows has the verdicts of its last
look, and nothing between looks; one of a fixed size that was extended after its end has stricter verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from contrasweep.config import Config
from contrasweep.statistics.comparison import Comparison
from contrasweep.statistics.verdicts import Judgement, Verdict
from contrasweep.storage.looks import HALVING, LookAt, LookLog, read_looks
from contrasweep.storage.records import StudyRecords

SAME: Mapping[str, Verdict] = {"better": "better", "worse": "worse", "equivalent": "equivalent"}
TURNED: Mapping[str, Verdict] = {"better": "worse", "worse": "better", "equivalent": "equivalent"}
"""Verdicts of a decision, on its first arm and on its second."""


@dataclass(frozen=True)
class Growth:
    """The looks that were taken at a study (`log` None: none yet), of at most `most` replicates (`unit`)."""

    log: LookLog | None
    unit: str
    most: int

    @classmethod
    def of(cls, spec: Config, records: StudyRecords) -> Self | None:
        """Of a study as it was declared; None where it has a fixed number of replicates."""
        declared = spec.get("replicates")
        return cls(read_looks(records), declared["of"], declared["most"]) if declared else None

    def judged(self, context: tuple[tuple[str, str], ...], a: str, b: str, comparison: Comparison) -> Comparison:
        """The comparison with what the last look said of it: p counts all looks."""
        now = comparison.judgement
        if now is None:
            return comparison
        stands = self.log.latest.get((context, frozenset((a, b)))) if self.log else None
        if stands is None:
            return replace(comparison, judgement=replace(now, verdict="undecided", p_value=1.0, reason="no look yet"))
        return replace(comparison, judgement=self._judgement(now, stands, stands.a == a))

    def _judgement(self, now: Judgement, stands: LookAt, same_side: bool) -> Judgement:
        verdict = (SAME if same_side else TURNED).get(stands.decision, "undecided")
        reason = ""
        if stands.decision == "futile":
            reason = f"futile: {self.most} {self.unit} would hardly decide it"
        elif stands.decision == "open" and not self.over:
            reason = "open"
        p = min(stands.adjusted_p, 1.0)
        return replace(now, verdict=verdict, p_value=p, gaps_decide=False, reason=reason)

    @property
    def over(self) -> bool:
        """Whether the last look was taken."""
        return self.log is not None and self.log.over

    @property
    def finished(self) -> bool:
        """Whether no look is to come: the last one was taken, or nothing is open."""
        looks = self.log.looks if self.log else ()
        return self.over or (bool(looks) and all(one.decision != "open" for one in looks[-1].comparisons))

    @property
    def notes(self) -> list[str]:
        """What a reader of verdicts must know of the looks."""
        if self.log is None or not self.log.looks:
            return [f"the study grows up to {self.most} {self.unit} and was not looked at yet: no verdicts"]
        looks = self.log.looks
        at = ", ".join(str(look.replicates) for look in looks)
        times = "once" if len(looks) == 1 else f"{len(looks)} times"
        lines = [
            f"looked at {times} ({at} of at most {self.most} {self.unit}), alpha spent as {self.log.spending}: "
            "verdicts and p are those of the looks and count them all"
        ]
        if self.log.earlier:
            lines.append(f"{len(self.log.earlier)} earlier looks were at trials that were since made anew")
        return lines


@dataclass(frozen=True)
class Extension:
    """The looks at a study of a fixed size that was extended once its trials had ended. The first had the whole of
    alpha; each later one has half the level of the one before, so that any number of them errs with less than twice
    alpha."""

    log: LookLog

    @classmethod
    def of(cls, records: StudyRecords) -> Self | None:
        """Of a study with such looks; None of others."""
        log = read_looks(records)
        return cls(log) if log is not None and log.spending == HALVING and log.looks else None

    @property
    def finished(self) -> bool:
        """Never: it may be extended again."""
        return False

    @property
    def unit(self) -> str:
        """What its looks count."""
        return self.log.unit

    def judged(self, context: tuple[tuple[str, str], ...], a: str, b: str, comparison: Comparison) -> Comparison:
        """The comparison with p counted over the looks at fewer replicates. What was decided then stays decided."""
        now = comparison.judgement
        if now is None:
            return comparison
        planned = comparison.evidence.gaps.planned
        history = self.log.history((context, frozenset((a, b))))
        before = [one for one in history if one is not None and one.pairs < planned]
        if not before:
            return comparison
        for one in before:
            if one.decision in SAME:
                verdict = (SAME if one.a == a else TURNED)[one.decision]
                return replace(comparison, judgement=replace(now, verdict=verdict, p_value=one.adjusted_p))
        factor = float(2 ** len(before))
        p = min(1.0, now.p_value * factor)
        same = None if now.equivalence_p is None else min(1.0, now.equivalence_p * factor)
        kept = (same if now.verdict == "equivalent" and same is not None else p) <= comparison.alpha
        verdict = now.verdict if kept else "undecided"
        return replace(comparison, judgement=replace(now, verdict=verdict, p_value=p, equivalence_p=same))

    @property
    def notes(self) -> list[str]:
        """What a reader of verdicts must know of the looks."""
        looks = self.log.looks
        at = ", ".join(str(look.replicates) for look in looks)
        bound = 2 - 0.5 ** len(looks)
        return [
            f"extended after its trials had ended (at {at} {self.unit}): this is look {len(looks) + 1}, whose p are "
            f"multiplied by {2 ** len(looks)}; over all looks a false verdict has a chance of at most {bound:g} alpha"
        ]
