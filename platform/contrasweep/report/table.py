"""The table of a study: means with intervals, the best marked, what is missing shown as missing, verdicts below."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from contrasweep.report import html_table, latex, text
from contrasweep.statistics import Comparison

Key = tuple[str, ...]
DONE, PENDING = "done", "pending"


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
    """One cell: `mean` in `low` to `high` over `n` finished replicates of `planned`; `least` and `most` are the
    outermost of what was averaged (folds, seeds of a fold averaged, or replicates).

    `statuses` counts its trials by status; `best` marks the best of its comparisons, `mark` is `better` or
    `worse` than the reference (or `worse` than the best), by Holm, or empty.
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
    mark: Literal["", "better", "worse"] = ""

    @property
    def planned(self) -> int:
        return sum(self.statuses.values())


@dataclass(frozen=True)
class Pair:
    """`a` against `b` (labels of the compared factor) in `context` (factor, label pairs); the comparison's p
    is Holm's over the table, `raw_p` the unadjusted one."""

    context: tuple[tuple[str, str], ...]
    a: str
    b: str
    comparison: Comparison
    raw_p: float
    metric: str

    @property
    def sentence(self) -> str:
        where = ", ".join(f"{factor} {label}" for factor, label in self.context)
        return (f"{where}: " if where else "") + self.comparison.sentence(self.a, self.b)


@dataclass(frozen=True)
class Table:
    """Cells by (row, column), in the order of the study, with every comparison that the table makes.

    `compared` names the factor whose values are set against each other: the arms, or what stands in the
    columns where no arm is in the table. `pooled` are the axes that stand in neither rows nor columns:
    a replicate's value is its mean over them. With `spread` a cell tells (min-max) too, as papers' tables do.
    `unit` says what its replicates are where they are no folds.
    """

    metric: str
    mode: Literal["max", "min"]
    alpha: float
    train_fraction: float | None
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
    spread: bool = False
    unit: str = "replicates"

    @cached_property
    def decimals(self) -> int:
        """Decimals that show two digits of the typical half-width."""
        halves = [(c.high - c.low) / 2 for c in self.cells.values() if c.low is not None and c.high is not None]
        halves = [h for h in halves if math.isfinite(h) and h > 0]
        return int(np.clip(1 - math.floor(math.log10(np.median(halves))), 0, 6)) if halves else 3

    @property
    def legend(self) -> list[str]:
        """What the marks and brackets mean, and what the table leaves out, as sentences."""
        return text.legend(self)

    def to_text(self, width: int = 100) -> str:
        """For a terminal of `width` columns; too wide a table is split by columns."""
        return text.to_text(self, width)

    def to_markdown(self) -> str:
        return text.to_markdown(self)

    def to_latex(self) -> str:
        """A table environment; needs \\usepackage{booktabs}."""
        return latex.to_latex(self)

    def to_html(self) -> str:
        """A fragment with its own style; each cell opens on its replicates and their runs."""
        return html_table.to_html(self)

    def to_frame(self) -> pd.DataFrame:
        """One row a cell, plain columns: the factors, metric, mean, low, high, min, max, n, planned, counts, best,
        mark."""
        records = []
        for row in self.rows:
            for column in self.columns:
                cell = self.cells.get((row, column))
                if cell is None:
                    continue
                factors = dict(zip((*self.row_factors, *self.column_factors), (*row, *column), strict=True))
                counts = {s: cell.statuses.get(s, 0) for s in (DONE, PENDING, "failed", "infeasible", "pruned")}
                records.append(
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
                    | {"trial_ids": " ".join(r.trial_id for r in cell.replicates)}
                )
        frame = pd.DataFrame(records)
        return frame.astype({name: "float64" for name in ("mean", "low", "high", "min", "max") if name in frame})

    def comparisons(self) -> pd.DataFrame:
        """One row a comparison: context, a, b, and all that `Comparison.to_dict` tells; `raw_p` unadjusted."""
        return pd.DataFrame(
            [
                dict(pair.context) | {"a": pair.a, "b": pair.b, "raw_p": pair.raw_p} | pair.comparison.to_dict()
                for pair in self.pairs
            ]
        )

    def __str__(self) -> str:
        return self.to_text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_html()


def label(value: Any) -> str:
    """An axis value as a table shows it; an en dash where a trial has no such axis."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    if value is None or (isinstance(value, float) and math.isnan(value)) or value is pd.NA:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)
