"""Tables as values: cells with their replicates, and the comparisons between cells.

The table of a study: means with intervals, the best marked, what is missing shown as missing, verdicts below.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

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
from contrasweep.rows import FrameRow
from contrasweep.statistics.design import Design
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
"""What stands behind ± in a cell."""


@dataclass(frozen=True)
class TableStyle:
    """How a table is drawn.

    A table in `percent`, with `digits`, with a `caption` or with a `label` is one for a paper.

    Args:
        spread: Show (min–max) over single trials behind each interval.
        cell: What stands behind a mean: its interval (`mean-ci`), the standard deviation of single trials (`mean-std`),
            the standard error of their mean as if they were independent (`mean-se`), or nothing (`mean`).
        digits: Digits after the point, 0 to 8. By default as many as show two digits of the typical half-width.
        percent: Show 0.912 as 91.2.
        caption: What stands above the table. In LaTeX the verdicts are then left out below it.
        label: The label for LaTeX's references.
        wide: In LaTeX a table over both columns of the page, `table*`.
        names: What arms, axes, metrics and their values are called, beside the study's `labels`.

    Raises:
        SpecError: For other numbers of digits and other cells.

    Example:
        >>> import contrasweep as cs
        >>> style = cs.TableStyle(percent=True, digits=1, caption="Accuracy on the test parts", label="tab:main")
        >>> style.of_paper
        True
    """

    spread: bool = False
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
        """Whether something is chosen that only tables of papers have."""
        return bool(
            self.caption or self.label or self.percent or self.digits is not None or self.wide
        )


PLAIN = TableStyle()
"""As a table is drawn unless another style is asked for."""


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
        low: The lower end of its interval.
        high: The upper end of its interval.
        n: How many trials have finished.
        statuses: The number of trials by status.
        replicates: The trials.
        interval: The method of the interval.
        min: The smallest value of a trial.
        max: The largest value of a trial.
        best: Whether the arm is not shown to be worse than the best.
        mark: "better" or "worse" than the reference, "worse" than the best, or empty.
        over: What the mean is over: `5 folds x 2 seeds`.
        other_code: How many trials ran other code than the newest, which shows as †.
        no_interval: Why there is no interval, where there is none.
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
    no_interval: str = "one replicate"

    @property
    def planned(self) -> int:
        """Return the cell's trials of any status."""
        return sum(self.statuses.values())

    @property
    def deviation(self) -> float | None:
        """The standard deviation of its finished trials; None for less than two."""
        values = [replicate.value for replicate in self.replicates if replicate.value is not None]
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def parts(self, decimals: int, style: TableStyle) -> tuple[str, str]:
        """Return the mean and what stands behind it, as text: `0.912` and `[0.897, 0.930]`.

        With a spread the second is `[0.897, 0.930] (0.881–0.944)`; the style's `cell` may put `± 0.016` or nothing in
        place of the interval. Without a mean the first is "" and the second counts what is missing.
        """
        # One status of all trials needs no count: `pending`, but `2 pending, 1 failed`.
        if self.mean is None or self.low is None or self.high is None:
            left = {
                status: count for status, count in self.statuses.items() if status not in COUNTING
            }
            words = (
                list(left) if len(left) == 1 else [f"{n} {status}" for status, n in left.items()]
            )
            return "", ", ".join(words)

        def shown(value: float) -> str:
            return number(100 * value if style.percent else value, decimals)

        # Behind the mean: its interval or deviation, the spread of trials, finished of planned ones, and the mark of
        # older code. Where all trials are equal there is no interval to show.
        rest = []
        if style.cell == "mean-ci" and self.low != self.high:
            ends = (
                self.no_interval
                if math.isinf(self.low)
                else f"{shown(self.low)}, {shown(self.high)}"
            )
            rest = [f"[{ends}]"]
        elif style.cell in BEHIND and (deviation := self.deviation) is not None:
            rest = [f"± {shown(deviation / (math.sqrt(self.n) if style.cell == 'mean-se' else 1))}"]
        if style.spread and self.min is not None and self.max is not None and self.n > 1:
            rest.append(f"({shown(self.min)}–{shown(self.max)})")
        if self.n < self.planned:
            rest.append(f"{self.n}/{self.planned}")
        if self.other_code:
            rest.append("†")
        return shown(self.mean), " ".join(rest)


def number(value: float, decimals: int) -> str:
    """Return a number as text, as a cell shows it; an infinite one is ∞ or -∞."""
    if math.isfinite(value):
        return f"{value:.{decimals}f}"
    return "∞" if value > 0 else "-∞"


NO_INTERVAL = "none"
"""The method of a cell without an interval."""
MAX_NAMED = 8
"""So many cells with other replicates than most of them are named."""


def replicates_of(names: Mapping[str, Sequence[str]]) -> str:
    """Return in words what the means are taken over: `5 folds, but 4 folds (ocl 32)`.

    `names` has the cells by kind of replication (`5 folds`). The kind of most cells comes first, the others with the
    names of their cells, or without where these are more than `MAX_NAMED`.
    """
    kinds = sorted(names, key=lambda kind: -len(names[kind]))
    if sum(len(names[kind]) for kind in kinds[1:]) > MAX_NAMED:
        return f"{kinds[0]}; other cells have another number, which their list of trials shows"
    return ", but ".join(
        [*kinds[:1], *(f"{kind} ({', '.join(names[kind])})" for kind in kinds[1:])]
    )


EMPTY = Cell(None, None, None, 0, {}, ())
"""What stands in the row of averages for a metric that the study does not decide."""


@dataclass(frozen=True)
class Table:
    """The table of a study: cells by (row, column), in the order of the study, and every comparison between them.

    `print` and notebooks show it with its legend and its verdicts.

    Attributes:
        metric: The metric of the cells.
        mode: Whether larger or smaller values are better.
        alpha: The chance of any false verdict.
        design: How the cells are replicated.
        row_factors: What stands in the rows: the arm, axes.
        column_factors: What stands in the columns.
        rows: The labels of each row.
        columns: The labels of each column.
        cells: Each `Cell` by its row and column.
        pairs: The comparisons between cells.
        compared: The factor whose values are compared: the arms, or without them what stands in the columns.
        pooled: The axes that stand nowhere: a replicate's value is its mean over them.
        reference: The arm that all others are compared with; None where every two are.
        title: What stands above the table.
        notes: What else a reader must know.
        decisive: Whether `pairs` are the comparisons that the study decides.
        given_answer: The comparisons that the study decides, where the table has other ones.
        averages: The cells of the last row then, by column: the mean over all rows.
        style: How the table is drawn.

    Example:
        >>> table = results.table(rows="arm")
        >>> print(table.to_markdown())
        >>> table.comparisons()[["a", "b", "difference", "p_value", "verdict"]]
    """

    metric: str
    mode: Literal["max", "min"]
    alpha: float
    design: Design
    row_factors: tuple[str, ...]
    column_factors: tuple[str, ...]
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: Mapping[tuple[Key, Key], Cell]
    pairs: tuple[Pair, ...]
    compared: tuple[str, ...]
    pooled: tuple[str, ...]
    reference: str | None
    title: str = ""
    notes: tuple[str, ...] = ()
    decisive: bool = False
    given_answer: Answer | None = None
    averages: Mapping[Key, Cell] = field(default_factory=dict)
    style: TableStyle = PLAIN

    @cached_property
    def decimals(self) -> int:
        """Return the digits after the point: those of the style, or enough for two digits of a typical half-width."""
        if self.style.digits is not None:
            return self.style.digits
        halves = [
            (c.high - c.low) / 2
            for c in self.cells.values()
            if c.low is not None and c.high is not None
        ]
        halves = [h for h in halves if math.isfinite(h) and h > 0]
        # Of a half-width of 0.016 the second digit is the third decimal: 1 - floor(log10(0.016)) = 3.
        fitting = int(np.clip(1 - math.floor(math.log10(np.median(halves))), 0, 6)) if halves else 3
        return max(0, fitting - 2 * self.style.percent)

    @property
    def heading(self) -> str:
        """What stands above the table: its title, the metric, and which of its values are better."""
        better = "larger is better" if self.mode == "max" else "smaller is better"
        return (f"{self.title}: " if self.title else "") + f"{self.metric_title} ({better})"

    @property
    def metric_title(self) -> str:
        """The metric's display name."""
        return self.style.names(self.metric)

    @property
    def factor_titles(self) -> tuple[list[str], list[str]]:
        """The display names of the factors in rows and in columns."""
        return list(map(self.style.names, self.row_factors)), list(
            map(self.style.names, self.column_factors)
        )

    @cached_property
    def row_titles(self) -> dict[Key, Key]:
        """By row the display names of its labels; the labels themselves where two rows would be shown alike."""
        return self._titled(self.rows)

    @cached_property
    def _column_labels(self) -> dict[Key, Key]:
        return self._titled([*self.columns, *self.averages])

    def _titled(self, keys: Iterable[Key]) -> dict[Key, Key]:
        """Return keys with their display names; with their labels where two keys would be shown alike."""
        shown = {key: tuple(map(self.style.names, key)) for key in keys}
        return shown if len(set(shown.values())) == len(shown) else {key: key for key in shown}

    @property
    def column_titles(self) -> list[str]:
        """Return the titles of the columns of cells: their labels, or the metric where no factor is in the columns."""
        shown = self._column_labels
        if self.column_factors:
            return [" ".join(shown[column]) for column in self.columns]
        return [self.metric_title]

    @cached_property
    def legend(self) -> list[str]:
        """Return the meaning of marks and brackets, and what the table leaves out, as sentences."""
        # What stands in a cell: the mean, what is behind ±, and over which replicates.
        names = self.style.names
        cells = [*self.cells.values(), *self.averages.values()]
        compared = " and ".join(map(names, self.compared))
        methods = list(dict.fromkeys(cell.interval for cell in cells if cell.interval))
        lines = ["in percent"] if self.style.percent else []
        if methods == [NO_INTERVAL]:
            why = dict.fromkeys(cell.no_interval for cell in cells if cell.interval)
            lines.append(f"{' or '.join(why)} a cell, so there are no intervals")
        elif methods := [method for method in methods if method != NO_INTERVAL]:
            behind = ""
            if self.style.cell == "mean-ci":
                behind = f" [{100 * (1 - self.alpha):g} % interval: {', '.join(methods)}]"
            elif self.style.cell in BEHIND:
                behind = f" ± {BEHIND[self.style.cell]}"
            lines.append(
                f"mean{behind}{' (min–max)' if self.style.spread else ''} over {self._replicates}"
            )
        if self.style.spread and methods:
            lines.append("min and max are those of single trials")

        # What the marks say, or why there is none, and what the table leaves out.
        if any(cell.best for cell in cells):
            lines.append(f"{NOT_WORSE} {compared}")
        elif self.pairs and (self.decisive or self.averages):
            lines.append(f"nothing is marked: no {compared} is shown to be worse than another")
        if used := {cell.mark for cell in cells} - {""}:
            arrows = ", ".join(
                f"{ARROWS[mark].strip()} {mark}" for mark in ("better", "worse") if mark in used
            )
            lines.append(
                f"{arrows} than {'the best' if self.reference is None else names(self.reference)}"
            )
        if self.pooled:
            lines.append(f"replicates are means over {', '.join(map(names, self.pooled))}")
        lines += self.gaps
        if self.given_answer is not None and not self.decisive and self.pairs:
            lines.append("single cells are exploratory: the study's question is overall")
        return [*lines, *self.notes]

    @property
    def gaps(self) -> list[str]:
        """Lines that count, by status, the trials that are in no mean. The row of averages is not counted again."""
        missing: Counter[str] = Counter()
        for cell in self.cells.values():
            missing.update(
                {status: n for status, n in cell.statuses.items() if status not in COUNTING}
            )
        if not missing:
            return []
        every = [*self.cells.values(), *self.averages.values()]
        partly = next(
            (f"{c.n}/{c.planned}: finished/planned; " for c in every if 0 < c.n < c.planned), ""
        )
        return [
            f"{partly}not in the table: {', '.join(f'{n} {status}' for status, n in missing.items())}"
        ]

    @property
    def _replicates(self) -> str:
        """Return what the means are over, once where all cells have the same, else with the cells that have it."""
        # What the means are over -> the cells by all of their labels, and by the compared one alone.
        by_place: dict[str, dict[str, None]] = {}
        by_compared: dict[str, dict[str, None]] = {}
        for place, cell in self.cells.items():
            if cell.over:
                shown = (*self.row_titles[place[0]], *self._column_labels[place[1]])
                labels = dict(zip((*self.row_factors, *self.column_factors), shown, strict=True))
                by_place.setdefault(cell.over, {})[" ".join(labels.values())] = None
                by_compared.setdefault(cell.over, {})[
                    " ".join(labels[name] for name in self.compared)
                ] = None
        if not by_place:
            return "folds, seeds of a fold averaged" if self.design.folds else "seeds"
        # Where every cell of an arm has the same, its name says enough.
        compared = [label for labels in by_compared.values() for label in labels]
        chosen = by_compared if len(set(compared)) == len(compared) else by_place
        return replicates_of({kind: list(labels) for kind, labels in chosen.items()})

    @cached_property
    def answer(self) -> Answer:
        """The verdicts of the study, or the numbers of the table's own comparisons, which stand below the table."""
        names = self.style.names
        if self.given_answer is not None:
            return replace(self.given_answer, names=names)
        question: Question | None = None
        if self.decisive:  # all pairs have a cell of their own, or none has
            question = "cells" if self.pairs and self.pairs[0].context else "overall"
        return Answer(self.pairs, question, axes=self.pooled, names=names)

    @property
    def verdicts(self) -> list[str]:
        """The text of `answer` line by line: its heading, a sentence for each comparison, and notes."""
        answer = self.answer
        if not answer.pairs:
            return []
        return [
            f"{answer.heading}:",
            *answer.sentences(),
            *(f"Note: {note}." for note in answer.notes),
        ]

    def bottom(self) -> list[Cell | None]:
        """Return the cells of the last row, averages over all rows; empty where there is none.

        An entry is None where a column has no average.
        """
        return [self.averages.get(column) for column in self.columns] if self.averages else []

    def row_labels(self) -> list[list[str]]:
        """Return the labels of each row, as a table shows them.

        A label is "" where it and those before it repeat the row above; the last one always stands.
        """
        shown = []
        above: Key = ()
        for row in self.row_titles.values():
            labels = list(row)
            for i in range(len(row) - 1):
                if row[: i + 1] == above[: i + 1]:
                    labels[i] = ""
            shown.append(labels)
            above = row
        return shown

    def cell_parts(self, cell: Cell | None) -> tuple[str, str]:
        """Return the parts of a cell's text, without its marks.

        Args:
            cell: A cell of the table; None for one that is not planned.

        Returns:
            Its mean, and the rest (alone where it has no mean).
        """
        return ("", "not planned") if cell is None else cell.parts(self.decimals, self.style)

    def cell_text(self, cell: Cell | None) -> str:
        """Return the mean and the rest of a cell in one text.

        Args:
            cell: A cell of the table; None for one that is not planned.

        Returns:
            The text.
        """
        return " ".join(filter(None, self.cell_parts(cell)))

    def number(self, value: float) -> str:
        """Return a single trial's value as text, to a digit more than the means.

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
        """Return a LaTeX table environment, legend and verdicts below it; it needs `booktabs` and `siunitx`."""
        return latex_of([self])

    def to_rows(self) -> list[FrameRow]:
        """Return the cells as JSON has them: what `to_frame` has, with `factors` and `statuses` as mappings.

        Row by row; what is not planned has no cell.
        """
        return [
            {
                "factors": dict(
                    zip((*self.row_factors, *self.column_factors), (*row, *column), strict=True)
                ),
                "metric": self.metric,
                "mean": cell.mean,
                "low": cell.low,
                "high": cell.high,
                "min": cell.min,
                "max": cell.max,
                "n": cell.n,
                "planned": cell.planned,
                "statuses": {status.value: cell.statuses.get(status, 0) for status in Status},
                "interval": cell.interval,
                "best": cell.best,
                "mark": cell.mark,
                "other_code": cell.other_code,
                "trial_ids": [replicate.trial_id for replicate in cell.replicates],
            }
            for row in self.rows
            for column in self.columns
            if (cell := self.cells.get((row, column))) is not None
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return the cells as numbers.

        Returns:
            One row a cell: the factors, metric, mean, low, high, min, max, n (finished, of which the mean is), planned,
            the number of trials of each status, interval (its method), best, mark, other_code, the trial_ids, and the
            notes of the table.
        """
        rows = []
        for row in self.to_rows():
            # In the order above: entries of mappings become columns; what is left of the row comes last but one.
            factors = row.pop("factors")
            statuses = row.pop("statuses")
            ids = row.pop("trial_ids")
            first = {
                name: row.pop(name)
                for name in ("metric", "mean", "low", "high", "min", "max", "n", "planned")
            }
            last = {"trial_ids": " ".join(ids), "notes": "; ".join(self.notes)}
            rows.append(factors | first | statuses | row | last)
        frame = pd.DataFrame(rows)
        return frame.astype(
            {name: "float64" for name in ("mean", "low", "high", "min", "max") if name in frame}
        )

    def comparisons(self) -> pd.DataFrame:
        """Return the comparisons of the table.

        Returns:
            One row a comparison: its context, a, b, and all that `Comparison.to_dict` has.
        """
        return pd.DataFrame(
            [
                dict(pair.context) | {"a": pair.a, "b": pair.b} | pair.comparison.to_dict()
                for pair in self.pairs
            ]
        )

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


def text_of(tables: Sequence[Table], width: int = WIDTH) -> str:
    """Return the tables of several metrics, of the same rows, side by side, as `Table.to_text` returns one.

    Args:
        tables: The tables of one study.
        width: The columns of the terminal; what is wider is split by columns.

    Returns:
        The text.
    """
    # As many columns as fit in a block, at least one; the next ones stand in a block below it.
    blocks = []
    rest = _columns(tables)
    while rest:
        fitting = len(rest)
        while (
            fitting > 1
            and max(map(len, text_table(_text_rows(tables, rest[:fitting]), rule=True))) > width
        ):
            fitting -= 1
        lines = text_table(_text_rows(tables, rest[:fitting]), rule=True, width=width)
        blocks.append("\n".join(lines))
        rest = rest[fitting:]
    parts = [
        wrapped(_heading(tables), width),
        *blocks,
        "\n".join(wrapped(line, width) for line in legend_of(tables)),
        *("\n".join(table.answer.lines(width)) for table in tables),
    ]
    return "\n\n".join(part for part in parts if part)


def markdown_of(tables: Sequence[Table]) -> str:
    """Return the tables of several metrics, of the same rows, side by side in Markdown, with the best in bold."""

    def shown(table: Table, cell: Cell | None) -> str:
        if cell is None or not cell.best:
            return table.marked_text(cell)
        return f"**{table.cell_text(cell)}**{ARROWS[cell.mark]}"

    columns = _columns(tables)
    body = _rows(tables, columns, shown, tables[0].row_titles.values())
    lines = [
        f"**{markdown_text(_heading(tables))}**",
        "",
        *markdown_table([_head(tables, columns), *body]),
        "",
        *(markdown_item(marked_as(line, "**bold**")) for line in legend_of(tables)),
    ]
    for heading, *sentences in (table.verdicts for table in tables if table.verdicts):
        lines += ["", markdown_text(heading), "", *map(markdown_item, sentences)]
    return "\n".join(lines) + "\n"


def latex_of(tables: Sequence[Table]) -> str:
    """Return the tables of several metrics as one table environment of LaTeX.

    Means stand in columns of `siunitx`, their intervals beside them. The legend stands below the table and, where the
    style has no caption, so do the verdicts.
    """
    # Over the titles of columns: of several tables the metric of each, of one what its columns are. A column of cells
    # is two of LaTeX, the mean and what stands behind it.
    first = tables[0]
    factors = len(first.row_factors)
    columns = _columns(tables)
    head = []
    spans = [(table.metric_title, len(table.columns)) for table in tables]
    if len(tables) == 1:
        spans = [(", ".join(first.factor_titles[1]), len(columns))] if first.column_factors else []
    if spans:
        rules = []
        start = factors + 1
        for _, wide in spans:
            rules.append(rf"\cmidrule(lr){{{start}-{start + 2 * wide - 1}}}")
            start += 2 * wide
        over = " & ".join(_latex_span(latex_text(title), 2 * wide) for title, wide in spans)
        head = [f"{'& ' * factors}{over} \\\\", " ".join(rules)]

    # The titles of the columns, then a line for each row; a rule stands above the averages.
    titles = [
        title if table.column_factors or len(tables) == 1 else ""
        for table in tables
        for title in table.column_titles
    ]
    names = map(latex_text, first.factor_titles[0])
    head.append(latex_row([*names, *(_latex_span(latex_text(title)) for title in titles)]))
    escaped = (list(map(latex_text, labels)) for labels in first.row_labels())
    body = list(map(latex_row, _rows(tables, columns, _latex_entry, escaped)))
    if any(table.averages for table in tables):
        body.insert(-1, r"\midrule")

    # Below the table its legend, and the verdicts unless a caption says that they stand elsewhere.
    legend = (marked_as(line, "bold:") for line in legend_of(tables))
    below = [line[0].upper() + line[1:] for line in legend]
    if not first.style.caption:
        answers = [table.verdicts for table in tables if table.answer.decisive]
        below += [line for lines in answers for line in lines]
    return latex_table(
        _heading(tables),
        "l" * factors
        + "".join(
            rf"S[table-format={_latex_format(table)},detect-weight]@{{\,}}l"
            for table, _, _ in columns
        ),
        head,
        body,
        label=first.style.label,
        wide=first.style.wide,
        below=below,
    )


def legend_of(tables: Sequence[Table]) -> list[str]:
    """Return the lines of the tables' legends, each once; what a metric lacks behind its name where metrics differ."""
    differ = len({tuple(table.gaps) for table in tables}) > 1
    lines = (
        f"{table.metric_title}: {line}" if differ and line in table.gaps else line
        for table in tables
        for line in table.legend
    )
    return list(dict.fromkeys(lines))


def _heading(tables: Sequence[Table]) -> str:
    """Return the caption of the style, or the first table's heading and the metrics of the others."""
    further = (replace(table, title="").heading for table in tables[1:])
    return tables[0].style.caption or ", ".join([tables[0].heading, *further])


def _columns(tables: Sequence[Table]) -> list[tuple[Table, Key, str]]:
    """Return (table, key of the column in it, title) of each column of cells."""
    several = len(tables) > 1
    return [
        (
            table,
            column,
            f"{table.metric_title} {title}" if several and table.column_factors else title,
        )
        for table in tables
        for column, title in zip(table.columns, table.column_titles, strict=True)
    ]


def _rows(
    tables: Sequence[Table],
    columns: Sequence[tuple[Table, Key, str]],
    shown: Callable[[Table, Cell | None], str],
    labels: Iterable[Sequence[str]],
) -> list[list[str]]:
    """Return the labels and entries of each row, with the row of averages last where any table has one.

    `labels` are those of each row as a format shows them, `shown` gives an entry's text. Tables of other metrics have
    empty cells in the row of averages.
    """
    first = tables[0]
    rows = [
        [*titles, *(shown(table, table.cells.get((row, column))) for table, column, _ in columns)]
        for row, titles in zip(first.rows, labels, strict=True)
    ]
    if any(table.averages for table in tables):
        averages = (table.averages.get(column, EMPTY) for table, column, _ in columns)
        entries = (
            shown(table, cell) for (table, _, _), cell in zip(columns, averages, strict=True)
        )
        rows.append([*first.bottom_labels, *entries])
    return rows


def _head(tables: Sequence[Table], columns: Sequence[tuple[Table, Key, str]]) -> list[str]:
    return [*tables[0].factor_titles[0], *(title for _, _, title in columns)]


def _text_rows(
    tables: Sequence[Table], columns: Sequence[tuple[Table, Key, str]]
) -> list[list[str]]:
    labels = tables[0].row_titles.values()
    return [_head(tables, columns), *_rows(tables, columns, Table.marked_text, labels)]


def _latex_span(text: str, columns: int = 2) -> str:
    return rf"\multicolumn{{{columns}}}{{c}}{{{text}}}"


def _latex_entry(table: Table, cell: Cell | None) -> str:
    """Return a cell as its two columns of LaTeX; what has no mean is one text over both."""
    mean, rest = table.cell_parts(cell)
    if cell is None or not mean:
        return _latex_span(rf"\textit{{{latex_text(rest)}}}")
    behind = latex_text(rest) + LATEX_ARROWS[cell.mark]
    return (r"\bfseries " if cell.best else "") + f"{mean} & {{\\scriptsize {behind}}}"


def _latex_format(table: Table) -> str:
    """The table-format of siunitx: digits before and after the point of the widest mean."""
    cells = [*table.cells.values(), *table.averages.values()]
    means = [mean for mean in (table.cell_parts(cell)[0] for cell in cells) if mean] or ["0"]
    whole = max(len(mean.lstrip("-").split(".")[0]) for mean in means)
    after = max(len(mean.partition(".")[2]) for mean in means)
    return f"{'-' * any(mean.startswith('-') for mean in means)}{whole}.{after}"
