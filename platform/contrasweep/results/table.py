"""Tables as values: cells with their replicates, and the comparisons between cells.

The table of a study: means with intervals, the best marked, what is missing shown as missing, verdicts below.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, check_known
from contrasweep.markdown_text import markdown_text
from contrasweep.results.answer import Answer, Pair
from contrasweep.results.rendering import (
    ARROWS,
    LATEX_ARROWS,
    NONE,
    NOT_WORSE,
    DisplayNames,
    latex_row,
    latex_table,
    latex_text,
    markdown_item,
    markdown_table,
    marked_as,
    render_fragment,
    wrapped,
)
from contrasweep.rows import FrameRow, Mode, row_beside
from contrasweep.statistics.comparison import decimals_of
from contrasweep.statistics.design import Design
from contrasweep.statistics.evidence import COPIES_HINT
from contrasweep.statistics.family import Question
from contrasweep.storage.record import COUNTING, Status
from contrasweep.text_table import WIDTH, text_table

Key = tuple[str, ...]
MOST_DIGITS = 8
CellKind = Literal["mean-ci", "mean-std", "mean-se", "mean"]
BEHIND: Mapping[str, str] = {
    "mean-std": "standard deviation of single trials",
    "mean-se": "standard error of the mean as if trials were independent",
}
"""By kind of cell, what the number behind ± is."""


@dataclass(frozen=True)
class TableStyle:
    """How a table is drawn.

    A table with `percent`, `digits`, a `caption`, a `label` or `wide` is one for a paper.

    Args:
        cell: What stands behind a mean: its interval (`mean-ci`), the standard deviation of single trials (`mean-std`),
            the standard error of their mean as if they were independent (`mean-se`), or nothing (`mean`).
        digits: Digits after the point, 0 to 8. By default two digits of the typical half-width of an interval are
            shown.
        percent: Show 0.912 as 91.2.
        caption: The text above the table. With a caption LaTeX has no verdicts below the table.
        label: The label for LaTeX's references.
        wide: In LaTeX a table over both columns of the page, `table*`.
        names: Display names of arms, axes, metrics and their values, beside the study's `labels`.

    Raises:
        SpecError: For another number of digits, and another kind of cell.

    Example:
        >>> import contrasweep as cs
        >>> style = cs.TableStyle(percent=True, digits=1, caption="Accuracy on the test parts", label="tab:main")
        >>> style.of_paper
        True
    """

    digits: int | None = None
    percent: bool = False
    caption: str = ""
    label: str = ""
    names: DisplayNames = NONE
    cell: CellKind = "mean-ci"
    wide: bool = False

    def __post_init__(self) -> None:
        check_known(self.cell, "cells", get_args(CellKind), "there is no such cell", place="--cell")
        if self.digits is not None and not 0 <= self.digits <= MOST_DIGITS:
            raise SpecError(f"digits are 0 to {MOST_DIGITS}", place="--digits", value=self.digits)

    @property
    def of_paper(self) -> bool:
        """Whether any option is set that only tables for papers have."""
        return bool(
            self.caption or self.label or self.percent or self.digits is not None or self.wide
        )


PLAIN = TableStyle()
"""The default style."""


@dataclass(frozen=True)
class Replicate:
    """One trial of a cell: its value if it is done, and the address of its MLflow run if there is one."""

    trial_id: str
    fold: Any
    seed: Any
    status: str
    value: float | None
    url: str | None = None


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        mean: The mean of the finished trials, in units of the metric; None where none has finished.
        low: The lower end of the mean's interval.
        high: The upper end of the mean's interval.
        n: How many trials have finished.
        statuses: The number of trials by status.
        replicates: The trials.
        interval: How the interval was made, as the legend says it; `NO_INTERVAL` where the mean has none.
        min: The smallest value of a trial.
        max: The largest value of a trial.
        best: Whether the arm is not shown to be worse than the best.
        mark: "better" or "worse" than the reference, "worse" than the best, or empty.
        over: What the mean is over: `5 folds x 2 seeds`.
        other_code: How many trials ran other code than the newest; where any did, the cell has a †.
        why_no_interval: Why the mean has no interval, where it has none.
        collapsed: How many finished trials say that their embeddings collapsed.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    statuses: Mapping[str, int]
    replicates: tuple[Replicate, ...]
    interval: str = ""
    min: float | None = None
    max: float | None = None
    best: bool = False
    mark: str = ""
    over: str = ""
    other_code: int = 0
    why_no_interval: str = "one replicate"
    collapsed: int = 0

    @property
    def planned(self) -> int:
        """The number of the cell's trials of any status."""
        return sum(self.statuses.values())

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the finished trials; None for fewer than two."""
        values = [replicate.value for replicate in self.replicates if replicate.value is not None]
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def parts(self, decimals: int, style: TableStyle) -> tuple[str, str]:
        """Return the mean and what stands behind it, such as its interval, as text: `0.912` and `[0.897, 0.930]`.

        Both have so many `decimals`. The style's `cell` may put `± 0.016` or nothing in place of the interval. Without
        a mean the first text is "", and the second counts the trials by status.
        """
        # Where all trials have one status no count is shown: `pending`, but `2 pending, 1 failed`.
        if self.mean is None or self.low is None or self.high is None:
            missing = _missing(self)
            if len(missing) == 1:
                return "", next(iter(missing))
            return "", ", ".join(f"{n} {status}" for status, n in missing.items())

        def shown(value: float) -> str:
            """Return a value as text, in percent if the style says so."""
            return number(100 * value if style.percent else value, decimals)

        # Behind the mean: its interval (none where all trials are equal), or its deviation or standard error.
        rest = []
        deviation = self.deviation
        if style.cell == "mean-ci" and math.isinf(self.low):
            rest.append(f"[{self.why_no_interval}]")
        elif style.cell == "mean-ci" and self.low != self.high:
            rest.append(f"[{shown(self.low)}, {shown(self.high)}]")
        elif style.cell == "mean-std" and deviation is not None:
            rest.append(f"± {shown(deviation)}")
        elif style.cell == "mean-se" and deviation is not None:
            rest.append(f"± {shown(deviation / math.sqrt(self.n))}")
        # Then how many of the planned trials have finished, and the mark of older code.
        if self.n < self.planned:
            rest.append(f"{self.n}/{self.planned}")
        if self.other_code:
            rest.append("†")
        return shown(self.mean), " ".join(rest)


def _missing(cell: Cell) -> dict[str, int]:
    """Return status -> number of the cell's trials that are in no mean."""
    return {status: n for status, n in cell.statuses.items() if status not in COUNTING}


def number(value: float, decimals: int) -> str:
    """Return a number as text with so many `decimals`, as a cell shows it; an infinite one is ∞ or -∞."""
    if math.isfinite(value):
        return f"{value:.{decimals}f}"
    return "∞" if value > 0 else "-∞"


CONSTANT = "constant"
"""How an interval without width is made: of replicates that all have one value."""
NO_INTERVAL = "none"
"""The method of a cell without an interval."""
MAX_NAMED = 8
"""The most cells that the legend names because they have other replicates than most cells."""


EMPTY = Cell(None, None, None, 0, {}, ())
"""The cell in the row of averages for a metric that the study does not decide."""


@dataclass(frozen=True)
class Table:
    """The table of a study: cells by (row, column), in the order of the study, and every comparison between them.

    `print` and notebooks show it with its legend and its verdicts.

    Attributes:
        metric: The metric of the cells.
        mode: Whether larger or smaller values are better.
        alpha: The chance of any false verdict.
        design: How the cells are replicated.
        row_factors: The factors in the rows: the arm or axes.
        column_factors: The factors in the columns.
        rows: The labels of each row.
        columns: The labels of each column.
        cells: Each `Cell` by its row and column.
        pairs: The comparisons between cells.
        compared: The factors whose values are compared: the arm, or without it those in the columns.
        pooled: The factors in neither rows nor columns: a replicate's value is its mean over them.
        reference: The arm that all others are compared with; None where every two are compared.
        title: The text above the table.
        notes: Sentences for the legend that a reader must know.
        decisive: Whether `pairs` are the comparisons that the study decides.
        study_answer: The comparisons that the study decides, where these are others than `pairs`.
        averages: The cells of a last row with the means over all rows, by column; empty: there is no such row.
        style: How the table is drawn.

    Example:
        >>> table = results.table(rows="arm")
        >>> print(table.to_markdown())
        >>> table.comparisons()[["a", "b", "difference", "p_value", "verdict"]]
    """

    metric: str
    mode: Mode
    alpha: float
    design: Design
    row_factors: Key
    column_factors: Key
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: Mapping[tuple[Key, Key], Cell]
    pairs: tuple[Pair, ...]
    compared: Key
    pooled: Key
    reference: str | None
    title: str = ""
    notes: tuple[str, ...] = ()
    decisive: bool = False
    study_answer: Answer | None = None
    averages: Mapping[Key, Cell] = field(default_factory=dict)
    style: TableStyle = PLAIN

    @cached_property
    def decimals(self) -> int:
        """The digits after the point: those of the style, or enough for two digits of a typical half-width."""
        if self.style.digits is not None:
            return self.style.digits
        half_widths = []
        means = []
        for cell in self.cells.values():
            if cell.low is not None and cell.high is not None:
                half_widths.append((cell.high - cell.low) / 2)
            if cell.mean is not None:
                means.append(abs(cell.mean))
        known = [half for half in half_widths if math.isfinite(half) and half > 0]
        typical = float(np.median(known)) if known else 0.0
        # At most six, and more only where the means are so small that six would show them as 0.
        fitting = min(decimals_of(typical), max(6, decimals_of(max(means, default=0.0))))
        return max(0, fitting - 2) if self.style.percent else fitting

    @property
    def heading(self) -> str:
        """The line above the table: its title, the metric, and which of its values are better."""
        better = "larger" if self.mode == "max" else "smaller"
        title = f"{self.title}: " if self.title else ""
        return f"{title}{self.metric_title} ({better} is better)"

    @property
    def metric_title(self) -> str:
        """The metric's display name."""
        return self.style.names(self.metric)

    @property
    def factor_titles(self) -> tuple[list[str], list[str]]:
        """The display names of the factors in rows, and of those in columns."""
        names = self.style.names
        return list(map(names, self.row_factors)), list(map(names, self.column_factors))

    @cached_property
    def row_titles(self) -> dict[Key, Key]:
        """Row -> display names of its labels; the labels themselves where two rows would be shown alike."""
        return self._titled(self.rows)

    @cached_property
    def _column_labels(self) -> dict[Key, Key]:
        """Column -> display names of its labels, as in `row_titles`."""
        return self._titled([*self.columns, *self.averages])

    def _titled(self, keys: Iterable[Key]) -> dict[Key, Key]:
        """Return each key, a tuple of labels, with the display names of its labels.

        Where two keys would be shown alike, all keep their labels.
        """
        shown = {key: tuple(map(self.style.names, key)) for key in keys}
        return shown if len(set(shown.values())) == len(shown) else {key: key for key in shown}

    @property
    def column_titles(self) -> list[str]:
        """The title of each column of cells: its labels, or the metric where no factor is in the columns."""
        shown = self._column_labels
        if self.column_factors:
            return [" ".join(shown[column]) for column in self.columns]
        return [self.metric_title]

    @property
    def _all_cells(self) -> list[Cell]:
        """The cells of the table, then those of the row of averages."""
        return [*self.cells.values(), *self.averages.values()]

    @cached_property
    def legend(self) -> list[str]:
        """Sentences on what the marks and brackets of cells mean, and on what the table leaves out."""
        lines = [*self._about_means(), *self._about_marks()]
        # What is averaged, what is missing, and what the comparisons are.
        if self.pooled:
            lines.append(
                f"replicates are means over {', '.join(map(self.style.names, self.pooled))}"
            )
        lines += self.gaps
        # The verdicts below this table are those of another layout, which answers the study's question.
        if self.study_answer is not None and not self.decisive and self.pairs:
            if self.study_answer.question == "overall":
                lines.append("single cells are exploratory: the study's question is overall")
            else:
                lines.append("cells of this table are exploratory: the study's question is cells")
        return [*lines, *self.notes]

    def _about_means(self) -> list[str]:
        """Return sentences on what a cell shows: a mean, what stands behind it, and over which replicates they are."""
        cells = self._all_cells
        methods = list(dict.fromkeys(cell.interval for cell in cells if cell.interval))
        lines = []
        if self.style.percent:
            # Below a caption of the user's there are no verdicts.
            verdicts_below = self.answer.pairs and not self.style.caption
            lines.append("in percent; the verdicts are not" if verdicts_below else "in percent")
        if methods == [NO_INTERVAL]:
            reasons = dict.fromkeys(cell.why_no_interval for cell in cells if cell.interval)
            lines.append(f"{' or '.join(reasons)} a cell, so there are no intervals")
        elif methods:
            behind = ""
            if self.style.cell == "mean-ci":
                used = ", ".join(method for method in methods if method != NO_INTERVAL)
                behind = f" [{100 * (1 - self.alpha):g} % interval: {used}]"
            elif self.style.cell in BEHIND:
                behind = f" ± {BEHIND[self.style.cell]}"
            lines.append(f"mean{behind} over {self._replicates}")
        # A rate of 0 or 1 is no sign of copies.
        if any(cell.interval == CONSTANT and cell.mean not in (0, 1) for cell in cells):
            lines.append(f"{CONSTANT}: all replicates of a cell have one value: {COPIES_HINT}")
        return lines

    def _about_marks(self) -> list[str]:
        """Return sentences on what the marks of cells say, or on why no cell has a mark."""
        names = self.style.names
        lines = []
        compared = " and ".join(map(names, self.compared))
        if any(cell.best for cell in self._all_cells):
            lines.append(f"{NOT_WORSE} {compared}")
        # Verdicts mark the cells of the table that answers the study's question, and those of a row of averages.
        elif self.pairs and (self.decisive or self.averages):
            lines.append(f"nothing is marked: no {compared} is shown to be worse than another")
        marks = {cell.mark for cell in self._all_cells}
        arrows = [f"{ARROWS[mark].strip()} {mark}" for mark in ("better", "worse") if mark in marks]
        if arrows:
            other = "the best" if self.reference is None else names(self.reference)
            lines.append(f"{', '.join(arrows)} than {other}")
        return lines

    @property
    def gaps(self) -> list[str]:
        """A line that counts, by status, the trials that are in no mean; empty where there are none.

        If a cell has only some of its trials, the line begins with what such a cell shows: `4/5: finished/planned`.
        """
        # The row of averages has the same trials, and is not counted again.
        missing: Counter[str] = Counter()
        for cell in self.cells.values():
            missing.update(_missing(cell))
        if not missing:
            return []
        example = ""
        for cell in self._all_cells:
            if 0 < cell.n < cell.planned and not example:
                example = f"{cell.n}/{cell.planned}: finished/planned; "
        counts = ", ".join(f"{n} {status}" for status, n in missing.items())
        return [f"{example}not in the table: {counts}"]

    @property
    def _replicates(self) -> str:
        """What the means are over: `5 folds`, or where cells differ `5 folds, but 4 folds (ocl 32)`.

        The replicates of most cells come first, then those of other cells with the names of these cells.
        """
        # Replicates, such as `5 folds`, -> names of the cells whose means are over these.
        cells_of: dict[str, list[str]] = {}
        for (row, column), cell in self.cells.items():
            if cell.over:
                titles = (*self.row_titles[row], *self._column_labels[column])
                cells_of.setdefault(cell.over, []).append(" ".join(titles))
        # Those of most cells stand first, and other cells are named if they are few.
        usual, *others = sorted(cells_of, key=lambda replicates: -len(cells_of[replicates]))
        if sum(len(cells_of[replicates]) for replicates in others) > MAX_NAMED:
            return f"{usual}; other cells have another number, which their list of trials shows"
        parts = [usual]
        for replicates in others:
            parts.append(f"{replicates} ({', '.join(cells_of[replicates])})")
        return ", but ".join(parts)

    @cached_property
    def answer(self) -> Answer:
        """The comparisons that stand below the table.

        They are those that the study decides, with their verdicts, also where the table has another layout. If the
        study decides nothing on the metric of the table, they are the table's own comparisons, without verdicts.
        """
        names = self.style.names
        if self.study_answer is not None:
            return replace(self.study_answer, names=names)
        question: Question | None = None
        if self.decisive:  # either all pairs have a context, their cell, or none has
            question = "cells" if self.pairs and self.pairs[0].context else "overall"
        return Answer(self.pairs, question, axes=self.pooled, names=names)

    def bottom(self) -> list[Cell | None]:
        """Return the cells of the row of averages, one for each column; empty where the table has no such row.

        An entry is None where a column has no average.
        """
        return [self.averages.get(column) for column in self.columns] if self.averages else []

    def cell_parts(self, cell: Cell | None) -> tuple[str, str]:
        """Return the two parts of a cell's text, without its marks: the mean, and what stands behind it.

        Args:
            cell: A cell of the table; None for one that is not planned.

        Returns:
            The mean, "" where the cell has none, and the rest, such as its interval, or why there is no mean.
        """
        return ("", "not planned") if cell is None else cell.parts(self.decimals, self.style)

    def cell_text(self, cell: Cell | None) -> str:
        """Return both parts of a cell (`cell_parts`) as one text.

        Args:
            cell: A cell of the table; None for one that is not planned.

        Returns:
            The parts with a space between them.
        """
        return " ".join(filter(None, self.cell_parts(cell)))

    def number(self, value: float) -> str:
        """Return a single trial's value as text, with one digit more than the means.

        Args:
            value: The value, in units of the metric.

        Returns:
            The text.
        """
        return number(100 * value if self.style.percent else value, self.decimals + 1)

    def to_html(self) -> str:
        """Return an HTML fragment with its own style; each cell opens on its replicates and their runs."""
        return render_fragment("table.html", table=self)

    @property
    def bottom_labels(self) -> list[str]:
        """The labels of the row of averages: `average`, then "" for each further factor in the rows."""
        return ["average", *[""] * (len(self.row_factors) - 1)]

    def marked_text(self, cell: Cell | None) -> str:
        """Return the text of a cell, with its marks.

        Args:
            cell: A cell of the table; None for one that is not planned.

        Returns:
            The text.
        """
        if cell is None:
            return self.cell_text(cell)
        star = " *" if cell.best else ""
        return f"{self.cell_text(cell)}{star}{ARROWS[cell.mark]}"

    def to_text(self, width: int = WIDTH) -> str:
        """Return the text for a terminal; a wider table is split by columns. Legend and verdicts stand below.

        Args:
            width: The columns of the terminal.

        Returns:
            The text.
        """
        return text_of([self], width)

    def to_markdown(self) -> str:
        """Return Markdown for a README or an issue: the best in bold, legend and verdicts below."""
        return markdown_of([self])

    def to_latex(self) -> str:
        """Return a LaTeX table environment, legend and verdicts below it; it needs `booktabs`."""
        return latex_of([self])

    def to_rows(self) -> list[FrameRow]:
        """Return the cells for JSON, row by row: what `to_frame` has, with `factors` and `statuses` as mappings.

        A combination of row and column that is not planned has no cell.
        """
        factors = (*self.row_factors, *self.column_factors)
        rows = []
        for row, column in itertools.product(self.rows, self.columns):
            cell = self.cells.get((row, column))
            if cell is None:
                continue
            rows.append(
                {
                    "factors": dict(zip(factors, (*row, *column), strict=True)),
                    "metric": self.metric,
                    **{name: getattr(cell, name) for name in SHOWN_NUMBERS},
                    "statuses": {status.value: cell.statuses.get(status, 0) for status in Status},
                    "interval": cell.interval,
                    "best": cell.best,
                    "mark": cell.mark,
                    "other_code": cell.other_code,
                    "trial_ids": [replicate.trial_id for replicate in cell.replicates],
                }
            )
        return rows

    def to_frame(self) -> pd.DataFrame:
        """Return the cells as numbers.

        Returns:
            One row a cell: the factors, metric, mean, low, high, min, max, n (how many trials have finished), planned
            (how many there are), the number of trials of each status, interval (its method), best, mark, other_code,
            trial_ids, and the notes of the table. An axis with the name of another column is called `axis.NAME`.
        """
        rows = []
        for entries in self.to_rows():
            factors = entries.pop("factors")
            # The numbers by status become columns in their place.
            row: FrameRow = {}
            for name, value in entries.items():
                row |= value if name == "statuses" else {name: value}
            row |= {"trial_ids": " ".join(entries["trial_ids"]), "notes": "; ".join(self.notes)}
            rows.append(row_beside(factors, row))
        frame = pd.DataFrame(rows)
        return frame.astype(
            {name: "float64" for name in ("mean", "low", "high", "min", "max") if name in frame}
        )

    def comparisons(self) -> pd.DataFrame:
        """Return the comparisons of the table.

        Returns:
            One row a comparison: its context, a, b, and all that `Comparison.to_dict` has.
        """
        rows = []
        for pair in self.pairs:
            numbers = {"a": pair.a, "b": pair.b} | pair.comparison.to_dict()
            rows.append(row_beside(dict(pair.context), numbers))
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


SHOWN_NUMBERS = ("mean", "low", "high", "min", "max", "n", "planned")
"""The attributes of `Cell` that `Table.to_rows` and `Table.to_frame` have, behind its place."""


class _Column(NamedTuple):
    """A column of cells where several tables stand side by side.

    It has the table that the cells are of, the `key` of the column in that table, and the title.
    """

    table: Table
    key: Key
    title: str


def text_of(tables: Sequence[Table], width: int = WIDTH) -> str:
    """Return the tables of several metrics side by side as text, with legends and verdicts below.

    Args:
        tables: The tables of one study, with the same rows.
        width: The columns of the terminal; wider tables are split by columns.

    Returns:
        The text.
    """

    def rows(columns: Sequence[_Column]) -> list[list[str]]:
        """Return the head and all rows of a table of these columns."""
        return [_head(tables, columns), *_rows(tables, columns, Table.marked_text)]

    # A block has as many columns as fit, at least one; the next columns stand in a block below it.
    blocks = []
    rest = _columns(tables)
    while rest:
        # One column more is tried as long as they fit: there may be thousands.
        fitting = 1
        while fitting < len(rest):
            _, line_below_head, *_ = text_table(rows(rest[: fitting + 1]), rule=True)
            if len(line_below_head) > width:
                break
            fitting += 1
        blocks.append("\n".join(text_table(rows(rest[:fitting]), rule=True, width=width)))
        rest = rest[fitting:]
    parts = [
        wrapped(_heading(tables), width),
        *blocks,
        "\n".join(wrapped(line, width) for line in legend_of(tables)),
        *("\n".join(table.answer.lines(width)) for table in tables),
    ]
    return "\n\n".join(filter(None, parts))


def markdown_of(tables: Sequence[Table]) -> str:
    """Return the tables of several metrics, with the same rows, side by side in Markdown; the best are bold."""

    def shown(table: Table, cell: Cell | None) -> str:
        """Return a cell's text with its marks. A NUL before and behind the best stands for the `**` of bold text."""
        if cell is None or not cell.best:
            return table.marked_text(cell)
        return f"\0{table.cell_text(cell)}\0{ARROWS[cell.mark]}"

    # Asterisks of names are escaped. Until then a NUL, which no text has, stands for the asterisks of the best.
    columns = _columns(tables)
    rows = [_head(tables, columns), *_rows(tables, columns, shown)]
    lines = [
        f"**{markdown_text(_heading(tables))}**",
        "",
        *markdown_table(rows),
        "",
        *(markdown_item(marked_as(line, "\0bold\0")) for line in legend_of(tables)),
    ]
    for table in tables:
        if table.answer.pairs:
            heading, *sentences = table.answer.told
            lines += ["", markdown_text(heading), "", *map(markdown_item, sentences)]
    return "\n".join(lines).replace("\0", "**") + "\n"


def latex_of(tables: Sequence[Table]) -> str:
    """Return the tables of several metrics as one table environment of LaTeX.

    Means stand aligned to the right, as all have as many digits after the point, and their intervals beside them. The
    legend stands below the table and, where the style has no caption, so do the verdicts.
    """
    first_table = tables[0]
    columns = _columns(tables)
    # A line for each row. The averages are the last one, and a rule stands above them.
    body = list(map(latex_row, _rows(tables, columns, _latex_entry, latex_text)))
    if any(table.averages for table in tables):
        body.insert(-1, r"\midrule")

    # Below the table its legend, and the verdicts unless a caption says that they stand elsewhere. What text marks
    # by an asterisk is bold here, and the legend says so.
    legend = (marked_as(line, "bold:") for line in legend_of(tables))
    below = [line[0].upper() + line[1:] for line in legend]
    if not first_table.style.caption:
        for table in tables:
            below += table.answer.told if table.answer.decisive else []
    return latex_table(
        _heading(tables),
        "l" * len(first_table.row_factors) + r"r@{\,}l" * len(columns),
        _latex_head(tables),
        body,
        label=first_table.style.label,
        wide=first_table.style.wide,
        below=below,
    )


def _latex_head(tables: Sequence[Table]) -> list[str]:
    """Return the lines of LaTeX above the cells: titles that span several columns, if any, then those of columns."""
    # Several tables have their metrics over their columns; a single one has its column factors, if any.
    first_table = tables[0]
    spans = []
    if len(tables) > 1:
        spans = [(table.metric_title, len(table.columns)) for table in tables]
    elif first_table.column_factors:
        spans = [(", ".join(first_table.factor_titles[1]), len(first_table.columns))]
    head = []
    factors = len(first_table.row_factors)
    if spans:
        entries = []
        rules = []
        start = factors + 1
        for title, count in spans:
            # A column of cells is two of LaTeX, the mean and what stands behind it.
            end = start + 2 * count - 1
            entries.append(_latex_span(latex_text(title), 2 * count))
            rules.append(rf"\cmidrule(lr){{{start}-{end}}}")
            start = end + 1
        head = [f"{'& ' * factors}{latex_row(entries)}", " ".join(rules)]

    # A table without column factors has the metric as the title of its one column. With several tables the metric
    # stands in the line above, and is not repeated.
    titles = list(map(latex_text, first_table.factor_titles[0]))
    for table in tables:
        metric_above = len(tables) > 1 and not table.column_factors
        for title in table.column_titles:
            titles.append(_latex_span("" if metric_above else latex_text(title)))
    return [*head, latex_row(titles)]


def legend_of(tables: Sequence[Table]) -> list[str]:
    """Return the lines of the legends of all tables, each line once.

    A line on missing trials begins with the table's metric, where the tables differ in these lines.
    """
    differ = len({tuple(table.gaps) for table in tables}) > 1
    lines = []
    for table in tables:
        for line in table.legend:
            name = f"{table.metric_title}: " if differ and line in table.gaps else ""
            lines.append(f"{name}{line}")
    return list(dict.fromkeys(lines))


def _heading(tables: Sequence[Table]) -> str:
    """Return the text above the tables: the caption of the style, or without one the heading of each table.

    The study's title stands in the first heading only.
    """
    further = (replace(table, title="").heading for table in tables[1:])
    return tables[0].style.caption or ", ".join([tables[0].heading, *further])


def _columns(tables: Sequence[Table]) -> list[_Column]:
    """Return the columns of cells of all tables, the first table's first.

    With several tables the title of a column begins with the display name of its table's metric.
    """
    columns = []
    for table in tables:
        metric = f"{table.metric_title} " if len(tables) > 1 and table.column_factors else ""
        for key, title in zip(table.columns, table.column_titles, strict=True):
            columns.append(_Column(table, key, metric + title))
    return columns


def _rows(
    tables: Sequence[Table],
    columns: Sequence[_Column],
    shown: Callable[[Table, Cell | None], str],
    escape: Callable[[str], str] = str,
) -> list[list[str]]:
    """Return the rows of `tables` that stand side by side, as text: a row's labels, then an entry for each column.

    The row of averages is the last one, where any table has one. There a table without averages has empty entries.
    `shown` returns the text of an entry, and `escape` is applied to each label.
    """
    first_table = tables[0]
    rows = []
    for row, titles in first_table.row_titles.items():
        entries = [shown(c.table, c.table.cells.get((row, c.key))) for c in columns]
        rows.append([*map(escape, titles), *entries])
    if any(table.averages for table in tables):
        averages = [shown(c.table, c.table.averages.get(c.key, EMPTY)) for c in columns]
        rows.append([*first_table.bottom_labels, *averages])
    return rows


def _head(tables: Sequence[Table], columns: Sequence[_Column]) -> list[str]:
    """Return the head of the tables side by side: the factors in the rows, and the title of each of the `columns`."""
    return [*tables[0].factor_titles[0], *(column.title for column in columns)]


def _latex_span(text: str, columns: int = 2) -> str:
    """Return a centred entry over so many columns of LaTeX; `text` is LaTeX already."""
    return rf"\multicolumn{{{columns}}}{{c}}{{{text}}}"


def _latex_entry(table: Table, cell: Cell | None) -> str:
    """Return a cell as two columns of LaTeX: its mean, and its interval with the marks.

    A cell without a mean is one text that spans both columns.
    """
    mean, rest = table.cell_parts(cell)
    if cell is None or not mean:
        return _latex_span(rf"\textit{{{latex_text(rest)}}}")
    bold = r"\bfseries " if cell.best else ""
    behind = latex_text(rest) + LATEX_ARROWS[cell.mark]
    return f"{bold}{mean} & {{\\scriptsize {behind}}}"
