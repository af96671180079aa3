"""What single trials add to a study's report: their own figures, and comparisons item by item of one test part."""

import base64
from collections.abc import Mapping, Sequence

import pandas as pd

from contrasweep.errors import StorageError
from contrasweep.report.data import Variables
from contrasweep.results.cells import label
from contrasweep.results.items import MAX_PAIRS, row_keys
from contrasweep.results.table import Table
from contrasweep.rows import FrameRow
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords

MAX_FIGURES = 24
MAX_BYTES = 4 * 2**20  # of all figures together: a report stays a file that one can mail


def figures(
    study: StudyRecords, frame: pd.DataFrame, records: Mapping[str, Record], axes: list[str]
) -> list[tuple[str, bytes]]:
    """The PNG artifacts of each cell's first finished trial, as (caption, content), within the limits above."""
    done = frame[frame["status"] == Status.DONE]
    first = done[~row_keys(done, ["arm", *axes]).duplicated()]
    kept: list[tuple[str, bytes]] = []
    for row in first.to_dict("records"):
        record = records[row["trial_id"]]
        for name in (n for n in record.artifacts if n.endswith(".png")):
            try:
                content = study.store.read(study.key(record.trial_id, f"artifacts/{name}"), MAX_BYTES)
            except (FileNotFoundError, StorageError):
                continue
            if len(kept) == MAX_FIGURES or sum(len(c) for _, c in kept) + len(content) > MAX_BYTES:
                return kept
            where = " ".join([str(row["arm"]), *(f"{axis}={row[axis]}" for axis in axes)])
            fold = "" if pd.isna(row["fold"]) else f", fold {row['fold']}"
            kept.append((f"{name.removesuffix('.png')}: {where}{fold}, seed {row['seed']}", content))
    return kept


def figures_section(images: Sequence[tuple[str, bytes]]) -> Variables:
    """The figures, inside the page."""
    return {"images": [(caption, base64.b64encode(png).decode()) for caption, png in images]} if images else {}


def items_section(rows: Sequence[FrameRow], axes: Sequence[str], tables: Sequence[Table]) -> Variables:
    """Test items pooled over folds, a table for each score; then the comparisons of single replicates: one row an
    item's name and pair of arms, and every replicate of it on demand."""
    if not rows and not tables:
        return {}
    keys = ["item", "a", "b", *axes]
    single = [
        [label(row[key]) for key in [*keys, "fold", "seed"]]
        + [f"{row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"]
        for row in rows
    ]
    return {
        "tables": tables,
        "summary": _summary(pd.DataFrame(rows), keys) if rows else [],
        "single": [[*keys, "fold", "seed", "difference [95 %]"], *single],
        "max_pairs": MAX_PAIRS,
    }


def _summary(frame: pd.DataFrame, keys: list[str]) -> list[list[str]]:
    frame[keys] = frame[keys].map(label)
    frame["ahead"], frame["behind"] = frame["low"] > 0, frame["high"] < 0
    groups = (
        frame.groupby(keys, sort=False)
        .agg(
            replicates=("n", "size"),
            n=("n", "first"),
            difference=("difference", "mean"),
            ahead=("ahead", "sum"),
            behind=("behind", "sum"),
        )
        .reset_index()
    )
    rows = [
        [str(row[key]) for key in keys]
        + [
            str(row["n"]),
            f"{row['difference']:+.4f}",
            f"{row['ahead']} of {row['replicates']}",
            f"{row['behind']} of {row['replicates']}",
        ]
        for row in groups.to_dict("records")
    ]
    return [[*keys, "items", "mean difference", "a is ahead in", "behind in"], *rows]
