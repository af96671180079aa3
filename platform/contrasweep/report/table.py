"""The table of a study: means with intervals, the best marked, what is missing shown as missing, verdicts below."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, choose_from
from contrasweep.report import html_table, latex, text
from contrasweep.statistics import Comparison, compare_paired, holm, mean_interval
from contrasweep.statistics.checks import group_means

Key = tuple[str, ...]
DONE, PENDING, NOT_FINITE = "done", "pending", "not finite"
OWN_COLUMNS = ("trial_id", "fold", "seed", "status", "seconds", "gpu_memory_gib")

SHARES = (
    "accuracy",
    "balanced_accuracy",
    "f1",
    "precision",
    "recall",
    "map",
    "ndcg",
    "auc",
    "auroc",
    "knn",
    "top",
)
"""Metrics of these names lie between 0 and 1, and so do their intervals."""


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
    """One cell: `mean` in `low` to `high` over `n` finished replicates of `planned`.

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
    a replicate's value is its mean over them.
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

    @cached_property
    def decimals(self) -> int:
        """Decimals that show two digits of the typical half-width."""
        halves = [
            (c.high - c.low) / 2 for c in self.cells.values() if c.low is not None and c.high is not None
        ]
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
        """One row a cell, plain columns: the factors, metric, mean, low, high, n, planned, counts, best, mark."""
        records = []
        for row in self.rows:
            for column in self.columns:
                cell = self.cells.get((row, column))
                if cell is None:
                    continue
                factors = dict(zip((*self.row_factors, *self.column_factors), (*row, *column), strict=True))
                counts = {
                    s: cell.statuses.get(s, 0) for s in (DONE, PENDING, "failed", "infeasible", "pruned")
                }
                records.append(
                    factors
                    | {
                        "metric": self.metric,
                        "mean": cell.mean,
                        "low": cell.low,
                        "high": cell.high,
                        "n": cell.n,
                    }
                    | {
                        "planned": cell.planned,
                        **counts,
                        "interval": cell.method,
                        "best": cell.best,
                        "mark": cell.mark,
                    }
                    | {"trial_ids": " ".join(r.trial_id for r in cell.replicates)}
                )
        frame = pd.DataFrame(records)
        return frame.astype({name: "float64" for name in ("mean", "low", "high") if name in frame})

    def comparisons(self) -> pd.DataFrame:
        """One row a comparison: context, a, b, and all that `Comparison.to_dict` tells; `raw_p` unadjusted."""
        return pd.DataFrame([
            dict(pair.context) | {"a": pair.a, "b": pair.b, "raw_p": pair.raw_p} | pair.comparison.to_dict() for pair in self.pairs
        ])  # fmt: skip

    def __str__(self) -> str:
        return self.to_text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_html()


def build_table(frame: pd.DataFrame, *, rows: str | Sequence[str] | None, columns: str | Sequence[str] | None, metric: str,
                mode: Literal["max", "min"] = "max", alpha: float = 0.05, train_fraction: float | None = None,
                planned: pd.DataFrame | None = None, reference: str | None = None, links: Mapping[str, str] | None = None,
                axes: Sequence[str] | None = None, title: str = "") -> Table:  # fmt: skip
    """The table of `frame` (one row a trial: trial_id, arm, the axes, fold, seed, status, metrics).

    `rows` and `columns` are `arm`, an axis, or a list of these. Trials of `planned` that `frame` lacks count
    as pending. `train_fraction` is given where replicates are folds of one dataset: seeds of a fold are then
    averaged first. Without a `reference` arm every pair is compared; p-values are Holm's over the table.
    `axes` defaults to the columns between `arm` and `fold`; `links` maps trial ids to MLflow runs.
    """
    if axes is None:
        names = [str(c) for c in frame.columns]
        axes = names[names.index("arm") + 1 : names.index("fold")]
    layout = _Layout(_names(rows), _names(columns), tuple(axes))
    layout.check(metric, frame)
    trials = _trials(frame, planned, metric, layout.factors)
    cells = _cells(trials, layout, metric, alpha, train_fraction, links or {})
    if reference is not None and layout.compared == ("arm",):
        known = list(dict.fromkeys(trials["arm"]))
        if reference not in known:
            raise SpecError("the reference must be an arm of the table", place="reference", value=reference,
                            hint=choose_from("arms", known, reference))  # fmt: skip
    else:
        reference = None
    pairs = _holm(list(_pairs(trials, layout, metric, mode, alpha, train_fraction, reference)))
    cells = _marked(cells, layout, pairs, mode, reference)
    order = [_distinct(trials, factors) for factors in (layout.rows, layout.columns)]
    return Table(metric, mode, alpha, train_fraction, layout.rows, layout.columns, order[0], order[1], cells, tuple(pairs),
                 layout.compared, layout.pooled, reference, title)  # fmt: skip


@dataclass(frozen=True)
class _Layout:
    rows: Key
    columns: Key
    axes: Key

    @property
    def factors(self) -> Key:
        return ("arm", *self.axes)

    @property
    def shown(self) -> Key:
        return (*self.rows, *self.columns)

    @property
    def compared(self) -> Key:
        return ("arm",) if "arm" in self.shown else (self.columns or self.rows)

    @property
    def pooled(self) -> Key:
        return tuple(f for f in self.factors if f not in self.shown)

    @property
    def context(self) -> Key:
        return tuple(f for f in self.shown if f not in self.compared)

    def check(self, metric: str, frame: pd.DataFrame) -> None:
        for name in self.shown:
            if name not in self.factors:
                raise SpecError("rows and columns are the arm or axes", place="rows, columns", value=name,
                                hint=choose_from("names", list(self.factors), name))  # fmt: skip
            if self.shown.count(name) > 1:
                raise SpecError(
                    "a name stands in the rows or in the columns, once", place="rows, columns", value=name
                )
        if metric not in frame.columns and (frame["status"] == DONE).any():
            known = [str(c) for c in frame.columns if c not in {*OWN_COLUMNS, *self.factors}]
            raise SpecError("no trial reported this metric", place="metric", value=metric,
                            hint=choose_from("metrics", known, metric))  # fmt: skip


def _names(value: str | Sequence[str] | None) -> Key:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def label(value: Any) -> str:
    """An axis value as a table shows it; an en dash where a trial has no such axis."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    if value is None or (isinstance(value, float) and math.isnan(value)) or value is pd.NA:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _trials(frame: pd.DataFrame, planned: pd.DataFrame | None, metric: str, factors: Key) -> pd.DataFrame:
    """One row a planned trial: labels of the factors, fold, seed, status and `value` (NaN unless done)."""
    if planned is not None:
        missing = planned[~planned["trial_id"].isin(frame["trial_id"])]
        frame = pd.concat([frame, missing.assign(status=PENDING)], ignore_index=True)
    column = frame[metric] if metric in frame else pd.Series(np.nan, frame.index)
    values = pd.to_numeric(column, errors="coerce").astype("float64").to_numpy()
    status = frame["status"].astype(str).to_numpy(dtype=object)
    status[(status == DONE) & ~np.isfinite(values)] = NOT_FINITE
    trials = pd.DataFrame({name: [label(v) for v in frame[name]] for name in factors})
    return trials.assign(
        trial_id=frame["trial_id"].to_numpy(),
        fold=[label(v) for v in frame["fold"]],
        seed=[label(v) for v in frame["seed"]],
        status=status,
        value=np.where(status == DONE, values, np.nan),
    )


def _distinct(trials: pd.DataFrame, factors: Key) -> tuple[Key, ...]:
    if not factors:
        return ((),)
    return tuple(dict.fromkeys(zip(*(trials[f] for f in factors), strict=True)))


def _groups(trials: pd.DataFrame, factors: Key) -> Iterator[tuple[Key, pd.DataFrame]]:
    if not factors:
        yield (), trials
        return
    for key, part in trials.groupby(list(factors), sort=False):
        yield tuple(str(k) for k in key), part  # type: ignore[union-attr]


def _cells(trials: pd.DataFrame, layout: _Layout, metric: str, alpha: float, train_fraction: float | None,
           links: Mapping[str, str]) -> dict[tuple[Key, Key], Cell]:  # fmt: skip
    cells = {}
    split = len(layout.rows)
    for key, part in _groups(trials, layout.shown):
        done = part[part["value"].notna()]
        interval = None
        if len(done):
            units = done.groupby(["fold", "seed"], sort=False)["value"].mean()
            folds = list(units.index.get_level_values("fold")) if train_fraction is not None else None
            interval = mean_interval(
                group_means(units.to_numpy(), folds), train_fraction=train_fraction, alpha=alpha
            )
        if interval is not None and metric.startswith(SHARES) and done["value"].between(0, 1).all():
            interval = replace(interval, low=max(0.0, interval.low), high=min(1.0, interval.high))
        replicates = tuple(
            Replicate(t, f, s, status, None if math.isnan(v) else float(v), links.get(t))
            for t, f, s, status, v in zip(
                *(part[c] for c in ("trial_id", "fold", "seed", "status", "value")), strict=True
            )
        )
        cells[key[:split], key[split:]] = Cell(
            mean=interval.mean if interval else None, low=interval.low if interval else None,
            high=interval.high if interval else None, n=len(done), statuses=dict(Counter(part["status"])),
            replicates=replicates, method=interval.method if interval else "")  # fmt: skip
    return cells


def _pairs(trials: pd.DataFrame, layout: _Layout, metric: str, mode: Literal["max", "min"], alpha: float,
           train_fraction: float | None, reference: str | None) -> Iterator[Pair]:  # fmt: skip
    """Each two values of the compared factor in each context, over the replicates that both have done."""
    done = trials[trials["value"].notna()]
    side = (
        [" ".join(key) for key in zip(*(done[f] for f in layout.compared), strict=True)]
        if layout.compared
        else ""
    )
    done = done.assign(side=side)
    for key, part in _groups(done, layout.context):
        wide = part.pivot_table(
            index=["fold", "seed", *layout.pooled], columns="side", values="value", sort=False
        )
        unit = ["fold"] if train_fraction is not None else ["fold", "seed"]
        units = list(zip(*(wide.index.get_level_values(name) for name in unit), strict=True))
        values = {s: wide[s].to_numpy() for s in dict.fromkeys(part["side"])}
        for a, b in itertools.combinations(values, 2):
            both = np.isfinite(values[a]) & np.isfinite(values[b])
            if reference not in (None, a, b) or not both.any():
                continue
            if (values[a][both].mean() < values[b][both].mean()) == (mode == "max"):
                a, b = b, a
            found = compare_paired(values[a][both], values[b][both], train_fraction=train_fraction, alpha=alpha, mode=mode,
                                   groups=list(itertools.compress(units, both)))  # fmt: skip
            yield Pair(tuple(zip(layout.context, key, strict=True)), a, b, found, found.p_value, metric)


def _holm(pairs: list[Pair]) -> list[Pair]:
    """The same pairs, judged by Holm's p over all of them."""
    p_values = holm([pair.raw_p for pair in pairs])
    return [replace(pair, comparison=pair.comparison.adjusted(float(p), len(pairs)))
            for pair, p in zip(pairs, p_values, strict=True)]  # fmt: skip


def _marked(cells: dict[tuple[Key, Key], Cell], layout: _Layout, pairs: Sequence[Pair], mode: str,
            reference: str | None) -> dict[tuple[Key, Key], Cell]:  # fmt: skip
    """The best cell of every context marked, and those that differ from it (or from the reference)."""
    contexts: dict[Key, list[tuple[str, tuple[Key, Key]]]] = {}
    for place, cell in cells.items():
        value = dict(zip(layout.shown, (*place[0], *place[1]), strict=True))
        if cell.mean is not None:
            context = tuple(value[f] for f in layout.context)
            contexts.setdefault(context, []).append((" ".join(value[f] for f in layout.compared), place))
    verdicts = {(tuple(v for _, v in p.context), p.a, p.b): p.comparison.verdict for p in pairs}
    marked = dict(cells)
    for context, members in contexts.items():
        full = [m for m in members if cells[m[1]].n == cells[m[1]].planned] or members
        best_side, best_place = (max if mode == "max" else min)(
            full, key=lambda m: float(cells[m[1]].mean or 0.0)
        )
        if len(members) > 1:
            marked[best_place] = replace(cells[best_place], best=True)
        against = best_side if reference is None else reference
        for side, place in members:
            if verdicts.get((context, against, side)) == "better":
                marked[place] = replace(marked[place], mark="worse")
            elif reference is not None and verdicts.get((context, side, against)) == "better":
                marked[place] = replace(marked[place], mark="better")
    return marked
