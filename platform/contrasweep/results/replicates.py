"""The trials behind a table as replicates: one row a planned trial, and which of them arms have in common."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.results.cells import Key, label
from contrasweep.results.layout import Layout
from contrasweep.storage.record import Status

NOT_FINITE = "not finite"
LOST = (NOT_FINITE, Status.FAILED.value, Status.INFEASIBLE.value, Status.PRUNED.value)
"""What a trial is that was tried and gave no value; others without one are still to run."""
MOST_LEFT_OUT = 0.5
"""An arm with fewer than this share of the fullest arm's finished trials does not narrow what is common to the rest."""


def trials_of(frame: pd.DataFrame, planned: pd.DataFrame | None, metric: str, factors: Key) -> pd.DataFrame:
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


def used_trials(trials: pd.DataFrame, layout: Layout) -> Any:
    """Which trials the means of a table are over, bool [n]: where an arm has gaps, the replicates that all arms of the
    same context have finished, in every cell that is averaged. An arm with very few of them is left out of this, and
    its own mean is over its own."""
    used = trials["value"].notna().to_numpy(copy=True)
    work = trials.assign(side=sides_of(trials, layout), cell=cells_of(trials, layout), used=used, at=range(len(trials)))
    for _, part in groups_of(work, layout.context):
        done = part[part["used"]]
        counts = done["side"].value_counts()
        if not len(counts):
            continue
        full = list(counts[counts >= MOST_LEFT_OUT * counts.max()].index)
        common = _common(done[done["side"].isin(full)], full)
        for side in counts.index:
            rows = done[done["side"] == side]
            keys = _keys(rows) if side in full else []
            if side in full and common:
                used[rows["at"]] = [key in common for key in keys]
            elif side not in full:
                used[rows["at"]] = _own(rows)
    return used


def cells_of(trials: pd.DataFrame, layout: Layout) -> pd.Series:
    """Of each trial the cell that is averaged over."""
    if not layout.pooled:
        return pd.Series("", trials.index)
    return pd.Series([" ".join(k) for k in zip(*(trials[f] for f in layout.pooled), strict=True)], trials.index)


def _keys(rows: pd.DataFrame) -> list[tuple[str, str, str]]:
    return list(zip(rows["cell"], rows["fold"], rows["seed"], strict=True))


def _common(done: pd.DataFrame, sides: list[str]) -> set[tuple[str, str, str]]:
    """The (cell, fold, seed) that every side has, of the replicates that have every cell that any has."""
    held = [set(_keys(done[done["side"] == side])) for side in sides]
    common = set.intersection(*held)
    return _complete(common)


def _complete(keys: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    cells = {cell for cell, _, _ in keys}
    count: dict[tuple[str, str], int] = {}
    for _, fold, seed in keys:
        count[fold, seed] = count.get((fold, seed), 0) + 1
    return {key for key in keys if count[key[1:]] == len(cells)}


def _own(rows: pd.DataFrame) -> list[bool]:
    """Of one arm's finished trials those whose replicate has all of its cells, or all of them where none has."""
    complete = _complete(set(_keys(rows)))
    return [not complete or key in complete for key in _keys(rows)]
