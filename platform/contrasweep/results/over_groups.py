"""A study over its test items: every item of all test folds, scored by networks that did not train on it.

Where trials report a score of each item, arms are compared by the mean over all items. Items of one fold are scored by
the same networks, and what another training would have made of them is no property of the items: so a fold (and its
seeds) is the cluster, weighted by its number of items, and what is found holds for new items like these. The choice of
training rows is what the folds' own table judges. On one split seeds and groups of items are crossed instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.data.reading import GROUP
from contrasweep.errors import SpecError, StorageError, choose_from
from contrasweep.results.building import build_table
from contrasweep.results.comparing import Judging
from contrasweep.results.item_reader import Items, read_ahead
from contrasweep.results.item_values import item_groups, item_values
from contrasweep.results.table import Table
from contrasweep.rows import FrameRow
from contrasweep.storage.record import Record, Status

WITHOUT = "without items"


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
    items: Items,
    frame: pd.DataFrame,
    records: Mapping[str, Record],
    axes: Sequence[str],
    score: str,
    *,
    judging: Judging,
    **layout: Any,
) -> Table:
    """The table of `score` over test items; `items` reads a trial's, `frame` and `layout` are those of `build_table`.

    `StorageError` if trials of one fold disagree about the items of its test part.
    """
    parts = _Parts(items, score, frame, records)
    rows = pd.DataFrame(_rows(parts, frame, axes))
    crossed = None
    if judging.design.folds:
        judging = replace(judging, design=replace(judging.design, shared=False))
    else:
        crossed = item_values(items, frame, records, score, whole=False)
    if crossed is not None:
        judging = replace(judging, design=replace(judging.design, items=max(map(len, crossed.sizes.values()))))
    table = build_table(rows, axes=axes, metric=score, judging=judging, items=crossed, **layout)
    return replace(table, unit=f"{parts.replicates}, {parts.what}")


def _rows(parts: "_Parts", frame: pd.DataFrame, axes: Sequence[str]) -> Iterator[FrameRow]:
    """One row a trial, with the mean score of its items and their number."""
    for row in frame.to_dict("records"):
        same = {str(name): row[name] for name in ("trial_id", "arm", *axes, "fold", "seed")}
        known = row["trial_id"] in parts.of
        status = row["status"] if known or row["status"] != Status.DONE else WITHOUT
        if not known:
            yield same | {"status": status, "weight": 1.0}
            continue
        values = np.asarray(parts.items(row["trial_id"])[parts.score], dtype=np.float64)
        yield same | {"status": status, parts.score: float(values.mean()), "weight": float(len(values))}


class _Parts:
    """The test parts of a study, as its finished trials `of` (dataset and fold of each) tell them."""

    def __init__(self, items: Items, score: str, frame: pd.DataFrame, records: Mapping[str, Record]) -> None:
        self.items, self.score, self.named = items, score, True
        done = [
            (trial, (records[trial].data.digest, "-" if pd.isna(fold) else str(fold)))
            for trial, fold, status in zip(frame["trial_id"], frame["fold"], frame["status"], strict=True)
            if status == Status.DONE and score in records[trial].items
        ]
        read_ahead(items, [trial for trial, _ in done])
        self.of = {trial: part for trial, part in done if score in items(trial)}
        self.groups: dict[tuple[str, str], list[str]] = {}
        """The group of each item, by dataset and fold. Trials that name none have those of the others."""
        for trial, part in sorted(self.of.items(), key=lambda entry: GROUP not in items(entry[0])):
            scored, (_, fold) = items(trial), part
            names = item_groups(scored, len(scored[score]), f"fold {fold} ")
            self.named &= GROUP in scored or part in self.groups
            known = self.groups.setdefault(part, names)
            if len(known) != len(names) or (GROUP in scored and known != names):
                raise StorageError(
                    f"trial {trial} has other test items than the other trials of fold {fold}: {len(names)}, not "
                    f"{len(known)}, or of "
                    "other groups; one of them was run by other code: remove it and run it again"
                )

    @property
    def replicates(self) -> str:
        """What the replicates are."""
        return "folds weighted by their items" if any(fold != "-" for _, fold in self.groups) else "seeds and items"

    @property
    def what(self) -> str:
        """What was pooled: how many items, of how many groups."""
        count = sum(map(len, self.groups.values()))
        if not self.named:
            return f"{count} test items"
        folds: dict[tuple[str, str], set[str]] = {}
        for (data, fold), names in self.groups.items():
            for name in set(names):
                folds.setdefault((data, name), set()).add(fold)
        shared = sum(len(in_folds) > 1 for in_folds in folds.values())
        note = f" ({shared} of them in several folds, so partly trained on)" if shared else ""
        return f"{count} test items of {len(folds)} groups{note}"
