"""What single trials add to a study's report: their own figures, and comparisons item by item of one test part."""

import base64
import contextlib
import itertools
from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from contrasweep.data.reading import GROUP
from contrasweep.errors import StorageError
from contrasweep.report.html_table import grid, plain
from contrasweep.report.over_groups import Items, groups, scores
from contrasweep.report.table import Table, label
from contrasweep.report.text import verdicts
from contrasweep.statistics import paired_bootstrap
from contrasweep.storage.records import DONE, Record, StudyRecords

if TYPE_CHECKING:
    from contrasweep.results.results import Results

MOST_FIGURES = 24
MOST_BYTES = 4 * 2**20  # of all figures together: a report stays a file that one can mail
MOST_COMPARED = 60  # pairs of trials
MOST_READ, MOST_TABLES = 400, 6  # trials whose items are read at all, and scores that have a table of them


def figures(
    records: StudyRecords, frame: pd.DataFrame, found: Mapping[str, Record], axes: list[str]
) -> list[tuple[str, bytes]]:
    """The PNG artifacts of each cell's first finished trial, as (caption, content), within the limits above."""
    done = frame[frame["status"] == DONE]
    first = done[~_keys(done, ["arm", *axes]).duplicated()]
    kept: list[tuple[str, bytes]] = []
    for row in first.to_dict("records"):
        record = found[row["trial_id"]]
        for name in (n for n in record.artifacts if n.endswith(".png")):
            content = records.store.read(records.key(record.trial_id, f"artifacts/{name}"))
            if len(kept) == MOST_FIGURES or sum(len(c) for _, c in kept) + len(content) > MOST_BYTES:
                return kept
            where = " ".join([str(row["arm"]), *(f"{axis}={row[axis]}" for axis in axes)])
            fold = "" if pd.isna(row["fold"]) else f", fold {row['fold']}"
            kept.append((f"{name.removesuffix('.png')}: {where}{fold}, seed {row['seed']}", content))
    return kept


def by_item(
    items: Items, frame: pd.DataFrame, found: Mapping[str, Record], axes: list[str], reference: str | None = None
) -> list[dict[str, Any]]:
    """Arms compared on the very same test items (with `reference` alone, if given), one replicate at a time: the paired
    bootstrap over items, of whole groups where these are named.

    It holds the noise of the test items only, not that of training; a fact about two trained models.
    """
    rows = []
    for first, second in itertools.islice(_pairs(frame, found, axes, reference), MOST_COMPARED):
        ours, theirs = items(first["trial_id"]), items(second["trial_id"])
        for name in sorted((set(ours) & set(theirs)) - {GROUP}):
            if len(ours[name]) != len(theirs[name]):
                raise StorageError(
                    f"items {name!r} of trials {first['trial_id']} and {second['trial_id']} have different lengths"
                )
            kept = np.isfinite(ours[name]) & np.isfinite(theirs[name])  # no similarity to a class that is not there
            names = np.array(groups(ours, len(kept)))[kept]
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


def figures_html(images: list[tuple[str, bytes]]) -> str:
    """The figures, inside the page."""
    inner = "".join(
        f'<figure><img alt="{escape(caption)}" style="max-width:100%" '
        f'src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, content in images
    )
    return f'<div class="figures">{inner}</div>' if inner else ""


def tables_over_groups(results: "Results") -> list[Table]:
    """The table over groups of test items of each score, the study's metric first, within the limits above."""
    known = scores(results.found)
    with_items = [record for record in results.found.values() if record.items]
    if not 1 < len(with_items) <= MOST_READ or not any(GROUP in record.items for record in with_items):
        return []
    first = [name for name in known if name == results.metric]
    made = []
    for name in [*first, *(n for n in known if n not in first)][:MOST_TABLES]:
        with contextlib.suppress(
            StorageError
        ):  # trials that disagree about their items: whoever asks for the table is told
            made.append(results.table(metric=name, over="groups"))
    return made


def items_html(rows: list[dict[str, Any]], axes: list[str], tables: list[Table]) -> str:
    """Test items pooled over folds, a table for each score; then the comparisons of single replicates: one row an
    item's name and pair of arms, and every replicate of it on demand."""
    pooled = ""
    for i, table in enumerate(tables):
        lines = [line.replace("* best", "★ best") for line in [*table.legend, *verdicts(table.pairs)]]
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
        f"where the 95 % interval of the difference a - b lies above 0; {MOST_COMPARED} pairs of trials at most. This "
        f"holds the noise of the test items only; what another seed of "
        f"training would change is in the table above.</p>{plain(head, summary)}<details><summary>Every "
        f"replicate</summary>"
        f"{plain([*keys, 'fold', 'seed', 'difference [95 %]'], single)}</details>"
    )


def _pairs(
    frame: pd.DataFrame, found: Mapping[str, Record], axes: list[str], reference: str | None
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Finished trials of two arms that share axes, fold and seed, where both left items. The reference comes first."""
    done = frame[frame["status"] == DONE]
    for _, same in done.groupby(_keys(done, [*axes, "fold", "seed"]), sort=False):
        rows: list[Any] = [row for row in same.to_dict("records") if found[row["trial_id"]].items]
        rows.sort(key=lambda row: row["arm"] != reference)
        yield from (
            pair for pair in itertools.combinations(rows, 2) if reference is None or pair[0]["arm"] == reference
        )


def _keys(frame: pd.DataFrame, names: list[str]) -> pd.Series:
    """One text a row, because values of axes need not be hashable."""
    return pd.Series(
        [repr(tuple(row)) for row in frame[names].itertuples(index=False)], index=frame.index, dtype=object
    )
