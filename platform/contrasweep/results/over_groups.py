"""A study over its test items: every item of all test folds, scored by networks that did not train on it.

Five folds are five replicates, few for any verdict, though they hold thousands of items of many scenes. Where trials
report a score of each item, arms are compared over the groups that the items come from (or the items themselves, where
nothing groups them): folds are pooled, seeds averaged, and a group is one replicate. What this holds is the choice
of test scenes for the networks as trained; what another training part would change is what the folds' table judges.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.data.folds import NAMELESS
from contrasweep.data.reading import GROUP
from contrasweep.errors import SpecError, StorageError, choose_from
from contrasweep.results.building import build_table
from contrasweep.results.table import Table
from contrasweep.storage.record import Record, Status

WITHOUT = "without items"
Items = Callable[[str], Mapping[str, Any]]
"""A trial's id -> its items."""


def scores(records: Mapping[str, Record]) -> list[str]:
    """The scores of test items that the trials reported."""
    return list(dict.fromkeys(name for record in records.values() for name in record.items if name != GROUP))


def chosen_score(records: Mapping[str, Record], metric: str | None, own: str) -> str:
    """The score called `metric`; without one the study's `own`, or the only one. `SpecError` lists what there is."""
    known = scores(records)
    wanted = metric or (own if own in known or len(known) != 1 else known[0])
    if wanted not in known:
        hint = choose_from("scores", known, wanted) if known else "its trials reported none (Report.items)"
        raise SpecError(
            "over groups a table needs a score of single test items", place="metric", value=wanted, hint=hint
        )
    return wanted


def table_over_groups(
    items: Items, frame: pd.DataFrame, records: Mapping[str, Record], axes: Sequence[str], score: str, **layout: Any
) -> Table:
    """The table of `score` over groups; `items` reads a trial's, `frame` and `layout` are those of `build_table`.

    A group has the mean score of its items and their number as weight, so that means are means over items. A fold
    counts for an arm once every seed of it is done; until then its groups stand as what is missing. `StorageError` if
    trials of one fold disagree about the items of its test part.
    """
    done = frame[
        [
            status == Status.DONE and score in records[trial].items
            for trial, status in zip(frame["trial_id"], frame["status"], strict=True)
        ]
    ]
    of = {
        trial: (records[trial].data.digest, _fold(fold))
        for trial, fold in zip(done["trial_id"], done["fold"], strict=True)
    }
    parts = _Parts(items, score, of)
    table = build_table(pd.DataFrame(_rows(parts, frame, axes)), axes=axes, metric=score, train_fraction=None, **layout)
    # a group is no trial: a cell opens on none
    cells = {place: replace(cell, replicates=()) for place, cell in table.cells.items()}
    return replace(table, cells=cells, unit=f"{parts.what}, folds pooled, seeds averaged")


def _rows(parts: "_Parts", frame: pd.DataFrame, axes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row an arm, cell and group."""
    cells = pd.Series([repr(tuple(row)) for row in frame[["arm", *axes]].itertuples(index=False)], frame.index)
    for _, cell in frame.groupby(cells, sort=False):
        same = {name: cell.iloc[0][name] for name in ("arm", *axes)} | {"fold": None, "weight": 1.0}
        known = next((parts.of[trial][0] for trial in cell["trial_id"] if trial in parts.of), "")
        values: dict[str, list[float]] = {}
        missing: dict[str, str] = {}
        for fold, trials in cell.groupby(cell["fold"].map(_fold), sort=False):
            lacking = [
                status
                for trial, status in zip(trials["trial_id"], trials["status"], strict=True)
                if trial not in parts.of
            ]
            if lacking:
                status = next((status for status in lacking if status != Status.DONE), WITHOUT)
                missing |= dict.fromkeys(parts.groups.get((known, fold), [f"fold {fold}"]), status)
                continue
            for name, value in zip(parts.groups[known, fold], parts.mean(trials["trial_id"]), strict=True):
                values.setdefault(name, []).append(value)
        for name in dict.fromkeys([*values, *missing]):
            # the dataset too, since datasets can be an axis and their groups are not the same ones
            row = same | {"trial_id": name, "seed": f"{known} {name}", "status": missing.get(name, Status.DONE.value)}
            yield (
                row
                if name in missing
                else row | {parts.score: float(np.mean(values[name])), "weight": float(len(values[name]))}
            )


class _Parts:
    """The test parts of a study, as its finished trials `of` (dataset and fold of each) tell them."""

    def __init__(self, items: Items, score: str, of: Mapping[str, tuple[str, str]]) -> None:
        self.items, self.score, self.named = items, score, True
        self.of = {trial: part for trial, part in of.items() if score in items(trial)}
        self.groups: dict[tuple[str, str], list[str]] = {}
        """The group of each item, by dataset and fold. Trials that name none have those of the others."""
        for trial, part in sorted(self.of.items(), key=lambda entry: GROUP not in items(entry[0])):
            scored, (_, fold) = items(trial), part
            names = groups(scored, len(scored[score]), f"fold {fold} ")
            self.named &= GROUP in scored or part in self.groups
            known = self.groups.setdefault(part, names)
            if len(known) != len(names) or (GROUP in scored and known != names):
                raise StorageError(
                    f"trial {trial} has other test items than the other trials of fold {fold}: {len(names)}, not "
                    f"{len(known)}, or of "
                    "other groups; one of them was run by other code: remove it and run it again"
                )

    def mean(self, trials: Iterable[str]) -> list[float]:
        """The score of each item, averaged over the seeds of a fold."""
        return list(np.mean([np.asarray(self.items(trial)[self.score], dtype=np.float64) for trial in trials], axis=0))

    @property
    def what(self) -> str:
        """What a replicate is."""
        if not self.named:
            return "test items, taken as independent since nothing names their groups"
        folds: dict[tuple[str, str], set[str]] = {}
        for (data, fold), names in self.groups.items():
            for name in set(names):
                folds.setdefault((data, name), set()).add(fold)
        shared = sum(len(in_folds) > 1 for in_folds in folds.values())
        return "groups of test items" + f" ({shared} of them in several folds, so partly trained on)" * bool(shared)


def groups(items: Mapping[str, Any], n: int, where: str = "") -> list[str]:
    """The group of each of `n` items; one that has no name is a group of its own."""
    names = items.get(GROUP, [None] * n)
    return [f"{where}item {i}" if name in NAMELESS else str(name) for i, name in enumerate(names)]


def _fold(fold: Any) -> str:
    return "-" if pd.isna(fold) else str(fold)
