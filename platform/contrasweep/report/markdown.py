"""Tables and comparisons as Markdown, for a README, an issue, a note."""

from collections.abc import Sequence

from contrasweep.markdown_text import markdown_text
from contrasweep.report.text import comparison_rows, table_rows
from contrasweep.results.answer import Versus
from contrasweep.results.table import ARROWS, Table, marked_as


def table_markdown(table: Table) -> str:
    """The table, its legend and its verdicts; the best of each comparison is bold."""
    rows = table_rows(table)
    shown = [[table.cells.get((row, column)) for column in table.columns] for row in table.rows]
    for cells, entries in zip([*shown, *([table.bottom()] if table.averages else [])], rows[1:], strict=True):
        for i, cell in enumerate(cells, start=len(table.row_factors)):
            if cell is not None and cell.best:
                entries[i] = f"**{table.cell_text(cell)}**{ARROWS[cell.mark]}"
    lines = [f"**{markdown_text(table.heading)}**", "", *table_lines(rows), ""]
    lines += [list_item(marked_as(line, "**bold**")) for line in table.legend]
    if table.verdicts:
        lines += ["", markdown_text(table.verdicts[0]), "", *map(list_item, table.verdicts[1:])]
    return "\n".join(lines) + "\n"


def versus_markdown(versus: Versus) -> str:
    """The comparisons as rows, then the one over everything as a sentence."""
    answer = versus.answers[0]
    lines = [f"**{markdown_text(versus.heading)}**", "", *table_lines(comparison_rows(versus)), ""]
    lines += [f"{markdown_text(answer.heading)}:", "", *map(list_item, answer.sentences())]
    return "\n".join([*lines, *(list_item(f"Note: {note}.") for note in versus.notes)]) + "\n"


def list_item(text: str) -> str:
    """An entry of a list."""
    return f"- {markdown_text(text)}"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table whose first row is the head."""
    head, *body = [[markdown_text(entry) for entry in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]
