"""Single trials in a report: the list of all, their own figures, and comparisons item by item of one test part."""

import base64
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from contrasweep.data.reading import GROUP
from contrasweep.errors import StorageError
from contrasweep.report.data import ReportData, Variables
from contrasweep.report.searching import parallel_figure
from contrasweep.results.building import scores
from contrasweep.results.items import MAX_PAIRS, row_keys
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.results import Results
from contrasweep.results.table import Table, label
from contrasweep.storage.record import COUNTING, Record
from contrasweep.storage.records import StudyRecords

LARGEST = 20_000


def trials_section(data: ReportData) -> Variables:
    """All trials as lines over their settings, and as data: one array of values a trial, its run last."""
    parallel, frame = parallel_figure(data), data.frame.head(LARGEST)
    if frame.empty:
        return {}
    texts = ["arm", *data.axes, "fold", "seed", "status"]
    numbers = [name for name in (data.metric, "seconds") if name in frame]
    links = list(data.links.values())
    start = os.path.commonprefix(links) if len(links) > 1 else ""  # noqa: RUF071  # characters it is
    columns: list[list[Any]] = [[data.names(label(v)) for v in frame[name]] for name in texts]
    columns += [[None if pd.isna(v) else round(float(v), 6) for v in frame[name]] for name in numbers]
    columns += [
        list(frame["trial_id"].astype(str)),
        [data.links.get(i, start)[len(start) :] for i in frame["trial_id"]],
    ]
    listed = {
        "head": [*map(data.names, [*texts, *numbers]), "trial"],
        "start": start,
        "rows": list(zip(*columns, strict=True)),
    }
    first = data.names(data.arms[0])
    example = f"{first} {data.names(data.axes[0])}={columns[1][0]}" if data.axes else f"{first} failed"
    logs = data.log_command("TRIAL")
    return {
        "logs": logs,
        "parallel": parallel,
        "listed": listed,
        "example": example,
        "omitted": len(data.frame) - len(frame),
    }


MAX_READ, MAX_TABLES = 400, 6  # trials whose items are read at all, and scores that have a table of them
MAX_FIGURES = 24
MAX_BYTES = 4 * 2**20  # of all figures together: a report stays a file that one can mail


def figures(
    study: StudyRecords, frame: pd.DataFrame, records: Mapping[str, Record], axes: list[str]
) -> list[tuple[str, bytes]]:
    """The PNG artifacts of each cell's first finished trial, as (caption, content), within the limits above."""
    done = frame[frame["status"].isin(COUNTING)]
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


def items_section(data: ReportData) -> Variables:
    """Return the tables over test items of all folds, one a score, and the comparisons of single replicates.

    The latter have one row an item's name and pair of arms, and every replicate of it on demand.
    """
    rows, tables, names = data.by_item, data.over_groups, data.names
    if not rows and not tables:
        return {}
    keys = ["item", "a", "b", *data.axes]
    single = [
        [names(label(row[key])) for key in [*keys, "fold", "seed"]]
        + [f"{row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"]
        for row in rows
    ]
    return {
        "tables": tables,
        "summary": _summary(pd.DataFrame(rows), keys, names) if rows else [],
        "single": [[*map(names, keys), "fold", "seed", "difference [95 %]"], *single],
        "max_pairs": MAX_PAIRS,
    }


def _summary(frame: pd.DataFrame, keys: list[str], names: DisplayNames) -> list[list[str]]:
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
        [names(str(row[key])) for key in keys]
        + [
            str(row["n"]),
            f"{row['difference']:+.4f}",
            f"{row['ahead']} of {row['replicates']}",
            f"{row['behind']} of {row['replicates']}",
        ]
        for row in groups.to_dict("records")
    ]
    return [[*map(names, keys), "items", "mean difference", "a is ahead in", "behind in"], *rows]


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
