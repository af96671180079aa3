"""Tables and comparisons as LaTeX with booktabs, to be pasted into a paper."""

import math
from collections.abc import Sequence

from contrasweep.report.text import bottom_labels, comparison_rows
from contrasweep.results.answer import Versus
from contrasweep.results.table import Cell, Table, marked_as

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "∞": r"$\infty$",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "<": r"$<$",
    ">": r"$>$",
    "*": r"$*$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}
ARROWS = {"": "", "better": r"\,$\uparrow$", "worse": r"\,$\downarrow$"}


def escape(value: str) -> str:
    """Text for LaTeX; what pdflatex has no character for is written by its code point."""
    return "".join(SPECIAL.get(c, c if c.isascii() else f"[U+{ord(c):04X}]") for c in value)


def table_latex(table: Table) -> str:
    """A table environment, the legend as its caption; needs \\usepackage{booktabs}."""
    factors, entries = len(table.row_factors), len(table.columns)
    head = []
    if table.column_factors:
        over = escape(", ".join(table.factor_titles[1]))
        head = [
            rf"{'& ' * factors}\multicolumn{{{entries}}}{{c}}{{{over}}} \\",
            rf"\cmidrule(lr){{{factors + 1}-{factors + entries}}}",
        ]
    head.append(latex_row([escape(name) for name in (*table.factor_titles[0], *table.column_titles)]))
    rows = [
        [*map(escape, labels), *(_entry(table, table.cells.get((row, column))) for column in table.columns)]
        for row, labels in zip(table.rows, table.row_labels(), strict=True)
    ]
    if bottom := table.bottom():
        labels = [escape(label) for label in bottom_labels(table)]
        rows.append([*labels, *(_entry(table, cell) for cell in bottom)])
    return _environment(_caption(table), factors + entries, head, rows, rule=bool(bottom))


def versus_latex(versus: Versus) -> str:
    """A table environment with a row for each comparison; needs \\usepackage{booktabs}."""
    head, *rows = [[escape(entry) for entry in row] for row in comparison_rows(versus)]
    caption = escape(f"{versus.heading}, {versus.names(versus.a)} - {versus.names(versus.b)}")
    return _environment(caption, len(head), [latex_row(head)], rows)


def _environment(
    caption: str, columns: int, head: Sequence[str], rows: Sequence[Sequence[str]], *, rule: bool = False
) -> str:
    """`rule` sets the last row, of averages, apart."""
    body = list(map(latex_row, rows))
    if rule:
        body.insert(-1, r"\midrule")
    return table_environment(caption, "l" * columns, head, body)


def table_environment(
    caption: str,
    layout: str,
    head: Sequence[str],
    body: Sequence[str],
    *,
    packages: str = r"\usepackage{booktabs}",
    label: str = "",
) -> str:
    """A table of these lines; `caption` is LaTeX already, `layout` the argument of tabular."""
    lines = [
        f"% needs {packages}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *([rf"\label{{{label}}}"] if label else []),
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_row(entries: Sequence[str]) -> str:
    """A line of a tabular."""
    return " & ".join(entries) + r" \\"


def _caption(table: Table) -> str:
    answer = table.answer
    said = [f"{answer.heading}: " + "; ".join(answer.sentences())] if answer.pairs and answer.decisive else []
    lines = [marked_as(line, "bold:") for line in table.legend]
    return (
        ". ".join(escape(line) for line in [table.heading, *(line[0].upper() + line[1:] for line in lines), *said])
        + "."
    )


def _entry(table: Table, cell: Cell | None) -> str:
    plain, rest = table.cell_parts(cell)
    if cell is None or cell.low is None or math.isinf(cell.low):
        return rf"\textit{{{escape(table.cell_text(cell))}}}"
    mean = rf"\textbf{{{plain}}}" if cell.best else plain
    return mean + rf"{{\scriptsize\ {escape(rest)}}}" * bool(rest) + ARROWS[cell.mark]
