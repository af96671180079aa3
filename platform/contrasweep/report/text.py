"""Tables and comparisons for a terminal."""

import textwrap
from collections.abc import Sequence

from contrasweep.report.comparisons import comparison_rows
from contrasweep.results.answer import Answer
from contrasweep.results.cells import ARROWS, Cell
from contrasweep.results.table import Table
from contrasweep.results.versus import Versus
from contrasweep.text_table import text_table


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
    lines = [f"{versus.title}: {versus.metric}", "", *answer_lines(versus.answers[0], width)]
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
    head = [*table.row_factors, *(table.column_titles[i] for i in chosen)]
    body = [
        [*row, *(marked_text(table, table.cells.get((row, table.columns[i]))) for i in chosen)] for row in table.rows
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
