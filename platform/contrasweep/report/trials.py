"""What single trials add to a study's report: their own figures, and comparisons item by item of one test part."""

import base64
import itertools
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import pandas as pd

from contrasweep.errors import StorageError
from contrasweep.records import DONE, Record, StudyRecords
from contrasweep.statistics import paired_bootstrap

MOST_FIGURES = 24
MOST_BYTES = 4 * 2**20  # of all figures together: a report stays a file that one can mail
MOST_COMPARED = 60  # pairs of trials


def figures(records: StudyRecords, frame: pd.DataFrame, found: Mapping[str, Record], axes: list[str]) -> list[tuple[str, bytes]]:
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


def by_item(records: StudyRecords, frame: pd.DataFrame, found: Mapping[str, Record], axes: list[str]) -> list[dict[str, Any]]:
    """Arms compared on the very same test items, one replicate at a time: the paired bootstrap over items.

    It holds the noise of the test items only, not that of training; a fact about two trained models.
    """
    rows = []
    for first, second in itertools.islice(_pairs(frame, found, axes), MOST_COMPARED):
        ours, theirs = records.items(first["trial_id"]), records.items(second["trial_id"])
        for name in sorted(set(ours) & set(theirs)):
            if len(ours[name]) != len(theirs[name]):
                raise StorageError(f"items {name!r} of trials {first['trial_id']} and {second['trial_id']} have different lengths")
            difference, low, high = paired_bootstrap(ours[name], theirs[name])
            rows.append({"item": name, "a": first["arm"], "b": second["arm"], **{axis: first[axis] for axis in axes}, "fold": first["fold"],
                         "seed": first["seed"], "n": len(ours[name]), "difference": difference, "low": low, "high": high})  # fmt: skip
    return rows


def figures_html(images: list[tuple[str, bytes]]) -> str:
    """The figures, inside the page."""
    inner = "".join(
        f'<figure><img alt="{escape(caption)}" style="max-width:100%" src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, content in images
    )
    return f'<div class="figures">{inner}</div>' if inner else ""


def items_html(rows: list[dict[str, Any]]) -> str:
    """The comparisons by item as a table."""
    if not rows:
        return ""
    head = [key for key in rows[0] if key not in ("difference", "low", "high")] + ["difference [95 %]"]
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(row.get(key, '–')))}</td>" for key in head[:-1])
        + f"<td>{row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]{' *' if row['low'] * row['high'] > 0 else ''}</td></tr>"
        for row in rows
    )  # fmt: skip
    return (
        "<p>Two trained models on the same test items: 1,000 resamples of the items, the same for both. This holds the noise of "
        "the test items only; what another seed of training would change is in the table above. * the interval excludes 0.</p>"
        f'<div class="scroll"><table><thead><tr>{"".join(f"<th>{escape(h)}</th>" for h in head)}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _pairs(frame: pd.DataFrame, found: Mapping[str, Record], axes: list[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Finished trials of two arms that share axes, fold and seed, where both left items."""
    done = frame[frame["status"] == DONE]
    for _, same in done.groupby(_keys(done, [*axes, "fold", "seed"]), sort=False):
        rows = [row for row in same.to_dict("records") if found[row["trial_id"]].items]
        yield from itertools.combinations(rows, 2)


def _keys(frame: pd.DataFrame, names: list[str]) -> pd.Series:
    """One text a row, because values of axes need not be hashable."""
    return pd.Series([repr(tuple(row)) for row in frame[names].itertuples(index=False)], index=frame.index, dtype=object)
