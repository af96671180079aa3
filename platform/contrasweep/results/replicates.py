"""The trials behind a table as replicates: one row a planned trial."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from contrasweep.results.cells import Key, label
from contrasweep.results.layout import Layout
from contrasweep.storage.record import Status

NOT_FINITE = "not finite"
LOST = (NOT_FINITE, Status.FAILED.value, Status.INFEASIBLE.value, Status.PRUNED.value)
"""What a trial is that was tried and gave no value; others without one are still to run."""


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


def cells_of(trials: pd.DataFrame, layout: Layout) -> pd.Series:
    """Of each trial the cell that is averaged over."""
    if not layout.pooled:
        return pd.Series("", trials.index)
    return pd.Series([" ".join(k) for k in zip(*(trials[f] for f in layout.pooled), strict=True)], trials.index)
