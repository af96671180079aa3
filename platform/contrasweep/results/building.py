"""From a frame of trials to the table: its cells, the comparisons that it makes, and what is marked in it."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, choose_from
from contrasweep.results.cells import Cell, Key, Pair, Replicate, label
from contrasweep.results.table import Table
from contrasweep.statistics import compare_paired, holm, mean_interval
from contrasweep.statistics.checks import group_means
from contrasweep.storage.record import Status

NOT_FINITE = "not finite"
OWN_COLUMNS = ("trial_id", "fold", "seed", "status", "seconds", "gpu_memory_gib")

SHARES = ("accuracy", "balanced_accuracy", "f1", "precision", "recall", "map", "ndcg", "auc", "auroc", "knn", "top")
"""Metrics of these names lie between 0 and 1, and so do their intervals."""


def build_table(
    frame: pd.DataFrame,
    *,
    rows: str | Sequence[str] | None,
    columns: str | Sequence[str] | None,
    metric: str,
    mode: Literal["max", "min"] = "max",
    alpha: float = 0.05,
    train_fraction: float | None = None,
    planned: pd.DataFrame | None = None,
    reference: str | None = None,
    links: Mapping[str, str] | None = None,
    axes: Sequence[str] | None = None,
    title: str = "",
    spread: bool = False,
) -> Table:
    """The table of `frame` (one row a trial: trial_id, arm, the axes, fold, seed, status, metrics).

    `rows` and `columns` are `arm`, an axis, or a list of these. Trials of `planned` that `frame` lacks count
    as pending. `train_fraction` is given where replicates are folds of one dataset: seeds of a fold are then
    averaged first. Without a `reference` arm every pair is compared; p-values are Holm's over the table.
    `axes` defaults to the columns between `arm` and `fold`; `links` maps trial ids to MLflow runs. `spread` shows
    (min-max) in the cells. A column `weight` of `frame` makes means weighted ones, where replicates are independent.
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
            raise SpecError(
                "the reference must be an arm of the table",
                place="reference",
                value=reference,
                hint=choose_from("arms", known, reference),
            )
    else:
        reference = None
    pairs = _holm(list(_pairs(trials, layout, metric, mode, alpha, train_fraction, reference)))
    cells = _marked(cells, layout, pairs, mode, reference)
    order = [_distinct(trials, factors) for factors in (layout.rows, layout.columns)]
    return Table(
        metric,
        mode,
        alpha,
        train_fraction,
        layout.rows,
        layout.columns,
        order[0],
        order[1],
        cells,
        tuple(pairs),
        layout.compared,
        layout.pooled,
        reference,
        title,
        spread,
    )


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
                raise SpecError(
                    "rows and columns are the arm or axes",
                    place="rows, columns",
                    value=name,
                    hint=choose_from("names", list(self.factors), name),
                )
            if self.shown.count(name) > 1:
                raise SpecError("a name stands in the rows or in the columns, once", place="rows, columns", value=name)
        if metric not in frame.columns and (frame["status"] == Status.DONE).any():
            known = [str(c) for c in frame.columns if c not in {*OWN_COLUMNS, *self.factors}]
            raise SpecError(
                "no trial reported this metric",
                place="metric",
                value=metric,
                hint=choose_from("metrics", known, metric),
            )


def _names(value: str | Sequence[str] | None) -> Key:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _trials(frame: pd.DataFrame, planned: pd.DataFrame | None, metric: str, factors: Key) -> pd.DataFrame:
    """One row a planned trial: labels of the factors, fold, seed, status and `value` (NaN unless done)."""
    if planned is not None:
        missing = planned[~planned["trial_id"].isin(frame["trial_id"])]
        frame = pd.concat([frame, missing.assign(status=Status.PENDING.value)], ignore_index=True)
    column = frame[metric] if metric in frame else pd.Series(np.nan, frame.index)
    values = pd.to_numeric(column, errors="coerce").astype("float64").to_numpy()
    status = frame["status"].astype(str).to_numpy(dtype=object)
    status[(status == Status.DONE) & ~np.isfinite(values)] = NOT_FINITE
    trials = pd.DataFrame({name: [label(v) for v in frame[name]] for name in factors})
    return trials.assign(
        weight=frame["weight"].to_numpy(dtype="float64") if "weight" in frame else 1.0,
        trial_id=frame["trial_id"].to_numpy(),
        fold=[label(v) for v in frame["fold"]],
        seed=[label(v) for v in frame["seed"]],
        status=status,
        value=np.where(status == Status.DONE, values, np.nan),
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


def _cells(
    trials: pd.DataFrame,
    layout: _Layout,
    metric: str,
    alpha: float,
    train_fraction: float | None,
    links: Mapping[str, str],
) -> dict[tuple[Key, Key], Cell]:
    cells = {}
    split = len(layout.rows)
    for key, part in _groups(trials, layout.shown):
        done = part[part["value"].notna()]
        interval, values = None, None
        if len(done):
            units = done.groupby(["fold", "seed"], sort=False)[["value", "weight"]].mean()
            folds = list(units.index.get_level_values("fold")) if train_fraction is not None else None
            values = group_means(units["value"].to_numpy(), folds)
            weights = units["weight"].to_numpy() if train_fraction is None else None
            interval = mean_interval(values, train_fraction=train_fraction, alpha=alpha, weights=weights)
        if interval is not None and metric.startswith(SHARES) and done["value"].between(0, 1).all():
            interval = replace(interval, low=max(0.0, interval.low), high=min(1.0, interval.high))
        replicates = tuple(
            Replicate(t, f, s, status, None if math.isnan(v) else float(v), links.get(t))
            for t, f, s, status, v in zip(
                *(part[c] for c in ("trial_id", "fold", "seed", "status", "value")), strict=True
            )
        )
        cells[key[:split], key[split:]] = Cell(
            mean=interval.mean if interval else None,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            n=len(done),
            statuses=dict(Counter(part["status"])),
            replicates=replicates,
            method=interval.method if interval else "",
            least=None if values is None else float(values.min()),
            most=None if values is None else float(values.max()),
        )
    return cells


def _pairs(
    trials: pd.DataFrame,
    layout: _Layout,
    metric: str,
    mode: Literal["max", "min"],
    alpha: float,
    train_fraction: float | None,
    reference: str | None,
) -> Iterator[Pair]:
    """Each two values of the compared factor in each context, over the replicates that both have done."""
    done = trials[trials["value"].notna()]
    side = [" ".join(key) for key in zip(*(done[f] for f in layout.compared), strict=True)] if layout.compared else ""
    done = done.assign(side=side)
    for key, part in _groups(done, layout.context):
        wide = part.pivot_table(index=["fold", "seed", *layout.pooled], columns="side", values="value", sort=False)
        unit = ["fold"] if train_fraction is not None else ["fold", "seed"]
        units = list(zip(*(wide.index.get_level_values(name) for name in unit), strict=True))
        values = {s: wide[s].to_numpy() for s in dict.fromkeys(part["side"])}
        weights = part.groupby(list(wide.index.names), sort=False)["weight"].mean().reindex(wide.index).to_numpy()
        for a, b in itertools.combinations(values, 2):
            both = np.isfinite(values[a]) & np.isfinite(values[b])
            if reference not in (None, a, b) or not both.any():
                continue
            first, second = (np.average(values[side][both], weights=weights[both]) for side in (a, b))
            if (first < second) == (mode == "max"):
                a, b = b, a
            comparison = compare_paired(
                values[a][both],
                values[b][both],
                train_fraction=train_fraction,
                alpha=alpha,
                mode=mode,
                groups=list(itertools.compress(units, both)),
                weights=None if train_fraction else weights[both],
            )
            yield Pair(tuple(zip(layout.context, key, strict=True)), a, b, comparison, comparison.p_value, metric)


def _holm(pairs: list[Pair]) -> list[Pair]:
    """The same pairs, judged by Holm's p over all of them."""
    p_values = holm([pair.raw_p for pair in pairs])
    return [
        replace(pair, comparison=pair.comparison.adjusted(float(p), len(pairs)))
        for pair, p in zip(pairs, p_values, strict=True)
    ]


def _marked(
    cells: dict[tuple[Key, Key], Cell], layout: _Layout, pairs: Sequence[Pair], mode: str, reference: str | None
) -> dict[tuple[Key, Key], Cell]:
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
        best_side, best_place = (max if mode == "max" else min)(full, key=lambda m: float(cells[m[1]].mean or 0.0))
        if len(members) > 1:
            marked[best_place] = replace(cells[best_place], best=True)
        against = best_side if reference is None else reference
        for side, place in members:
            if verdicts.get((context, against, side)) == "better":
                marked[place] = replace(marked[place], mark="worse")
            elif reference is not None and verdicts.get((context, side, against)) == "better":
                marked[place] = replace(marked[place], mark="better")
    return marked
