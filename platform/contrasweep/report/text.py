"""Tables and comparisons for a terminal."""

import textwrap
from collections.abc import Sequence

from contrasweep.results.answer import Answer, Pair, Versus
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.table import ARROWS, Cell, Table
from contrasweep.statistics.comparison import p_text
from contrasweep.text_table import text_table


def comparison_rows(versus: Versus, *, overall: bool = True) -> list[list[str]]:
    """A head and a row for each comparison of two arms: where, and what came of it. The one over everything first, if
    `overall`."""
    pairs = versus.pairs if overall else versus.cells
    names = versus.names
    rows = [[*map(names, versus.factors), "difference", *_head(pairs)]]
    for pair in pairs:
        where = dict(pair.context)
        rows.append([*(names(where[f]) if f in where else "all" for f in versus.factors), *_numbers(pair)])
    return rows


def pair_rows(pairs: Sequence[Pair], names: DisplayNames) -> list[list[str]]:
    """A head and a row for each comparison of a table: where, which two, and what came of it."""
    head = [*(names(factor) for factor, _ in pairs[0].context), "a", "b", "difference a - b", *_head(pairs)]
    rows = ([*(value for _, value in p.context), p.a, p.b] for p in pairs)
    return [head, *([*map(names, row), *_numbers(p)] for row, p in zip(rows, pairs, strict=True))]


def _head(pairs: Sequence[Pair]) -> list[str]:
    correction = next((p.comparison.family.correction for p in pairs if p.comparison.judgement is not None), "")
    return ["interval", f"p by {correction}" if correction else "p", "n", "verdict"]


def _numbers(pair: Pair) -> list[str]:
    """Of one analysis: the difference, its interval and its p, each to as many digits as show what the verdict says."""
    comparison = pair.comparison
    difference, _, interval = comparison.span().partition(" ")
    p = p_text(comparison.p_value, comparison.alpha).removeprefix("= ")
    before = comparison.before
    return [
        difference,
        interval or ("one replicate" if comparison.n == 1 else "–"),
        p if interval or comparison.p_value < 1 else "–",
        f"{comparison.n}" + f" ({comparison.evidence.pairs} pairs)" * bool(comparison.evidence.unpaired),
        comparison.verdict + ("" if before is None else f"; {before.verdict} at look {before.look}"),
    ]


def table_text(table: Table, width: int) -> str:
    """The table in blocks of as many columns as fit, then its legend and verdicts."""
    blocks, rest = [], list(range(len(table.column_titles)))
    while rest:
        fitting = len(rest)
        while fitting > 1 and _width(table_rows(table, rest[:fitting])) > width:
            fitting -= 1
        blocks.append("\n".join(text_table(table_rows(table, rest[:fitting]), rule=True, width=width)))
        rest = rest[fitting:]
    parts = [
        wrapped(table.heading, width),
        "\n\n".join(blocks),
        "\n".join(wrapped(line, width) for line in table.legend),
        "\n".join(answer_lines(table.answer, width)),
    ]
    return "\n\n".join(part for part in parts if part)


def versus_text(versus: Versus, width: int) -> str:
    """The comparison over everything as a sentence, those of the cells as rows."""
    lines = [versus.heading, "", *answer_lines(versus.answers[0], width)]
    if versus.cells:
        heading = wrapped(f"{versus.answers[1].heading}:", width)
        lines += ["", heading, *text_table(comparison_rows(versus, overall=False), rule=True, width=width)]
    return "\n".join(lines).rstrip() + "\n"


def answer_lines(answer: Answer, width: int) -> list[str]:
    """What is said of comparisons: once what they have in common, then a sentence each."""
    if not answer.pairs:
        return []
    lines = [wrapped(f"{answer.heading}:", width)]
    lines += ["  " + wrapped(line, width - 2).replace("\n", "\n  ") for line in answer.sentences()]
    return [*lines, *(wrapped(f"Note: {note}.", width) for note in answer.notes)]


def table_rows(table: Table, columns: Sequence[int] | None = None) -> list[list[str]]:
    """Head and body of the table as text, of all columns or of those of these numbers."""
    chosen = range(len(table.column_titles)) if columns is None else columns
    head = [*table.factor_titles[0], *(table.column_titles[i] for i in chosen)]
    body = [
        [*labels, *(marked_text(table, table.cells.get((row, table.columns[i]))) for i in chosen)]
        for row, labels in table.row_titles.items()
    ]
    if bottom := table.bottom():
        body.append([*bottom_labels(table), *(marked_text(table, bottom[i]) for i in chosen)])
    return [head, *body]


def bottom_labels(table: Table) -> list[str]:
    """The labels of the row of averages."""
    return ["average", *[""] * (len(table.row_factors) - 1)]


def marked_text(table: Table, cell: Cell | None) -> str:
    """What stands in a cell, with its marks."""
    return table.cell_text(cell) + ("" if cell is None else " *" * cell.best + ARROWS[cell.mark])


def wrapped(line: str, width: int) -> str:
    """`line` over several lines; numbers stay with what they belong to."""
    kept = line.replace(" = ", "\u00a0=\u00a0").replace(" [", "\u00a0[")
    filled = textwrap.fill(kept, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return filled.replace("\u00a0", " ")


def _width(rows: Sequence[Sequence[str]]) -> int:
    return max(map(len, text_table(rows, rule=True)))
