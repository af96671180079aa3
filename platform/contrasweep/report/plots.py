"""The figures of the HTML report, drawn by Matplotlib for notebooks and papers.

They are drawn without pyplot: no figure stays open behind the user's back, and nothing is shown twice.
"""

import io
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from contrasweep.errors import SpecError, choose_from
from contrasweep.report.curves import learning_curves
from contrasweep.report.data import TrialData
from contrasweep.report.figures import Bars, Lines, Parallel, Series
from contrasweep.report.searching import importance_figures, parallel_lines, ranked_importance
from contrasweep.results.results import Results
from contrasweep.results.table import Cell, Key

COLOURS = (
    *("#2563a8", "#d1580f", "#16855b", "#8a3ffc", "#b5197d", "#6f5b00"),
    *("#0b7d8c", "#5b6470", "#b3261e", "#5a7d00", "#4a3fb5", "#7a4a2b"),
)
"""Those of the report's light page (`templates/page.css`)."""
PANEL, COLUMNS = (3.6, 2.7), 3  # inches
DOTS_PER_INCH = 110
HALO = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


class Drawing(Figure):
    """A Matplotlib figure that a notebook shows as an image, also without pyplot."""

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=DOTS_PER_INCH)
        return image.getvalue()


class StudyPlots:
    """The Matplotlib figures of one study; each method returns a new `matplotlib.figure.Figure`."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def curves(self, metric: str | None = None) -> Drawing:
        """Draw a metric at each step: the mean over replicates with their range, a panel a combination of the axes.

        Args:
            metric: The metric; the study's without it.

        Returns:
            A figure of up to twelve panels.

        Raises:
            SpecError: For a metric that no finished trial has reported twice.
        """
        curves = learning_curves(self._data(curves=self.results.curves()))
        by_metric = {} if curves is None else curves.by_metric
        metric = metric or self.results.metric
        if metric not in by_metric:
            raise SpecError(
                "there are no curves of it: no finished trial reported values of it that change",
                place="plot.curves",
                value=metric,
                hint=choose_from("metrics", list(by_metric), metric) if by_metric else "",
            )
        panels = by_metric[metric]
        figure, places = _grid(len(panels))
        charts = [panel.chart for panel in panels if isinstance(panel.chart, Lines)]
        for panel, chart, axes in zip(panels, charts, places, strict=True):
            _draw_lines(axes, chart, panel.title)
        _arms(figure, [(line.name, line.colour) for chart in charts for line in chart.series])
        return figure

    def cells(self, metric: str | None = None) -> Drawing:
        """Draw the cells of the study's table: mean with interval, and a faint dot for each replicate.

        Args:
            metric: The metric; the study's without it.

        Returns:
            A figure.
        """
        table = self.results.table(metric=metric)
        by_arm = bool(table.column_factors)
        arms = [column[-1] for column in table.columns] if by_arm else [row[-1] for row in table.rows]
        figure, (axes,) = _grid(1, wide=max(1.0, len(table.rows) * max(1, len(table.columns)) / 12))
        for i, row in enumerate(table.rows):
            for j, column in enumerate(table.columns):
                cell = table.cells.get((row, column))
                number = j if by_arm else i
                shift = (j - (len(table.columns) - 1) / 2) * 0.7 / max(1, len(table.columns))
                if cell is not None and cell.mean is not None:
                    _draw_cell(axes, i + shift, cell, number)
        labels = [_row_label(row) for row in table.rows]
        turned = sum(map(len, labels)) > 60
        axes.set_xticks(range(len(labels)), labels, rotation=30 if turned else 0, ha="right" if turned else "center")
        axes.set(xlabel=", ".join(table.row_factors), ylabel=table.metric, title=self.results.title)
        if by_arm:
            _arms(figure, [(arm, i) for i, arm in enumerate(arms)])
        return figure

    def parallel(self) -> Drawing:
        """Draw every configuration of a search, or every trial of a grid, as a line over its settings and its value.

        Returns:
            A figure.

        Raises:
            SpecError: Where nothing varies or no trial has finished.
        """
        data = self._data(search=self.results.search if len(self.results.search) else None)
        lines = parallel_lines(data)
        if lines is None:
            raise SpecError(
                "there is nothing to draw: no finished trial, or no setting that varies",
                place="plot.parallel",
                value=self.results.name,
            )
        figure, (axes,) = _grid(1, wide=max(1.0, len(lines.axes) / 2.5))
        _draw_parallel(axes, lines)
        _arms(figure, sorted(zip(lines.names, lines.colours, strict=True), key=lambda entry: entry[1]))
        return figure

    def importance(self) -> Drawing:
        """Draw the importance of each searched setting, a panel an arm.

        A bar is the share of a setting in what tells the best tenth apart, an upright line what shuffled scores reach.

        Returns:
            A figure.

        Raises:
            SpecError: For a study without a search.
        """
        data = self._data(importance=self.results.importance())
        figures = importance_figures(data)
        if not figures:
            raise SpecError(
                "importances are of a search, and this study has none",
                place="plot.importance",
                value=self.results.name,
                hint="results.effects() says what a grid's metric depends on",
            )
        figure, places = _grid(len(figures))
        for (arm, part), one, axes in zip(ranked_importance(data), figures, places, strict=True):
            if isinstance(one.chart, Bars):
                _draw_bars(axes, one.chart, f"{arm}, {part['configurations'].iloc[0]} configurations", "share")
        return figure

    def _data(self, **more: Any) -> TrialData:
        return TrialData(self.results.to_frame(), self.results.document, **more)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _grid(panels: int, wide: float = 1.0) -> tuple[Drawing, Sequence[Axes]]:
    """A figure of `panels` drawings in rows of three; a single one is `wide` times wider."""
    columns = min(COLUMNS, panels)
    rows = math.ceil(panels / columns)
    single = 1.5 * wide if panels == 1 else 1.0
    size = (PANEL[0] * columns * single, PANEL[1] * rows * (1.4 if panels == 1 else 1.0))
    figure = Drawing(figsize=size, layout="constrained")
    places = [figure.add_subplot(rows, columns, i + 1) for i in range(panels)]
    for axes in places:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.title.set_fontsize("medium")
    return figure, places


def _draw_lines(axes: Axes, chart: Lines, title: str) -> None:
    for line in chart.series:
        _draw_line(axes, line)
    if chart.y_within:
        room = 0.06 * (chart.y_within[-1] - chart.y_within[0])
        axes.set_ylim(chart.y_within[0] - room, chart.y_within[-1] + room)
    axes.set(title=title, xlabel=chart.x_label, ylabel=chart.y_label)
    if chart.whole_x:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_parallel(axes: Axes, chart: Parallel) -> None:
    for i, colour in enumerate(chart.colours):
        points = [(x, a.positions[i]) for x, a in enumerate(chart.axes) if math.isfinite(a.positions[i])]
        axes.plot(*zip(*points, strict=True), color=_colour(colour), alpha=0.45, linewidth=0.9)
    for x, upright in enumerate(chart.axes):
        axes.axvline(x, color="0.6", linewidth=0.8)
        for at, text in upright.marks:
            axes.annotate(
                text, (x, at), xytext=(3, 0), textcoords="offset points", va="center", fontsize="x-small", bbox=HALO
            )
    axes.set_xticks(range(len(chart.axes)), [upright.name for upright in chart.axes])
    axes.set(yticks=[], title=chart.note, xlim=(-0.15, len(chart.axes) - 0.55))
    axes.spines[:].set_visible(False)


def _draw_bars(axes: Axes, chart: Bars, title: str, x_label: str) -> None:
    """Draw bars of shares, each with its label at its end."""
    at, values = range(len(chart.names)), [0.0 if math.isnan(value) else value for value in chart.values]
    axes.barh(at, values, color=_colour(chart.colours[0]), height=0.6)
    axes.vlines(list(chart.marks), [i - 0.4 for i in at], [i + 0.4 for i in at], color="0.2", linewidth=1.2)
    axes.set_yticks(at, list(chart.names))
    for i, (value, mark, note) in enumerate(zip(chart.values, chart.marks, chart.notes, strict=True)):
        end = max([x for x in (value, mark) if math.isfinite(x)], default=0.0)
        inside = end > 0.6
        axes.annotate(
            note,
            (0.02 if inside else end, i),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="x-small",
            color="white" if inside and value > 0.6 else "0.2",
        )
    axes.invert_yaxis()
    axes.set(title=title, xlim=(0, 1), xlabel=x_label)


def _draw_line(axes: Axes, line: Series) -> None:
    colour = _colour(line.colour)
    axes.plot(line.x, line.y, color=colour, linewidth=1.6)
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)


def _draw_cell(axes: Axes, x: float, cell: Cell, number: int) -> None:
    colour = _colour(number)
    values = [replicate.value for replicate in cell.replicates if replicate.value is not None]
    axes.plot([x] * len(values), values, linestyle="", marker="o", markersize=3, color=colour, alpha=0.3)
    axes.plot([x], [cell.mean or 0.0], linestyle="", marker="_", markersize=12, color=colour, markeredgewidth=2)
    if cell.low is not None and cell.high is not None and math.isfinite(cell.low) and math.isfinite(cell.high):
        axes.vlines(x, cell.low, cell.high, color=colour, linewidth=1.6)


def _row_label(row: Key) -> str:
    return ", ".join(row)


def _arms(figure: Drawing, arms: Sequence[tuple[str, int]]) -> None:
    """Draw one legend for the figure, with an entry for each arm."""
    named = dict(arms)
    if len(named) > 1:
        handles = [Line2D([], [], color=_colour(number), linewidth=3, label=arm) for arm, number in named.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(6, len(handles)), frameon=False)
