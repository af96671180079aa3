"""The table as LaTeX with booktabs, to be pasted into a paper."""

import math
from typing import TYPE_CHECKING

from contrasweep.report import text

if TYPE_CHECKING:
    from contrasweep.report.table import Cell, Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "∞": r"$\infty$",
    "<": r"$<$",
    ">": r"$>$",
    "*": r"$*$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}
ARROWS = {"": "", "better": r"\,$\uparrow$", "worse": r"\,$\downarrow$"}


def escape(value: str) -> str:
    """Text for LaTeX; what pdflatex has no character for is written by its code point."""
    return "".join(SPECIAL.get(c, c if c.isascii() else f"[U+{ord(c):04X}]") for c in value)


def to_latex(table: "Table") -> str:
    factors, entries = len(table.row_factors), len(table.columns)
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_caption(table)}}}",
        rf"\begin{{tabular}}{{{'l' * (factors + entries)}}}",
        r"\toprule",
    ]
    if table.column_factors:
        over = escape(", ".join(table.column_factors))
        lines += [
            rf"{'& ' * factors}\multicolumn{{{entries}}}{{c}}{{{over}}} \\",
            rf"\cmidrule(lr){{{factors + 1}-{factors + entries}}}",
        ]
    heads = [escape(text.column_title(c)) for c in table.columns] if table.column_factors else [escape(table.metric)]
    lines += [" & ".join([*(escape(f) for f in table.row_factors), *heads]) + r" \\", r"\midrule"]
    for row, above in zip(table.rows, [(), *table.rows], strict=False):
        cells = [_entry(table.cells.get((row, column)), table.decimals, table.spread) for column in table.columns]
        labels = ["" if same else escape(name) for name, same in zip(row, text.repeated(row, above), strict=True)]
        lines.append(" & ".join([*labels, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _caption(table: "Table") -> str:
    says = [line.replace("* best", "bold: best") for line in table.legend]
    return (
        ". ".join(escape(line) for line in [text.heading(table), *(line[0].upper() + line[1:] for line in says)]) + "."
    )


def _entry(cell: "Cell | None", decimals: int, spread: bool) -> str:
    if cell is None or cell.mean is None or cell.low is None or cell.high is None or math.isinf(cell.low):
        return rf"\textit{{{escape(text.cell_text(cell, decimals))}}}"
    mean = text.number(cell.mean, decimals)
    mean = rf"\textbf{{{mean}}}" if cell.best else mean
    rest = text.cell_text(cell, decimals, spread).removeprefix(text.number(cell.mean, decimals))
    return mean + rf"{{\scriptsize\ {escape(rest.lstrip())}}}" * bool(rest) + ARROWS[cell.mark]
