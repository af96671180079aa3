"""Tables and comparisons as text for a terminal, Markdown and LaTeX, plain or as a paper prints them."""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from contrasweep.markdown_text import markdown_text
from contrasweep.results.answer import Answer, Pair, Versus
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.table import ARROWS, Cell, Table, TableStyle, marked_as
from contrasweep.statistics.comparison import in_words, p_text
from contrasweep.text_table import text_table


def comparison_rows(versus: Versus, *, overall: bool = True) -> list[list[str]]:
    """Return a head and a row for each comparison of two arms: where, and what came of it.

    The one over everything comes first, if `overall`.
    """
    pairs = versus.pairs if overall else versus.cells
    names = versus.names
    rows = [[*map(names, versus.factors), "difference", *_head(pairs)]]
    for pair in pairs:
        where = dict(pair.context)
        rows.append([*(names(where[f]) if f in where else "all" for f in versus.factors), *_numbers(pair)])
    return rows


def pair_rows(pairs: Sequence[Pair], names: DisplayNames) -> list[list[str]]:
    """Return a head and a row for each comparison of a table: where, which two, and what came of it."""
    head = [*(names(factor) for factor, _ in pairs[0].context), "a", "b", "difference a - b", *_head(pairs)]
    rows = ([*(value for _, value in p.context), p.a, p.b] for p in pairs)
    return [head, *([*map(names, row), *_numbers(p)] for row, p in zip(rows, pairs, strict=True))]


def _head(pairs: Sequence[Pair]) -> list[str]:
    correction = next((p.comparison.family.correction for p in pairs if p.comparison.judgement is not None), "")
    return ["interval", f"p by {correction}" if correction else "p", "n", "verdict"]


def _numbers(pair: Pair) -> list[str]:
    """Return difference, interval and p of one analysis, with as many digits as the verdict needs."""
    comparison = pair.comparison
    difference, _, interval = comparison.span().partition(" ")
    p = p_text(comparison.p_value, comparison.alpha).removeprefix("= ")
    verdict = comparison.verdict
    if (before := comparison.before) is not None:
        earlier = in_words(before.verdict, before.relevance(comparison.family.margin))
        verdict += f"; {earlier} at look {before.look}"
    return [
        difference,
        interval or ("one replicate" if comparison.n == 1 else "–"),
        p if interval or comparison.p_value < 1 else "–",
        f"{comparison.n}" + f" ({comparison.evidence.pairs} pairs)" * bool(comparison.evidence.unpaired),
        verdict,
    ]


def table_text(table: Table, width: int) -> str:
    """Return the table in blocks of as many columns as fit, then its legend and verdicts."""
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
    """Return the comparison over everything as a sentence, and those of the cells as rows."""
    lines = [versus.heading, "", *answer_lines(versus.answers[0], width)]
    if versus.cells:
        heading = wrapped(f"{versus.answers[1].heading}:", width)
        lines += ["", heading, *text_table(comparison_rows(versus, overall=False), rule=True, width=width)]
    lines += [wrapped(f"Note: {note}.", width) for note in versus.declared]
    return "\n".join(lines).rstrip() + "\n"


def answer_lines(answer: Answer, width: int) -> list[str]:
    """Return lines on comparisons: first what they have in common, then a sentence for each."""
    if not answer.pairs:
        return []
    lines = [wrapped(f"{answer.heading}:", width)]
    lines += ["  " + wrapped(line, width - 2).replace("\n", "\n  ") for line in answer.sentences()]
    return [*lines, *(wrapped(f"Note: {note}.", width) for note in answer.notes)]


def table_rows(table: Table, columns: Sequence[int] | None = None) -> list[list[str]]:
    """Return head and body of the table as text, of all columns or of those with these numbers."""
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
    """Return the text of a cell, with its marks."""
    return table.cell_text(cell) + ("" if cell is None else " *" * cell.best + ARROWS[cell.mark])


def wrapped(line: str, width: int) -> str:
    """Return `line` over several lines; a number stays on the line of the word that it belongs to."""
    kept = line.replace(" = ", "\u00a0=\u00a0").replace(" [", "\u00a0[")
    filled = textwrap.fill(kept, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return filled.replace("\u00a0", " ")


def _width(rows: Sequence[Sequence[str]]) -> int:
    return max(map(len, text_table(rows, rule=True)))


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
LATEX_ARROWS = {"": "", "better": r"\,$\uparrow$", "worse": r"\,$\downarrow$"}


def escape(value: str) -> str:
    """Text for LaTeX; what pdflatex has no character for is written by its code point."""
    text = "".join(SPECIAL.get(c, c if c.isascii() else f"[U+{ord(c):04X}]") for c in value)
    return re.sub(r" x (?=\d)", r" $\\times$ ", text)  # 5 folds x 2 seeds


def table_latex(table: Table) -> str:
    """Return a table environment, the legend as its caption; it needs `booktabs`."""
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
    """Return a table environment with a row for each comparison; it needs `booktabs`."""
    head, *rows = [[escape(entry) for entry in row] for row in comparison_rows(versus)]
    heading = f"{versus.heading}, {versus.names(versus.a)} - {versus.names(versus.b)}"
    caption = ". ".join(map(escape, (heading, *versus.declared)))
    return _environment(caption, len(head), [latex_row(head)], rows)


def _environment(
    caption: str, columns: int, head: Sequence[str], rows: Sequence[Sequence[str]], *, rule: bool = False
) -> str:
    """Return a LaTeX table; `rule` draws a line before the last row, of averages."""
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
    wide: bool = False,
    below: str = "",
) -> str:
    """Return a table of these lines; `caption` and `below` are LaTeX already, `layout` the argument of tabular."""
    environment = "table*" if wide else "table"
    lines = [
        f"% needs {packages}",
        rf"\begin{{{environment}}}",
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
        *([rf"\par\smallskip{{\footnotesize {below}\par}}"] if below else []),
        rf"\end{{{environment}}}",
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
    return mean + rf"{{\scriptsize\ {escape(rest)}}}" * bool(rest) + LATEX_ARROWS[cell.mark]


EMPTY = Cell(None, None, None, 0, {}, ())
"""What stands in the row of averages for a metric that the study does not decide."""


@dataclass(frozen=True)
class PaperTable:
    """The tables of one study for several metrics, of the same rows and columns, as one table of a paper."""

    tables: Sequence[Table]

    @property
    def style(self) -> TableStyle:
        """Return how the table is drawn."""
        return self.tables[0].style

    @property
    def head(self) -> list[str]:
        """Return the titles of the columns: the row factors, then each metric's columns."""
        return [*map(self.style.names, self.tables[0].row_factors), *(title for _, title in self._columns())]

    def _columns(self) -> list[tuple[str, str]]:
        """(metric, title) of each column of cells."""
        name, several = self.style.names, len(self.tables) > 1
        columns = []
        for table in self.tables:
            for column in table.columns:
                words = " ".join(map(name, column)) if table.column_factors else name(table.metric)
                long = several and table.column_factors
                columns.append((table.metric, f"{name(table.metric)} {words}" if long else words))
        return columns

    def rows(self) -> list[tuple[list[str], list[tuple[Table, Cell | None]]]]:
        """Return labels and cells of each row; the last one, where there is one, is the row of averages."""
        first = self.tables[0]
        rows = [
            (
                list(labels),
                [(table, table.cells.get((row, column))) for table in self.tables for column in table.columns],
            )
            for row, labels in zip(first.rows, first.row_labels(), strict=True)
        ]
        if any(table.averages for table in self.tables):
            labels = ["average", *[""] * (len(first.row_factors) - 1)]
            rows.append(
                (
                    labels,
                    [(table, table.averages.get(column, EMPTY)) for table in self.tables for column in table.columns],
                )
            )
        return rows

    @property
    def legend(self) -> list[str]:
        """Return the meaning of the marks and what is missing, each line once; what metrics lack, by metric."""
        differ = len({tuple(table.gaps) for table in self.tables}) > 1
        lines = (
            f"{self.style.names(table.metric)}: {line}" if differ and line in table.gaps else line
            for table in self.tables
            for line in table.legend
        )
        return list(dict.fromkeys(lines))

    def to_text(self, width: int) -> str:
        """Return the table for a terminal."""
        body = [[*labels, *(self._marked(*entry) for entry in cells)] for labels, cells in self.rows()]
        said = [line for table in self.tables for line in table.verdicts]
        blocks = ["\n".join(text_table([self.head, *body], rule=True, width=width)), "\n".join(self.legend)]
        return "\n\n".join([*([self.style.caption] if self.style.caption else []), *blocks, "\n".join(said)]) + "\n"

    def to_markdown(self) -> str:
        """Return the table in Markdown, the arms that are not shown to be worse than the best in bold."""
        rows = [[*labels, *(self._bold(*entry) for entry in cells)] for labels, cells in self.rows()]
        title = [f"**{markdown_text(self.style.caption)}**", ""] if self.style.caption else []
        legend = (list_item(marked_as(line, "**bold**")) for line in self.legend)
        return "\n".join([*title, *table_lines([self.head, *rows]), "", *legend]) + "\n"

    def to_latex(self) -> str:
        """Return a table environment with booktabs: numbers in siunitx columns, their intervals beside them."""
        factors, columns = len(self.tables[0].row_factors), self._columns()
        metrics = list(dict.fromkeys(metric for metric, _ in columns))
        several, head, start = len(metrics) > 1, [], factors + 1
        name = self.style.names
        if several:
            spans, rules = [], []
            for table in self.tables:
                wide = 2 * len(table.columns)
                spans.append(rf"\multicolumn{{{wide}}}{{c}}{{{escape(name(table.metric))}}}")
                rules.append(rf"\cmidrule(lr){{{start}-{start + wide - 1}}}")
                start += wide
            head = ["& " * factors + " & ".join(spans) + r" \\", " ".join(rules)]
        titles = [
            " ".join(map(name, column)) if table.column_factors else ("" if several else name(table.metric))
            for table in self.tables
            for column in table.columns
        ]
        names = [escape(name(factor)) for factor in self.tables[0].row_factors]
        head.append(latex_row([*names, *(rf"\multicolumn{{2}}{{c}}{{{escape(title)}}}" for title in titles)]))
        body = [
            latex_row([*map(escape, labels), *(self._latex(*entry) for entry in cells)])
            for labels, cells in self.rows()
        ]
        legend = [marked_as(line, "bold:") for line in self.legend if line]
        said = ". ".join(line[0].upper() + line[1:] for line in legend)
        caption = self.style.caption or f"{self.tables[0].title}. {said}"
        notes = {note for table in self.tables for note in table.notes}
        marks = (line for line in legend if line in notes or line.startswith(("mean", "bold:", "↑", "↓")))
        below = "; ".join(marks) if self.style.caption else ""
        layout = "l" * factors + "".join(
            rf"S[table-format={self._format(table)},detect-weight]@{{\,}}l" * len(table.columns)
            for table in self.tables
        )
        packages = r"\usepackage{booktabs} and \usepackage{siunitx}"
        return table_environment(
            escape(caption),
            layout,
            head,
            body,
            packages=packages,
            label=self.style.label,
            wide=self.style.wide,
            below=escape(below[:1].upper() + below[1:]),
        )

    def _format(self, table: Table) -> str:
        """The table-format of siunitx: digits before and after the point of the widest mean."""
        means = [table.cell_parts(cell)[0] for cell in table.cells.values()] or ["0"]
        whole = max(len(mean.lstrip("-").split(".")[0]) for mean in means)
        after = max(len(mean.partition(".")[2]) for mean in means)
        return f"{'-' * any(mean.startswith('-') for mean in means)}{max(1, whole)}.{after}"

    def _marked(self, table: Table, cell: Cell | None) -> str:
        return table.cell_text(cell) + (" *" * cell.best + ARROWS[cell.mark] if cell is not None else "")

    def _bold(self, table: Table, cell: Cell | None) -> str:
        mean, rest = table.cell_parts(cell)
        bold = f"**{mean}**" if mean and cell is not None and cell.best else mean
        return " ".join(filter(None, [bold, rest])) + (ARROWS[cell.mark] if cell is not None else "")

    def _latex(self, table: Table, cell: Cell | None) -> str:
        mean, rest = table.cell_parts(cell)
        if not mean:
            return rf"\multicolumn{{2}}{{c}}{{\textit{{{escape(rest)}}}}}"
        bold = r"\bfseries " if cell is not None and cell.best else ""
        arrow = escape(ARROWS[cell.mark].strip()) if cell is not None else ""
        return rf"{bold}{mean} & " + rf"{{\scriptsize {escape(rest)}{arrow}}}" * bool(rest or arrow)
