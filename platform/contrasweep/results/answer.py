"""What is said of comparisons below a table: the verdicts of the study's family, or exploratory numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from contrasweep.results.cells import Pair
from contrasweep.statistics.design import Contrast
from contrasweep.statistics.family import Question

MAX_SENTENCES = 12
"""More comparisons than this are counted, not printed; all of them are in the HTML report and `comparisons()`."""


@dataclass(frozen=True)
class Answer:
    """Comparisons of one kind with what is common to them: `pairs` in words, over `axes` that are averaged (none: in
    each cell). `question` is that of the study; None where the comparisons are exploratory."""

    pairs: tuple[Pair, ...]
    question: Question | None
    axes: tuple[str, ...] = ()

    @property
    def decisive(self) -> bool:
        """Whether they are the study's family and have verdicts."""
        return self.question is not None

    @property
    def heading(self) -> str:
        """What is compared, what it generalises to, and how it was tested; once for all sentences."""
        if not self.pairs:
            return ""
        first = self.pairs[0].comparison
        where = f" averaged over {', '.join(self.axes)}" if self.axes else ""
        if not self.axes and self.pairs[0].context:
            where = " in each cell"
        what = f"{'Verdicts' if self.decisive else 'Exploratory'}: {self.pairs[0].metric}{where}, {first.scope}"
        return f"{what} ({', '.join(self._basis())})"

    def _basis(self) -> list[str]:
        comparisons = [pair.comparison for pair in self.pairs]
        tests = list(dict.fromkeys(c.test for c in comparisons if c.difference)) or [
            comparisons[0].evidence.common.design.test(comparisons[0].family.level)
        ]
        over = list(dict.fromkeys(replicates_text(c.evidence.common) for c in comparisons))
        family = comparisons[0].family
        parts = [" or ".join(tests) + (f" over {over[0]}" if len(over) == 1 else "")]
        if not self.decisive:
            return [*parts, "p not adjusted, no verdicts"]
        if family.size > 1:
            parts.append(f"p and intervals by {family.correction} over {family.size} comparisons")
        return [*parts, f"alpha {family.alpha:g}"]

    def sentences(self, limit: int | None = MAX_SENTENCES) -> list[str]:
        """A sentence for each comparison; of very many the surest, decided ones first, and how many are left out."""
        shown = list(self.pairs)
        if limit is not None and len(shown) > limit:
            shown = sorted(shown, key=lambda pair: pair.comparison.p_value)[:limit]
            shown.sort(key=lambda pair: not pair.decided)
        varied = len({replicates_text(pair.comparison.evidence.common) for pair in self.pairs}) > 1
        lines = [
            pair.sentence + (f" ({replicates_text(pair.comparison.evidence.common)})" if varied else "")
            for pair in shown
        ]
        if left := len(self.pairs) - len(shown):
            decided = sum(pair.decided for pair in self.pairs)
            count = f" ({decided} of {len(self.pairs)} decided)" if self.decisive else ""
            lines.append(f"{left} more comparisons{count}: see the HTML report")
        return lines

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the comparisons, each note once."""
        notes = list(dict.fromkeys(note for pair in self.pairs for note in pair.comparison.notes))
        return notes if self.decisive else []


def replicates_text(contrast: Contrast) -> str:
    """The replicates of a contrast: `5 folds x 2 seeds`, `8 seeds`, `6 seeds x 200 items`."""
    design = contrast.design
    if design.folds:
        repeats = f" in {design.repeats} repeats" if design.repeats > 1 else ""
        seeds = f" x {design.seeds} seeds" if design.seeds > 1 else ""
        return _count(contrast.n, "fold") + repeats + seeds
    items = f" x {_count(design.items, 'item')}" if design.items else ""
    return _count(contrast.n, "seed") + items


def _count(n: int, name: str) -> str:
    return f"{n} {name}{'s' * (n != 1)}"


def pairs_between(pairs: Sequence[Pair], a: str, b: str) -> list[Pair]:
    """Those of the two arms, seen from `a`."""
    return [pair.seen_from(a) for pair in pairs if {pair.a, pair.b} == {a, b}]
