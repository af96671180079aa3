"""What a table is made of: its cells with their replicates, and the comparisons between them.

The table of a study: means with intervals, the best marked, what is missing shown as missing, verdicts below."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError
from contrasweep.results.answer import Answer, Pair
from contrasweep.results.rendering import NONE, DisplayNames, Renderable
from contrasweep.statistics.design import Design
from contrasweep.storage.record import COUNTING, Status

Key = tuple[str, ...]
ARROWS: Mapping[str, str] = {"": "", "better": " ↑", "worse": " ↓"}
"""How a cell's mark is shown."""


MOST_DIGITS = 8


@dataclass(frozen=True)
class TableStyle:
    """How a table is drawn. A table in `percent` or with chosen `digits`, a `caption` or a `label` is one for a paper.

    Args:
        spread: Show (min–max) over single trials behind each interval.
        digits: Digits after the point; None: two of the typical interval's half-width.
        percent: Show 0.912 as 91.2.
        caption: What stands above the table, in LaTeX in place of its legend.
        label: For LaTeX's \\ref.
        names: What arms, axes, metrics and their values are called.
    """

    spread: bool = False
    digits: int | None = None
    percent: bool = False
    caption: str = ""
    label: str = ""
    names: DisplayNames = NONE

    def __post_init__(self) -> None:
        if self.digits is not None and not 0 <= self.digits <= MOST_DIGITS:
            raise SpecError(f"digits are 0 to {MOST_DIGITS}", place="--digits", value=self.digits)

    @property
    def of_paper(self) -> bool:
        """Whether something is chosen that only tables of papers have."""
        return bool(self.caption or self.label or self.percent or self.digits is not None)


PLAIN = TableStyle()
"""As a table is drawn unless another style is asked for."""


@dataclass(frozen=True)
class Replicate:
    """One trial of a cell: its value where it is done, and the address of its MLflow run where there is one."""

    trial_id: str
    fold: Any
    seed: Any
    status: str
    value: float | None
    url: str | None = None


@dataclass(frozen=True)
class Cell:
    """One cell: `n` of `planned` trials are finished; `mean`, in `low` to `high`, and the outermost values `least` and
    `most` are over all of these. `over` says what they are: `5 folds x 2 seeds`.

    `statuses` counts its trials by status; `best` marks arms that are not worse than the best, `mark` is `better` or
    `worse` than the reference (or `worse` than the best), or empty. `other_code` counts its trials that ran
    other code than the newest, which show as †.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    statuses: Mapping[str, int]
    replicates: tuple[Replicate, ...]
    method: str = ""
    least: float | None = None
    most: float | None = None
    best: bool = False
    mark: str = ""
    over: str = ""
    other_code: int = 0

    @property
    def planned(self) -> int:
        """Its trials of any status."""
        return sum(self.statuses.values())

    def parts(self, decimals: int, style: TableStyle) -> tuple[str, str]:
        """Mean and rest: `0.912` and `[0.897, 0.930]`, with a spread `[0.897, 0.930] (0.881–0.944)`. A cell without a
        mean has the rest alone: what is missing is counted, and nothing else stands for a number."""
        if self.mean is None or self.low is None or self.high is None:
            return "", self._missing()

        def shown(value: float) -> str:
            return number(100 * value if style.percent else value, decimals)

        rest = [f"[{shown(self.low)}, {shown(self.high)}]"] if self.low != self.high else []
        if math.isinf(self.low):
            rest = ["[one replicate]"]
        if style.spread and self.least is not None and self.most is not None and self.n > 1:
            rest.append(f"({shown(self.least)}–{shown(self.most)})")
        if self.n < self.planned:
            rest.append(f"{self.n}/{self.planned}")
        if self.other_code:
            rest.append("†")
        return shown(self.mean), " ".join(rest)

    def _missing(self) -> str:
        """Counts of what is not done: `2 failed, 3 pending`; one status alone goes without its count."""
        left = {status: count for status, count in self.statuses.items() if status not in COUNTING}
        return next(iter(left)) if len(left) == 1 else ", ".join(f"{n} {status}" for status, n in left.items())


def number(value: float, decimals: int) -> str:
    """A value as a cell shows it; an infinite one as its sign."""
    return f"{value:.{decimals}f}" if math.isfinite(value) else ("∞" if value > 0 else "-∞")


def label(value: Any) -> str:
    """An axis value as a table shows it; an en dash where a trial has no such axis."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    if value is None or (isinstance(value, float) and math.isnan(value)) or value is pd.NA:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


NO_INTERVAL = "none"
"""The method of a cell with one replicate."""
MAX_NAMED = 8
"""So many cells with other replicates than most of them are named."""
NOT_WORSE = "* not worse than the best"
"""What the mark of a cell says; every format has its own mark for the asterisk."""


def marked_as(line: str, mark: str) -> str:
    """A line of a legend where `mark` stands in place of the star."""
    return line.replace(NOT_WORSE, NOT_WORSE.replace("*", mark))


def legend(
    cells: Collection[Cell],
    *,
    alpha: float,
    style: TableStyle,
    replicates: str,
    compared: Sequence[str],
    pooled: Sequence[str],
    reference: str | None,
    verdicts: bool,
) -> list[str]:
    """A sentence for each kind of mark, bracket and gap that the cells have; `replicates` says what the intervals are
    over, `verdicts` whether marks stand for verdicts at all."""
    methods = list(dict.fromkeys(cell.method for cell in cells if cell.method))
    lines = ["in percent"] if style.percent else []
    if methods == [NO_INTERVAL]:
        lines.append("one replicate a cell, so there are no intervals")
    elif methods := [method for method in methods if method != NO_INTERVAL]:
        level = f"{100 * (1 - alpha):g} %"
        lines.append(f"mean [{level} interval: {', '.join(methods)}]{' (min–max)' * style.spread} over {replicates}")
    if style.spread and methods:
        lines.append("min and max are those of single trials")
    if any(cell.best for cell in cells):
        lines.append(f"{NOT_WORSE} {' and '.join(compared)}")
    elif verdicts:
        lines.append(f"nothing is marked: no {' and '.join(compared)} is shown to be worse than another")
    used = {cell.mark for cell in cells} - {""}
    if used:
        arrows = ", ".join(f"{ARROWS[mark].strip()} {mark}" for mark in ("better", "worse") if mark in used)
        lines.append(f"{arrows} than {reference or 'the best'}")
    if pooled:
        lines.append(f"replicates are means over {', '.join(pooled)}")
    return [*lines, *_gaps(cells)]


def replicates_of(names: Mapping[str, Sequence[str]]) -> str:
    """What means are over, from what the cells of each kind are called: the kind of most cells first, the others with
    the cells that they are of."""
    kinds = sorted(names, key=lambda kind: -len(names[kind]))
    if sum(len(names[kind]) for kind in kinds[1:]) > MAX_NAMED:
        return f"{kinds[0]}; other cells have another number, which their list of trials shows"
    return ", but ".join([*kinds[:1], *(f"{kind} ({', '.join(names[kind])})" for kind in kinds[1:])])


def _gaps(cells: Collection[Cell]) -> list[str]:
    missing: Counter[str] = Counter()
    for cell in cells:
        if cell.n < cell.planned:
            missing.update({status: n for status, n in cell.statuses.items() if status not in COUNTING})
    if not missing:
        return []
    left = ", ".join(f"{n} {status}" for status, n in missing.items() if n)
    return [f"3/5: finished/planned; not in the table: {left}"]


@dataclass(frozen=True)
class Table(Renderable):
    """Cells by (row, column), in the order of the study, with every comparison that the table makes.

    `compared` names the factor whose values are set against each other: the arms, or what stands in the
    columns where no arm is in the table. `pooled` are the axes that stand in neither rows nor columns:
    a replicate's value is its mean over them. `style` says how it is drawn.
    `unit` says what its replicates are where their design does not say it, `notes` what else a reader must know.

    `decisive` says whether its own `pairs` are the family that the study decides; `given_answer` is that family where
    the table shows other comparisons, `averages` the cells of its last row then: each column over all rows.
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
    unit: str = ""
    notes: tuple[str, ...] = ()
    decisive: bool = False
    given_answer: Answer | None = None
    averages: Mapping[Key, Cell] = field(default_factory=dict)
    style: TableStyle = PLAIN

    @cached_property
    def decimals(self) -> int:
        """Decimals after the point: those of the style, or as many as show two digits of the typical half-width."""
        if self.style.digits is not None:
            return self.style.digits
        halves = [(c.high - c.low) / 2 for c in self.cells.values() if c.low is not None and c.high is not None]
        halves = [h for h in halves if math.isfinite(h) and h > 0]
        fitting = int(np.clip(1 - math.floor(math.log10(np.median(halves))), 0, 6)) if halves else 3
        return max(0, fitting - 2 * self.style.percent)

    @property
    def heading(self) -> str:
        """Title, metric and which of its values are better."""
        better = "larger is better" if self.mode == "max" else "smaller is better"
        return (f"{self.title}: " if self.title else "") + f"{self.shown_metric} ({better})"

    @property
    def shown_metric(self) -> str:
        """The metric's display name."""
        return self.style.names(self.metric)

    @property
    def shown_factors(self) -> tuple[list[str], list[str]]:
        """The display names of the factors in rows and in columns."""
        return list(map(self.style.names, self.row_factors)), list(map(self.style.names, self.column_factors))

    @cached_property
    def shown_rows(self) -> dict[Key, Key]:
        """By row the display names of its labels; the labels themselves where two rows would be shown alike."""
        return self._shown(self.rows)

    @cached_property
    def _shown_columns(self) -> dict[Key, Key]:
        return self._shown([*self.columns, *self.averages])

    def _shown(self, keys: Iterable[Key]) -> dict[Key, Key]:
        shown = {key: tuple(map(self.style.names, key)) for key in keys}
        return shown if len(set(shown.values())) == len(shown) else {key: key for key in shown}

    @property
    def column_titles(self) -> list[str]:
        """What stands over the columns of cells: their labels, or the metric where no factor is in the columns."""
        shown = self._shown_columns
        return [" ".join(shown[column]) for column in self.columns] if self.column_factors else [self.shown_metric]

    @cached_property
    def legend(self) -> list[str]:
        """What the marks and brackets mean, and what the table leaves out, as sentences."""
        names = self.style.names
        lines = legend(
            [*self.cells.values(), *self.averages.values()],
            alpha=self.alpha,
            style=self.style,
            replicates=self._replicates,
            compared=list(map(names, self.compared)),
            pooled=list(map(names, self.pooled)),
            reference=None if self.reference is None else names(self.reference),
            verdicts=bool(self.pairs) and (self.decisive or bool(self.averages)),
        )
        if self.given_answer is not None and not self.decisive and self.pairs:
            lines.append("single cells are exploratory: the study's question is overall")
        return [*lines, *self.notes]

    @property
    def _replicates(self) -> str:
        """What the means are over; by what is compared where all of its cells have the same, else cell by cell."""
        if self.unit:
            return self.unit
        by_place: dict[str, dict[str, None]] = {}
        by_compared: dict[str, dict[str, None]] = {}
        for place, cell in self.cells.items():
            if cell.over:
                shown = (*self.shown_rows[place[0]], *self._shown_columns[place[1]])
                labels = dict(zip((*self.row_factors, *self.column_factors), shown, strict=True))
                by_place.setdefault(cell.over, {})[" ".join(labels.values())] = None
                by_compared.setdefault(cell.over, {})[" ".join(labels[name] for name in self.compared)] = None
        if not by_place:
            return "folds, seeds of a fold averaged" if self.design.folds else "seeds"
        compared = [label for labels in by_compared.values() for label in labels]
        chosen = by_compared if len(set(compared)) == len(compared) else by_place
        return replicates_of({kind: list(labels) for kind, labels in chosen.items()})

    @cached_property
    def answer(self) -> Answer:
        """What is said below the table: the verdicts of the study, or the numbers of its own comparisons."""
        names = self.style.names
        if self.given_answer is not None:
            return replace(self.given_answer, names=names)
        context = bool(self.pairs) and bool(self.pairs[0].context)
        return Answer(self.pairs, ("cells" if context else "overall") if self.decisive else None, self.pooled, names)

    @property
    def verdicts(self) -> list[str]:
        """What `answer` says, line by line: its heading, a sentence for each comparison, and notes."""
        answer = self.answer
        if not answer.pairs:
            return []
        return [f"{answer.heading}:", *answer.sentences(), *(f"Note: {note}." for note in answer.notes)]

    def bottom(self) -> list[Cell | None]:
        """The last row, of averages over all rows; empty where there is none."""
        return [self.averages.get(column) for column in self.columns] if self.averages else []

    def row_labels(self) -> list[list[str]]:
        """The labels of each row, empty where a label only says what the row above says; never the last one."""
        shown = []
        rows = list(self.shown_rows.values())
        for row, above in zip(rows, [(), *rows], strict=False):
            same = [bool(above) and row[: i + 1] == above[: i + 1] for i in range(len(row) - 1)]
            shown.append(["" if hidden else name for name, hidden in zip(row, [*same, False], strict=False)])
        return shown

    def cell_parts(self, cell: Cell | None) -> tuple[str, str]:
        """What stands in a cell, without its marks: its mean, and the rest (alone where it has no mean)."""
        return ("", "not planned") if cell is None else cell.parts(self.decimals, self.style)

    def cell_text(self, cell: Cell | None) -> str:
        """The same in one."""
        return " ".join(filter(None, self.cell_parts(cell)))

    def number(self, value: float) -> str:
        """A single trial's value, to a digit more than the means."""
        return number(100 * value if self.style.percent else value, self.decimals + 1)

    def to_html(self) -> str:
        """A fragment with its own style; each cell opens on its replicates and their runs."""
        return self._rendered("html")

    def to_frame(self) -> pd.DataFrame:
        """One row a cell, plain columns: the factors, metric, mean, low, high, min, max, n (finished, of
        which the mean is), planned, counts, best, mark, and how many of its trials ran other code than the newest."""
        rows = []
        for row in self.rows:
            for column in self.columns:
                cell = self.cells.get((row, column))
                if cell is None:
                    continue
                factors = dict(zip((*self.row_factors, *self.column_factors), (*row, *column), strict=True))
                counts = {status.value: cell.statuses.get(status, 0) for status in Status}
                rows.append(
                    factors
                    | {
                        "metric": self.metric,
                        "mean": cell.mean,
                        "low": cell.low,
                        "high": cell.high,
                        "min": cell.least,
                        "max": cell.most,
                        "n": cell.n,
                    }
                    | {"planned": cell.planned, **counts, "interval": cell.method, "best": cell.best, "mark": cell.mark}
                    | {"other_code": cell.other_code}
                    | {"trial_ids": " ".join(r.trial_id for r in cell.replicates)}
                )
        frame = pd.DataFrame(rows)
        return frame.astype({name: "float64" for name in ("mean", "low", "high", "min", "max") if name in frame})

    def comparisons(self) -> pd.DataFrame:
        """One row a comparison: context, a, b, and all that `Comparison.to_dict` has; `raw_p` is the unadjusted p."""
        return pd.DataFrame(
            [
                dict(pair.context)
                | {"a": pair.a, "b": pair.b, "raw_p": pair.comparison.raw_p}
                | pair.comparison.to_dict()
                for pair in self.pairs
            ]
        )

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()
