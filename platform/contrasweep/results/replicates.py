"""The trials behind a table as replicates: which factor stands where in it, and one row a planned trial."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, choose_from
from contrasweep.results.cells import Key, label
from contrasweep.storage.record import COUNTING, Cause, Status

OWN_COLUMNS = ("trial_id", "fold", "seed", "status", "cause", "seconds", "gpu_memory_gib")


@dataclass(frozen=True)
class Layout:
    """The factors (the arm and axes) in the rows and in the columns of a table, of the study's `axes`."""

    rows: Key
    columns: Key
    axes: Key

    @property
    def factors(self) -> Key:
        """The arm and every axis."""
        return ("arm", *self.axes)

    @property
    def shown(self) -> Key:
        """The factors in rows or columns."""
        return (*self.rows, *self.columns)

    @property
    def compared(self) -> Key:
        """The factor whose values are set against each other: the arm, or what stands in the columns without it."""
        return ("arm",) if "arm" in self.shown else (self.columns or self.rows)

    @property
    def pooled(self) -> Key:
        """The factors that stand nowhere: a replicate's value is its mean over them."""
        return tuple(f for f in self.factors if f not in self.shown)

    @property
    def context(self) -> Key:
        """The factors that are fixed in a comparison."""
        return tuple(f for f in self.shown if f not in self.compared)

    def answers(self, question: str | None) -> bool:
        """Whether this table's comparisons are the family of a study with this question."""
        if question is None or self.compared != ("arm",):
            return False
        return not self.context if question == "overall" else not self.pooled

    def check(self, metric: str, frame: pd.DataFrame) -> None:
        """`SpecError` for unknown or repeated factors, and for a metric that no finished trial has."""
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
        if metric not in frame.columns and frame["status"].isin(COUNTING).any():
            known = [str(c) for c in frame.columns if c not in {*OWN_COLUMNS, *self.factors}]
            raise SpecError(
                "no trial reported this metric",
                place="metric",
                value=metric,
                hint=choose_from("metrics", known, metric),
            )


def names_of(value: str | Sequence[str] | None) -> Key:
    """One name, several or none as a tuple."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


NOT_FINITE = "not finite"
LOST = (NOT_FINITE, *(status.value for status in Status if status.lost and not status.infeasible))
"""What a trial is that was tried and gave no value; others without one are missing or still to run."""
OUTSIDE = tuple(cause.value for cause in Cause if cause.outside)


def trials_of(frame: pd.DataFrame, planned: pd.DataFrame | None, metric: str, factors: Key) -> pd.DataFrame:
    """One row a planned trial: labels of the factors, fold, seed, status, `value` (NaN unless done), and why there is
    none: `lost`, which counts as a loss, or `missing`, by a cause outside the method; else it is still to run."""
    if planned is not None:
        missing = planned[~planned["trial_id"].isin(frame["trial_id"])]
        frame = pd.concat([frame, missing.assign(status=Status.PENDING.value)], ignore_index=True)
    column = frame[metric] if metric in frame else pd.Series(np.nan, frame.index)
    values = pd.to_numeric(column, errors="coerce").astype("float64").to_numpy()
    status = frame["status"].astype(str).to_numpy(dtype=object)
    status[np.isin(status, list(COUNTING)) & ~np.isfinite(values)] = NOT_FINITE
    outside = frame["cause"].isin(OUTSIDE).to_numpy() if "cause" in frame else np.zeros(len(frame), dtype=bool)
    missing = (status == Status.INFEASIBLE.value) | ((status == Status.FAILED.value) & outside)
    trials = pd.DataFrame({name: [label(v) for v in frame[name]] for name in factors})
    return trials.assign(
        weight=frame["weight"].to_numpy(dtype="float64") if "weight" in frame else 1.0,
        trial_id=frame["trial_id"].to_numpy(),
        fold=[label(v) for v in frame["fold"]],
        seed=[label(v) for v in frame["seed"]],
        status=status,
        lost=np.isin(status, LOST) & ~missing,
        missing=missing,
        value=np.where(np.isin(status, list(COUNTING)), values, np.nan),
    )


def groups_of(trials: pd.DataFrame, factors: Key) -> Iterator[tuple[Key, pd.DataFrame]]:
    """The trials of each combination of `factors`, in the order of the study."""
    if not factors:
        yield (), trials
        return
    for key, part in trials.groupby(list(factors), sort=False):
        yield tuple(str(k) for k in key), part  # type: ignore[union-attr]


def distinct(trials: pd.DataFrame, factors: Key) -> tuple[Key, ...]:
    """The combinations of `factors` that there are."""
    if not factors:
        return ((),)
    return tuple(dict.fromkeys(zip(*(trials[f] for f in factors), strict=True)))


def sides_of(trials: pd.DataFrame, layout: Layout) -> pd.Series:
    """Of each trial the value of what is compared."""
    if not layout.compared:
        return pd.Series("", trials.index)
    return pd.Series([" ".join(k) for k in zip(*(trials[f] for f in layout.compared), strict=True)], trials.index)


def cells_of(trials: pd.DataFrame, layout: Layout) -> pd.Series:
    """Of each trial the cell that is averaged over."""
    if not layout.pooled:
        return pd.Series("", trials.index)
    return pd.Series([" ".join(k) for k in zip(*(trials[f] for f in layout.pooled), strict=True)], trials.index)
