"""What a table is made of: its cells with their replicates, and the comparisons between them."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from contrasweep.statistics import Comparison

Key = tuple[str, ...]
ARROWS: Mapping[str, str] = {"": "", "better": " ↑", "worse": " ↓"}
"""How a cell's mark is shown."""


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

    def to_text(self, decimals: int, spread: bool = False) -> str:
        """`0.912 [0.897, 0.930]`, with `spread` `0.912 [0.897, 0.930] (0.881–0.944)`; what is missing is counted, and
        nothing else stands for a number."""
        if self.mean is None or self.low is None or self.high is None:
            return self._missing()
        span = f" [{number(self.low, decimals)}, {number(self.high, decimals)}]" if self.low != self.high else ""
        if math.isinf(self.low):
            span = " [one replicate]"
        if spread and self.least is not None and self.most is not None and self.n > 1:
            span += f" ({number(self.least, decimals)}–{number(self.most, decimals)})"
        share = f" {self.n}/{self.planned}" if self.n < self.planned else ""
        return number(self.mean, decimals) + span + share + " †" * bool(self.other_code)

    def _missing(self) -> str:
        """Counts of what is not done: `2 failed, 3 pending`; one status alone goes without its count."""
        left = {status: count for status, count in self.statuses.items() if status != "done"}
        return next(iter(left)) if len(left) == 1 else ", ".join(f"{n} {status}" for status, n in left.items())


@dataclass(frozen=True)
class Pair:
    """`a` against `b` (labels of the compared factor) in `context` (factor, label pairs)."""

    context: tuple[tuple[str, str], ...]
    a: str
    b: str
    comparison: Comparison
    metric: str

    @property
    def decided(self) -> bool:
        """Whether the comparison has a verdict other than `undecided`."""
        return self.comparison.decided

    @property
    def sentence(self) -> str:
        """The comparison in words, with its place in the table."""
        where = ", ".join(f"{factor} {label}" for factor, label in self.context)
        return (f"{where}: " if where else "") + self.comparison.sentence(self.a, self.b)

    def seen_from(self, a: str) -> "Pair":
        """The same comparison with `a` first."""
        return self if self.a == a else replace(self, a=self.b, b=self.a, comparison=self.comparison.reversed())


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
