"""The tables of a study as one table of a paper: text, Markdown and LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass

from contrasweep.markdown_text import markdown_text
from contrasweep.results.rendering import (
    ARROWS,
    latex_row,
    latex_table,
    latex_text,
    markdown_item,
    markdown_table,
    marked_as,
)
from contrasweep.results.table import Cell, Table, TableStyle
from contrasweep.text_table import text_table

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
        return [
            *map(self.style.names, self.tables[0].row_factors),
            *(title for _, title in self._columns()),
        ]

    def _columns(self) -> list[tuple[str, str]]:
        """(metric, title) of each column of cells."""
        name = self.style.names
        several = len(self.tables) > 1
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
                [
                    (table, table.cells.get((row, column)))
                    for table in self.tables
                    for column in table.columns
                ],
            )
            for row, labels in zip(first.rows, first.row_labels(), strict=True)
        ]
        if any(table.averages for table in self.tables):
            labels = first.bottom_labels
            rows.append(
                (
                    labels,
                    [
                        (table, table.averages.get(column, EMPTY))
                        for table in self.tables
                        for column in table.columns
                    ],
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
        body = [
            [*labels, *(table.marked_text(cell) for table, cell in cells)]
            for labels, cells in self.rows()
        ]
        verdicts = [line for table in self.tables for line in table.verdicts]
        blocks = [
            "\n".join(text_table([self.head, *body], rule=True, width=width)),
            "\n".join(self.legend),
        ]
        return (
            "\n\n".join(
                [
                    *([self.style.caption] if self.style.caption else []),
                    *blocks,
                    "\n".join(verdicts),
                ]
            )
            + "\n"
        )

    def to_markdown(self) -> str:
        """Return the table in Markdown, the arms that are not shown to be worse than the best in bold."""
        rows = [
            [*labels, *(self._bold(*entry) for entry in cells)] for labels, cells in self.rows()
        ]
        title = [f"**{markdown_text(self.style.caption)}**", ""] if self.style.caption else []
        legend = (markdown_item(marked_as(line, "**bold**")) for line in self.legend)
        return "\n".join([*title, *markdown_table([self.head, *rows]), "", *legend]) + "\n"

    def to_latex(self) -> str:
        """Return a table environment with booktabs: numbers in siunitx columns, their intervals beside them."""
        factors = len(self.tables[0].row_factors)
        columns = self._columns()
        metrics = list(dict.fromkeys(metric for metric, _ in columns))
        several = len(metrics) > 1
        head = []
        start = factors + 1
        name = self.style.names
        if several:
            spans = []
            rules = []
            for table in self.tables:
                wide = 2 * len(table.columns)
                spans.append(rf"\multicolumn{{{wide}}}{{c}}{{{latex_text(name(table.metric))}}}")
                rules.append(rf"\cmidrule(lr){{{start}-{start + wide - 1}}}")
                start += wide
            head = ["& " * factors + " & ".join(spans) + r" \\", " ".join(rules)]
        titles = [
            " ".join(map(name, column))
            if table.column_factors
            else ("" if several else name(table.metric))
            for table in self.tables
            for column in table.columns
        ]
        names = [latex_text(name(factor)) for factor in self.tables[0].row_factors]
        head.append(
            latex_row(
                [*names, *(rf"\multicolumn{{2}}{{c}}{{{latex_text(title)}}}" for title in titles)]
            )
        )
        body = [
            latex_row([*map(latex_text, labels), *(self._latex(*entry) for entry in cells)])
            for labels, cells in self.rows()
        ]
        legend = [marked_as(line, "bold:") for line in self.legend if line]
        sentences = ". ".join(line[0].upper() + line[1:] for line in legend)
        caption = self.style.caption or f"{self.tables[0].title}. {sentences}"
        notes = {note for table in self.tables for note in table.notes}
        marks = (
            line for line in legend if line in notes or line.startswith(("mean", "bold:", "↑", "↓"))
        )
        below = "; ".join(marks) if self.style.caption else ""
        layout = "l" * factors + "".join(
            rf"S[table-format={self._format(table)},detect-weight]@{{\,}}l" * len(table.columns)
            for table in self.tables
        )
        packages = r"\usepackage{booktabs} and \usepackage{siunitx}"
        return latex_table(
            caption,
            layout,
            head,
            body,
            packages=packages,
            label=self.style.label,
            wide=self.style.wide,
            below=below[:1].upper() + below[1:],
        )

    def _format(self, table: Table) -> str:
        """The table-format of siunitx: digits before and after the point of the widest mean."""
        means = [table.cell_parts(cell)[0] for cell in table.cells.values()] or ["0"]
        whole = max(len(mean.lstrip("-").split(".")[0]) for mean in means)
        after = max(len(mean.partition(".")[2]) for mean in means)
        return f"{'-' * any(mean.startswith('-') for mean in means)}{max(1, whole)}.{after}"

    def _bold(self, table: Table, cell: Cell | None) -> str:
        mean, rest = table.cell_parts(cell)
        bold = f"**{mean}**" if mean and cell is not None and cell.best else mean
        return " ".join(filter(None, [bold, rest])) + (
            ARROWS[cell.mark] if cell is not None else ""
        )

    def _latex(self, table: Table, cell: Cell | None) -> str:
        mean, rest = table.cell_parts(cell)
        if not mean:
            return rf"\multicolumn{{2}}{{c}}{{\textit{{{latex_text(rest)}}}}}"
        bold = r"\bfseries " if cell is not None and cell.best else ""
        arrow = latex_text(ARROWS[cell.mark].strip()) if cell is not None else ""
        return rf"{bold}{mean} & " + rf"{{\scriptsize {latex_text(rest)}{arrow}}}" * bool(
            rest or arrow
        )
