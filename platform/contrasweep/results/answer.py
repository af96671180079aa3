"""What is said of comparisons: the verdicts of the study's family or exploratory numbers, of a table or of two arms."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from contrasweep.errors import plural
from contrasweep.markdown_text import markdown_text
from contrasweep.results.rendering import (
    NONE,
    DisplayNames,
    markdown_item,
    markdown_table,
    render_fragment,
    wrapped,
)
from contrasweep.rows import row_beside
from contrasweep.statistics.comparison import Comparison, in_words, p_text
from contrasweep.statistics.design import Contrast
from contrasweep.statistics.family import Question
from contrasweep.statistics.unpaired import UnpairedContrast
from contrasweep.storage.interim_log import Context
from contrasweep.text_table import text_table

MAX_SENTENCES = 12
"""More comparisons than this are counted, not printed; all of them are in the HTML report and `comparisons()`."""


@dataclass(frozen=True)
class Pair:
    """One comparison of a table: `a` against `b`, two labels of the compared factor, such as two arms.

    `context` is its place in the table: the label of each factor that is fixed, as (factor, label); empty where it is
    over all cells. `metric` is what is compared.
    """

    context: Context
    a: str
    b: str
    comparison: Comparison
    metric: str

    @property
    def has_verdict(self) -> bool:
        """Whether the comparison is one that the study decides; else it is exploratory."""
        return self.comparison.judgement is not None

    @property
    def decided(self) -> bool:
        """Whether the comparison has a verdict other than `undecided`."""
        return self.comparison.decided

    @property
    def ahead(self) -> str:
        """The side, `a` or `b`, that has the better mean."""
        better = (self.comparison.difference > 0) == (self.comparison.mode == "max")
        return self.a if better else self.b

    def place(self, names: DisplayNames) -> str:
        """Return the comparison's place in the table as the start of a sentence, `batch_size 32: `, by display `names`.

        "" for a comparison over all cells.
        """
        where = ", ".join(f"{names(factor)} {names(label)}" for factor, label in self.context)
        return f"{where}: " if where else ""

    def sentence(self, names: DisplayNames = NONE) -> str:
        """Return the comparison in words, with its place in the table."""
        return self.place(names) + self.comparison.sentence(names(self.a), names(self.b))

    def numbers(self) -> list[str]:
        """Return difference, interval, p, replicates and verdict as text, with as many digits as the verdict needs.

        A dash stands for an interval or a p that is not known. For example `["+0.025", "[+0.002, +0.049]", "0.031",
        "5", "better"]`.
        """
        comparison = self.comparison
        # The span is `+0.025 [+0.002, +0.049]`, or the difference alone.
        difference, _, interval = comparison.span().partition(" ")
        p = p_text(comparison.p_value, comparison.alpha).removeprefix("= ")
        # An earlier look may have decided otherwise, which is told behind the verdict.
        verdict = comparison.verdict
        before = comparison.before
        if before is not None:
            earlier = in_words(before.verdict, before.relevance(comparison.family.margin))
            verdict += f"; {earlier} at look {before.look}"
        replicates = str(comparison.n)
        if comparison.evidence.unpaired:
            replicates += f" ({plural(comparison.evidence.pairs, 'pair')})"
        # A p of 1 without an interval says only that nothing was tested, so that a dash stands in its place.
        if not interval:
            interval = "one replicate" if comparison.n == 1 else "–"
            if comparison.p_value == 1:
                p = "–"
        return [difference, interval, p, replicates, verdict]

    def to_dict(self) -> dict[str, object]:
        """Return the comparison for JSON: its numbers by name, its place in the table, its sides and its metric."""
        place = {"context": dict(self.context), "a": self.a, "b": self.b, "metric": self.metric}
        return place | self.comparison.to_dict()

    def seen_from(self, a: str) -> "Pair":
        """Return the same comparison with the side `a` as the first one; `a` is the label of one of its two sides."""
        if self.a == a:
            return self
        return replace(self, a=self.b, b=self.a, comparison=self.comparison.reversed())


@dataclass(frozen=True)
class Answer:
    """Comparisons of one kind, with the sentences that hold for all of them.

    `question` is the question of the study that they answer ("overall" or "cells"); None where they are exploratory,
    and so have no verdicts. `axes` are the axes over whose values each comparison averages; without axes each is of one
    cell. `names` are the display names that the sentences have.
    """

    pairs: tuple[Pair, ...]
    question: Question | None
    axes: tuple[str, ...]
    names: DisplayNames = NONE

    @property
    def decisive(self) -> bool:
        """Whether these comparisons answer the study's question and so have verdicts."""
        return self.question is not None

    @property
    def heading(self) -> str:
        """Heading of the sentences: what is compared, what the verdicts hold for, and by which test."""
        first = self.pairs[0]
        where = ""
        if self.axes:
            where = f" averaged over {', '.join(map(self.names, self.axes))}"
        elif first.context:
            where = " in each cell"
        kind = "Verdicts" if self.decisive else "Exploratory"
        # All comparisons of an answer have the same scope, as they are of one design.
        scope = first.comparison.scope
        return f"{kind}: {self.names(first.metric)}{where}, {scope} ({', '.join(self._basis())})"

    def _basis(self) -> list[str]:
        """Return what stands in brackets behind the heading: tests, replicates, correction and alpha."""
        # What is said holds for the comparisons with a verdict; for all where none has one, or all are exploratory.
        comparisons = [
            pair.comparison for pair in self.pairs if pair.has_verdict or not self.decisive
        ]
        comparisons = comparisons or [pair.comparison for pair in self.pairs]
        family = comparisons[0].family
        # Each test once. A difference of 0 needs no test; where all are 0, the design says which test it would be.
        tests = dict.fromkeys(
            comparison.test for comparison in comparisons if comparison.difference
        )
        basis = " or ".join(tests) or comparisons[0].evidence.common.design.test(family.level)
        # Where comparisons have different replicates, each sentence names its own.
        replicates = {replicates_text(comparison.evidence.common) for comparison in comparisons}
        if len(replicates) == 1:
            basis += f" over {replicates.pop()}"
        parts = [basis]
        if not self.decisive:
            return [*parts, "p not adjusted, no verdicts"]
        if family.size > 1:
            parts.append(
                f"p and intervals by {family.correction} over {plural(family.size, 'comparison')}"
            )
        return [*parts, f"alpha {family.alpha:g}"]

    def sentences(self) -> list[str]:
        """Return a sentence for each comparison.

        Of more than `MAX_SENTENCES` comparisons only the `leading` ones have a sentence; a last one counts the rest.
        """
        few = len(self.pairs) <= MAX_SENTENCES
        shown_pairs = list(self.pairs) if few else self.leading(MAX_SENTENCES)
        # Replicates that all comparisons have in common are in the heading.
        varied = len({replicates_text(pair.comparison.evidence.common) for pair in self.pairs}) > 1
        lines = []
        for pair in shown_pairs:
            line = pair.sentence(self.names)
            if self.decisive and not pair.has_verdict:
                line += " (exploratory)"
            if varied:
                replicates = replicates_text(
                    pair.comparison.evidence.common, pair.comparison.turned
                )
                line += f" ({replicates})"
            lines.append(line)
        left_out = len(self.pairs) - len(shown_pairs)
        if left_out:
            decided = sum(pair.decided for pair in self.pairs)
            count = f" ({decided} of {len(self.pairs)} decided)" if self.decisive else ""
            lines.append(f"{plural(left_out, 'more comparison')}{count}: see the HTML report")
        return lines

    @property
    def notes(self) -> list[str]:
        """Notes on the comparisons that a reader needs, each once; none on exploratory ones."""
        notes = list(dict.fromkeys(note for pair in self.pairs for note in pair.comparison.notes))
        return notes if self.decisive else []

    def leading(self, most: int) -> list[Pair]:
        """Return at most `most` comparisons, of which the decided ones stand first.

        Comparisons with the leader, the value that is ahead most often, are chosen before all others: that every method
        beats the worst one tells little. Among those with the leader the smallest p is chosen first, and so among the
        others.
        """
        ahead = Counter(pair.ahead for pair in self.pairs)
        leader = max(ahead, key=lambda name: ahead[name], default="")
        # False sorts before True: those with the leader before the others, and at last those decided before the rest.
        chosen = sorted(
            self.pairs, key=lambda pair: (leader not in (pair.a, pair.b), pair.comparison.p_value)
        )
        return sorted(chosen[:most], key=lambda pair: not pair.decided)

    @property
    def told(self) -> list[str]:
        """The heading, a sentence for each comparison, and the notes, as lines of text; empty without comparisons."""
        if not self.pairs:
            return []
        return [f"{self.heading}:", *self.sentences(), *(f"Note: {note}." for note in self.notes)]

    def lines(self, width: int) -> list[str]:
        """Return lines of at most `width` columns: the heading, an indented sentence for each comparison, the notes."""
        if not self.pairs:
            return []
        lines = [wrapped(f"{self.heading}:", width)]
        lines += [textwrap.indent(wrapped(line, width - 2), "  ") for line in self.sentences()]
        return [*lines, *(wrapped(f"Note: {note}.", width) for note in self.notes)]

    def rows(self) -> list[list[str]]:
        """Return a head and a row for each comparison: place, values, difference, interval, p, replicates, verdict."""
        factors = [self.names(factor) for factor, _ in self.pairs[0].context]
        rows = [[*factors, "a", "b", "difference a - b", *_head(self.pairs)]]
        for pair in self.pairs:
            labels = [label for _, label in pair.context]
            rows.append([*map(self.names, [*labels, pair.a, pair.b]), *pair.numbers()])
        return rows


def _head(pairs: Sequence[Pair]) -> list[str]:
    """Return the titles of the last four columns of a table of these `pairs`: interval, p, replicates and verdict.

    The title of p names the correction, and that of replicates says what they are: `p by Holm`, `seeds`.
    """
    correction = next((pair.comparison.family.correction for pair in pairs if pair.has_verdict), "")
    units = sorted({f"{_unit(pair.comparison.evidence.common)}s" for pair in pairs})
    return ["interval", f"p by {correction}" if correction else "p", " or ".join(units), "verdict"]


def _unit(contrast: Contrast) -> str:
    """Return what a replicate of a contrast is: `fold`, `seed`, `run`, `item`, `group` or `task`."""
    if contrast.design.folds:
        return "fold"
    return "run" if isinstance(contrast, UnpairedContrast) else contrast.design.unit


def replicates_text(contrast: Contrast, turned: bool = False) -> str:
    """Return what the replicates of a contrast are: `5 folds x 2 seeds`, `8 seeds`, `6 seeds x 200 items`.

    For runs without a partner it is `8 and 5 runs`: those of a, then those of b. `turned` says that the contrast is of
    b against a.
    """
    design = contrast.design
    if design.folds:
        repeats = f" in {design.repeats} repeats" if design.repeats > 1 else ""
        seeds = f" x {design.seeds} seeds" if design.seeds > 1 else ""
        return plural(contrast.n, _unit(contrast)) + repeats + seeds
    if isinstance(contrast, UnpairedContrast):
        first = len(contrast.a)
        second = len(contrast.b)
        if turned:
            first, second = second, first
        return f"{first} and {plural(second, _unit(contrast))}"
    items = f" x {plural(design.items, 'item')}" if design.items else ""
    return plural(contrast.n, _unit(contrast)) + items


@dataclass(frozen=True, repr=False)
class Versus:
    """Arm `a` against arm `b` in all comparisons of the two.

    The `free` axes are those that the user has not fixed to one value. `overall` is the comparison over all values of
    the free axes; `cells` has one comparison for each combination of them. Comparisons that belong to the study's
    question have verdicts, and p-values that are adjusted over its family; the others are exploratory.
    """

    title: str
    a: str
    b: str
    metric: str
    overall: Pair
    cells: tuple[Pair, ...]
    free: tuple[str, ...]
    names: DisplayNames = NONE  # what every format shows in place of declared names
    declared: tuple[str, ...] = ()  # sentences on what was declared anew after trials had ended

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every comparison, `overall` first."""
        return (self.overall, *self.cells)

    @property
    def answers(self) -> list[Answer]:
        """The comparisons as answers: first `overall` alone, then those of the `cells`, if there are any."""
        parts = [Answer((self.overall,), self._question(self.overall), self.free, self.names)]
        if self.cells:
            return [*parts, Answer(self.cells, self._question(self.cells[0]), (), self.names)]
        return parts

    def _question(self, pair: Pair) -> Question | None:
        """Return "cells" for a comparison in one cell, "overall" for that over all cells; None for exploratory ones."""
        if pair.comparison.judgement is None:
            return None
        return "cells" if pair.context else "overall"

    def to_frame(self) -> pd.DataFrame:
        """Return the comparisons as a frame.

        Returns:
            One row a comparison, `overall` first: the axes (None for `overall`), a, b, metric, and all that
            `Comparison.to_dict` has.
        """
        rows = []
        for pair in self.pairs:
            place = dict.fromkeys(self.factors) | dict(pair.context)
            sides = {"a": pair.a, "b": pair.b, "metric": pair.metric}
            rows.append(row_beside(place, sides | pair.comparison.to_dict()))
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, object]:
        """Return the comparisons as JSON has them: a, b, metric, `overall`, and the list `cells`."""
        rows = [pair.to_dict() for pair in self.pairs]
        return {
            "a": self.a,
            "b": self.b,
            "metric": self.metric,
            "overall": rows[0],
            "cells": rows[1:],
        }

    def __repr__(self) -> str:
        cells = f"; and {plural(len(self.cells), 'cell')}" if self.cells else ""
        return f"Versus({self.overall.sentence()}{cells})"

    def _repr_html_(self) -> str:
        return render_fragment("versus.html", versus=self)

    @property
    def heading(self) -> str:
        """The study and the metric, as they stand over the comparisons."""
        return f"{self.title}: {self.names(self.metric)}"

    @property
    def factors(self) -> list[str]:
        """The axes that tell the `cells` apart, which are the first columns of the table; none without cells."""
        return [factor for factor, _ in self.cells[0].context] if self.cells else []

    @property
    def notes(self) -> list[str]:
        """Sentences below the comparisons, each once: what was declared anew after trials had ended, and notes."""
        notes = list(self.declared)
        for answer in self.answers:
            notes += answer.notes
        return list(dict.fromkeys(notes))

    def rows(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """Return a head and a row for each of `pairs`: place, difference, interval, p, replicates and verdict."""
        rows = [[*map(self.names, self.factors), "difference", *_head(pairs)]]
        for pair in pairs:
            where = dict(pair.context)
            place = [
                self.names(where[factor]) if factor in where else "all" for factor in self.factors
            ]
            rows.append([*place, *pair.numbers()])
        return rows

    def to_text(self, width: int = 100) -> str:
        """Return a text: the comparison over all free axes as a sentence, and those of the cells as a table.

        Args:
            width: The columns of the terminal.

        Returns:
            The text.
        """
        lines = [self.heading, "", *self.answers[0].lines(width)]
        if self.cells:
            heading = wrapped(f"{self.answers[1].heading}:", width)
            lines += ["", heading, *text_table(self.rows(self.cells), rule=True, width=width)]
        lines += [wrapped(f"Note: {note}.", width) for note in self.declared]
        return "\n".join(lines).rstrip() + "\n"

    def __str__(self) -> str:
        return self.to_text()

    def to_markdown(self) -> str:
        """Return Markdown for a README or an issue: `overall` as a sentence, the comparisons of cells as a table."""
        answer = self.answers[0]
        lines = [
            f"**{markdown_text(self.heading)}**",
            "",
            *markdown_table(self.rows(self.pairs)),
            "",
        ]
        lines += [f"{markdown_text(answer.heading)}:", "", *map(markdown_item, answer.sentences())]
        return "\n".join([*lines, *(markdown_item(f"Note: {note}.") for note in self.notes)]) + "\n"
