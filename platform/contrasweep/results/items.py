"""What a study's trials say of single test items: arms compared item by item, and tables over groups of items."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.data.reading import GROUP
from contrasweep.errors import StorageError
from contrasweep.results.item_reader import Items, read_ahead
from contrasweep.results.item_values import item_groups
from contrasweep.results.over_groups import scores
from contrasweep.results.results import Results
from contrasweep.results.table import Table
from contrasweep.rows import FrameRow
from contrasweep.statistics import paired_bootstrap
from contrasweep.storage.record import Record, Status

MAX_PAIRS = 60  # of trials compared
MAX_READ, MAX_TABLES = 400, 6  # trials whose items are read at all, and scores that have a table of them


def by_item(
    items: Items, frame: pd.DataFrame, records: Mapping[str, Record], axes: list[str], reference: str | None = None
) -> list[FrameRow]:
    """Arms compared on the very same test items (with `reference` alone, if given), one replicate at a time: the paired
    bootstrap over items, of whole groups where these are named.

    It holds the noise of the test items only, not that of training; a fact about two trained models.
    """
    rows = []
    pairs = list(itertools.islice(_pairs(frame, records, axes, reference), MAX_PAIRS))
    read_ahead(items, [row["trial_id"] for pair in pairs for row in pair])
    for first, second in pairs:
        ours, theirs = items(first["trial_id"]), items(second["trial_id"])
        for name in sorted((set(ours) & set(theirs)) - {GROUP}):
            if len(ours[name]) != len(theirs[name]):  # other code ran one of them; a table over groups says so
                continue
            kept = np.isfinite(ours[name]) & np.isfinite(theirs[name])  # no similarity to a class that is not there
            names = np.array(item_groups(ours, len(kept)))[kept]
            if len(set(names)) < 2:  # there is nothing to draw
                continue
            difference, low, high = paired_bootstrap(
                ours[name][kept], theirs[name][kept], groups=names if GROUP in ours else None
            )
            rows.append(
                {
                    "item": name,
                    "a": first["arm"],
                    "b": second["arm"],
                    **{axis: first[axis] for axis in axes},
                    "fold": first["fold"],
                    "seed": first["seed"],
                    "n": int(kept.sum()),
                    "difference": difference,
                    "low": low,
                    "high": high,
                }
            )
    return rows


def tables_over_groups(results: Results) -> list[Table]:
    """The table over groups of test items of each score, the study's metric first, within the limits above."""
    known = scores(results.trial_records)
    with_items = [record for record in results.trial_records.values() if record.items]
    if not 1 < len(with_items) <= MAX_READ or not any(GROUP in record.items for record in with_items):
        return []
    first = [name for name in known if name == results.metric]
    tables = []
    for name in [*first, *(n for n in known if n not in first)][:MAX_TABLES]:
        with contextlib.suppress(StorageError):  # of trials that disagree about their items; the table itself says so
            tables.append(results.table(metric=name, over="groups"))
    return tables


def _pairs(
    frame: pd.DataFrame, records: Mapping[str, Record], axes: list[str], reference: str | None
) -> Iterator[tuple[FrameRow, FrameRow]]:
    """Finished trials of two arms that share axes, fold and seed, where both left items. The reference comes first."""
    done = frame[frame["status"] == Status.DONE]
    for _, same in done.groupby(row_keys(done, [*axes, "fold", "seed"]), sort=False):
        rows: list[Any] = [row for row in same.to_dict("records") if records[row["trial_id"]].items]
        rows.sort(key=lambda row: row["arm"] != reference)
        yield from (
            pair for pair in itertools.combinations(rows, 2) if reference is None or pair[0]["arm"] == reference
        )


def row_keys(frame: pd.DataFrame, names: list[str]) -> pd.Series:
    """One text a row, because values of axes need not be hashable."""
    return pd.Series(
        [repr(tuple(row)) for row in frame[names].itertuples(index=False)], index=frame.index, dtype=object
    )
