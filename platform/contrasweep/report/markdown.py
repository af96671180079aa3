"""Tables and comparisons as Markdown, for a README, an issue, a note."""

from collections.abc import Sequence

from contrasweep.report.comparisons import comparison_rows
from contrasweep.report.text import table_rows
from contrasweep.results.cells import ARROWS
from contrasweep.results.table import Table
from contrasweep.results.versus import Versus


def table_markdown(table: Table) -> str:
    """The table, its legend and its verdicts; the best of each comparison is bold."""
    rows = table_rows(table)
    for row, entries in zip(table.rows, rows[1:], strict=True):
        for i, column in enumerate(table.columns, start=len(table.row_factors)):
            cell = table.cells.get((row, column))
            if cell is not None and cell.best:
                entries[i] = f"**{table.cell_text(cell)}**{ARROWS[cell.mark]}"
    lines = [f"**{table.heading}**", "", *_lines(rows), ""]
    lines += [f"- {line.replace('* best', '**bold** best')}" for line in table.legend]
    if table.verdicts:
        lines += ["", *(f"- {line}" for line in table.verdicts)]
    return "\n".join(lines) + "\n"


def versus_markdown(versus: Versus) -> str:
    """The comparisons as rows, then the one over everything as a sentence."""
    lines = [f"**{versus.title}: {versus.metric}**", "", *_lines(comparison_rows(versus)), "", versus.overall.sentence]
    return "\n".join([*lines, *(f"Note: {note}." for note in versus.notes)]) + "\n"


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table whose first row is the head."""
    head, *body = [[entry.replace("|", "\\|") for entry in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]
