"""What single trials add to a study's report: their own figures, and comparisons item by item of one test part."""

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from contrasweep.report.html_table import grid, plain
from contrasweep.results.cells import label
from contrasweep.results.items import MAX_PAIRS, row_keys
from contrasweep.results.table import Table
from contrasweep.storage.records import DONE, Record, StudyRecords

MAX_FIGURES = 24
MAX_BYTES = 4 * 2**20  # of all figures together: a report stays a file that one can mail


def figures(
    records: StudyRecords, frame: pd.DataFrame, found: Mapping[str, Record], axes: list[str]
) -> list[tuple[str, bytes]]:
    """The PNG artifacts of each cell's first finished trial, as (caption, content), within the limits above."""
    done = frame[frame["status"] == DONE]
    first = done[~row_keys(done, ["arm", *axes]).duplicated()]
    kept: list[tuple[str, bytes]] = []
    for row in first.to_dict("records"):
        record = found[row["trial_id"]]
        for name in (n for n in record.artifacts if n.endswith(".png")):
            content = records.store.read(records.key(record.trial_id, f"artifacts/{name}"))
            if len(kept) == MAX_FIGURES or sum(len(c) for _, c in kept) + len(content) > MAX_BYTES:
                return kept
            where = " ".join([str(row["arm"]), *(f"{axis}={row[axis]}" for axis in axes)])
            fold = "" if pd.isna(row["fold"]) else f", fold {row['fold']}"
            kept.append((f"{name.removesuffix('.png')}: {where}{fold}, seed {row['seed']}", content))
    return kept


def figures_html(images: list[tuple[str, bytes]]) -> str:
    """The figures, inside the page."""
    inner = "".join(
        f'<figure><img alt="{escape(caption)}" style="max-width:100%" '
        f'src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, content in images
    )
    return f'<div class="figures">{inner}</div>' if inner else ""


def items_html(rows: list[dict[str, Any]], axes: list[str], tables: list[Table]) -> str:
    """Test items pooled over folds, a table for each score; then the comparisons of single replicates: one row an
    item's name and pair of arms, and every replicate of it on demand."""
    pooled = ""
    for i, table in enumerate(tables):
        lines = [line.replace("* best", "★ best") for line in [*table.legend, *table.verdicts]]
        said = "".join(f"<li>{escape(line)}</li>" for line in lines)
        pooled += (
            f"<details{' open' * (i == 0)}><summary>{escape(table.metric)}, over "
            f"{escape(table.unit)}</summary>{grid(table)}"
            f'<ul class="cs-notes">{said}</ul></details>'
        )
    if pooled:
        pooled = (
            "<p>All test items of the study, each scored by networks that have not trained on it. This holds the "
            "choice of the test items "
            f"for the networks as trained; the table of the study holds that of the training part too.</p>{pooled}"
        )
    return pooled + _single(rows, axes)


def _single(rows: list[dict[str, Any]], axes: list[str]) -> str:
    if not rows:
        return ""
    frame = pd.DataFrame(rows)
    frame[axes] = frame[axes].map(label) if axes else frame[axes]
    frame["ahead"], frame["behind"] = frame["low"] > 0, frame["high"] < 0
    keys = ["item", "a", "b", *axes]
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
    summary = [
        [str(row[k]) for k in keys]
        + [
            str(row["n"]),
            f"{row['difference']:+.4f}",
            f"{row['ahead']} of {row['replicates']}",
            f"{row['behind']} of {row['replicates']}",
        ]
        for row in groups.to_dict("records")
    ]
    head = [*keys, "items", "mean difference", "a is ahead in", "behind in"]
    single = [
        [label(row[k]) for k in [*keys, "fold", "seed"]]
        + [f"{row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"]
        for row in rows
    ]
    return (
        "<p>Two trained models on the same test items, one replicate at a time: 1,000 resamples of the items (of "
        "their groups, where these are "
        "named), the same for both; a is ahead "
        f"where the 95 % interval of the difference a - b lies above 0; {MAX_PAIRS} pairs of trials at most. This "
        f"holds the noise of the test items only; what another seed of "
        f"training would change is in the table above.</p>{plain(head, summary)}<details><summary>Every "
        f"replicate</summary>"
        f"{plain([*keys, 'fold', 'seed', 'difference [95 %]'], single)}</details>"
    )
