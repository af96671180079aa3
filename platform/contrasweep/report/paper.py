"""A table as a paper prints it: several metrics side by side, chosen digits, percent, display names, a caption."""

from collections.abc import Sequence
from dataclasses import dataclass

from contrasweep.markdown_text import markdown_text
from contrasweep.report.latex import escape, latex_row, table_environment
from contrasweep.report.markdown import list_item, table_lines
from contrasweep.results.table import ARROWS, Cell, Table, TableStyle, marked_as
from contrasweep.text_table import text_table

EMPTY = Cell(None, None, None, 0, {}, ())
"""What stands in the row of averages for a metric that the study does not decide."""


@dataclass(frozen=True)
class PaperTable:
    """The tables of one study for several metrics, of the same rows and columns, in one."""

    tables: Sequence[Table]

    @property
    def style(self) -> TableStyle:
        """How it is drawn."""
        return self.tables[0].style

    @property
    def head(self) -> list[str]:
        """What stands over the columns: the row factors, then each metric's columns."""
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
        """Labels and cells of each row; last, where there is one, the row of averages."""
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
        """What the marks mean and what is missing: each line once, then the answer of each metric."""
        return list(dict.fromkeys(line for table in self.tables for line in table.legend))

    def to_text(self, width: int) -> str:
        """For a terminal."""
        body = [[*labels, *(self._marked(*entry) for entry in cells)] for labels, cells in self.rows()]
        said = [line for table in self.tables for line in table.verdicts]
        blocks = ["\n".join(text_table([self.head, *body], rule=True, width=width)), "\n".join(self.legend)]
        return "\n\n".join([*([self.style.caption] if self.style.caption else []), *blocks, "\n".join(said)]) + "\n"

    def to_markdown(self) -> str:
        """With the arms that are not worse than the best in bold."""
        rows = [[*labels, *(self._bold(*entry) for entry in cells)] for labels, cells in self.rows()]
        title = [f"**{markdown_text(self.style.caption)}**", ""] if self.style.caption else []
        legend = (list_item(marked_as(line, "**bold**")) for line in self.legend)
        return "\n".join([*title, *table_lines([self.head, *rows]), "", *legend]) + "\n"

    def to_latex(self) -> str:
        """A table environment with booktabs; each cell is a number in a siunitx column and its interval beside it."""
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
        legend = (marked_as(line, "bold:") for line in self.legend if line)
        said = ". ".join(line[0].upper() + line[1:] for line in legend)
        caption = self.style.caption or f"{self.tables[0].title}. {said}"
        layout = "l" * factors + "".join(
            rf"S[table-format={self._format(table)},detect-weight]@{{\,}}l" * len(table.columns)
            for table in self.tables
        )
        packages = r"\usepackage{booktabs} and \usepackage{siunitx}"
        return table_environment(escape(caption), layout, head, body, packages=packages, label=self.style.label)

    def _format(self, table: Table) -> str:
        """siunitx's table-format: digits before and after the point of the widest mean."""
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
