"""Single trials in a report: the list of all, and their own figures."""

import base64
import math
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from contrasweep.canonical import label
from contrasweep.errors import StorageError
from contrasweep.reporting.data import ReportData, Variables
from contrasweep.reporting.searching import logarithmic
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.results import Results
from contrasweep.results.study_data import OWN_COLUMNS
from contrasweep.rows import row_tuples
from contrasweep.storage.record import COUNTING, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted

LARGEST = 100_000
"""Trials that a page lists at most."""
DETAILED = 5_000
"""Trials that a page lists with all of their metrics at most."""
MAX_METRICS = 16
"""Metrics of a trial in a longer list."""
CURVE_STEPS = 60
"""Steps at which a page has the curve of a trial at most."""
CURVE_VALUES = 200_000
"""Values of all curves of a page together."""
OWN = (*OWN_COLUMNS, "error", "phase")
"""What a frame has beside settings and metrics."""
TONES = {
    status.value: "open" if status.pending else "bad" for status in Status if not status.trained
}
"""How the page marks a status that is not as it should be."""

Column = dict[str, Any]
"""What the page's script is given of the trials, as JSON has it: a name, and values or words."""


def trials_section(data: ReportData) -> Variables:
    """Return all trials, also of a search, as columns of values: settings, metrics, status.

    `listed` is what the page's script reads; `example` is a text by which the list can be filtered.
    """
    # Which settings and metrics have a column: of a long list the study's metric alone.
    whole = data.frame if data.of_sweep is None else data.of_sweep
    frame = whole.head(LARGEST).reset_index(drop=True)
    if frame.empty:
        return {}
    settings = data.axes
    metrics = [data.metric]
    if data.of_sweep is not None:  # what was searched stands before the trials' ids
        settings = [*settings, *map(str, whole.columns[1 : list(whole.columns).index("trial_id")])]
    if len(frame) <= DETAILED:
        known = {*OWN, *settings, data.metric}
        numeric = frame.drop(columns=[name for name in known if name in frame]).select_dtypes(
            "number"
        )
        there = [str(name) for name in numeric.columns if frame[name].notna().any()]
        metrics += sorted(there, key=lambda name: "/" not in name)[
            :MAX_METRICS
        ]  # scores of evaluations first

    # The columns, from the arm to the trial's id.
    columns = [_words("arm", list(map(data.names, frame["arm"])), list(map(data.names, data.arms)))]
    columns += [] if data.of_sweep is None else [_words("phase", list(frame["phase"]))]
    for name in settings:
        column = _column(
            data.names(name), frame[name], data.names, 6 if name not in data.axes else 17
        )
        if data.of_sweep is not None and "words" not in column:
            column["log"] = logarithmic(data, name, pd.to_numeric(frame[name], errors="coerce"))
        columns.append(column)
    columns += [
        _words(name, list(map(label, frame[name])))
        for name in ("fold", "seed")
        if frame[name].notna().any()
    ]
    columns.append(_words("status", list(frame["status"].astype(str))))
    columns += [
        _numbers(data.names(name), frame[name]) for name in [*metrics, "seconds"] if name in frame
    ]
    trials = list(frame["trial_id"].astype(str))

    # The common start of all links stands once.
    links = list(data.links.values())
    start = os.path.commonprefix(links) if len(links) > 1 else ""  # noqa: RUF071  # characters it is
    listed: Column = {
        "columns": [*columns, {"name": "trial", "values": trials}],
        "size": len(frame),
        "tones": TONES,
        "stopped": [status.value for status in Status if status.stopped_early],
        "metric": data.names(data.metric),
        "settings": list(map(data.names, settings)),
        "curves": _curves(data, trials),
        "start": start,
        "links": [data.links.get(i, start)[len(start) :] for i in trials] if links else [],
    }

    # An example of a filter: the first arm and the first trial's value of a setting.
    first = data.names(data.arms[0])
    named = next(
        (column for column in columns[1:] if column["name"] in map(data.names, settings)), None
    )
    value = (named.get("words") or named["values"])[0] if named else ""
    return {
        "logs": data.log_command("TRIAL"),
        "listed": listed,
        "example": f"{first} {named['name']}={value}" if named else f"{first} failed",
        "omitted": len(whole) - len(frame),
    }


def trials_of_sweep(results: Results) -> pd.DataFrame | None:
    """Return one row for each trial of a sweep with its phase and settings, the confirmation first; None for a grid."""
    if not results.document.search:
        return None
    names = dict.fromkeys(
        name for arm in results.document.arms for name in results.document.space(arm)
    )
    # What the table has of a trial, and its record; None where it has not ended. Those of the search are in no table.
    confirmed = [
        (row, results.trial_records.get(str(row["trial_id"])))
        for row in results.frame.to_dict("records")
    ]
    searched = [
        (
            {name: getattr(record, name) for name in ("trial_id", "arm", "fold", "seed", "seconds")}
            | {"status": record.status.value, **record.metrics},
            record,
        )
        for record in results.search_records.values()
    ]
    return pd.DataFrame(
        {
            "phase": phase,
            **{name: record and dotted.name(dotted.lookup(record.config, name)) for name in names},
            **{
                name: value for name, value in row.items() if name not in names
            },  # a metric may be called as a setting
        }
        for phase, rows in (("confirmation", confirmed), ("search", searched))
        for row, record in rows
    )


def _curves(data: ReportData, trials: Sequence[str]) -> Variables | None:
    """Return the study's metric of each trial at common steps; None where there are no curves.

    `values` has a list for each trial, or 0 where it has none: of very many trials some have a curve, drawn by lot.
    """
    if data.curves is None or data.metric not in data.curves:
        return None
    reports = data.curves[["trial_id", "step", data.metric]].dropna()
    wide = reports.pivot_table(index="trial_id", columns="step", values=data.metric, observed=True)
    if wide.shape[1] < 2:
        return None
    wide = wide.iloc[:, :: -math.ceil(wide.shape[1] / CURVE_STEPS)].iloc[
        :, ::-1
    ]  # the last step is one of them
    drawn = set(random.Random(0).sample(trials, min(len(trials), CURVE_VALUES // wide.shape[1])))
    rows = {
        str(name): [float(f"{v:.4g}") if math.isfinite(v) else None for v in row]
        for name, row in zip(wide.index, wide.to_numpy(), strict=True)
        if name in drawn
    }
    return {
        "steps": wide.columns.astype(int).tolist(),
        "values": [rows.get(trial, 0) for trial in trials],
    }


def _column(name: str, values: "pd.Series[Any]", names: DisplayNames, digits: int) -> Column:
    """Return the column of a setting: numbers where all of its values are, else words; NaN is no value."""
    known = [v for v in values if v is not None and v is not pd.NA and v == v]
    if known and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known):
        return _numbers(name, values, digits)
    return _words(name, [names(label(v)) for v in values])


def _words(name: str, texts: Sequence[str], words: Sequence[str] | None = None) -> Column:
    """Return a column of words, in which each different word is stored once."""
    known = {word: i for i, word in enumerate(words or dict.fromkeys(texts))}
    return {"name": name, "words": list(known), "at": [known[text] for text in texts]}


def _numbers(name: str, values: "pd.Series[Any]", digits: int = 6) -> Column:
    """Return a column of numbers in so many digits, whole ones without a point; None where there is none."""
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    shown = (float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in numbers)
    return {
        "name": name,
        "values": [int(v) if v is not None and v.is_integer() else v for v in shown],
    }


MAX_FIGURES = 72
"""Figures of trials that a report has at most."""
MAX_BYTES = 4 * 2**20  # of all figures together: a report stays a file that one can mail


def figures(
    study: StudyRecords, frame: pd.DataFrame, records: Mapping[str, Record], axes: list[str]
) -> list[tuple[str, str, str]]:
    """Return the PNG artifacts of each cell's first finished trial, within the limits above.

    Each is (trial id, caption, PNG in base64). One kind stands beside the same kind of the other cells, so that a limit
    leaves out kinds and no cells. A file that cannot be read is left out.
    """
    done = frame[frame["status"].isin(COUNTING)]
    cells = list(map(repr, row_tuples(done, ["arm", *axes])))  # values of axes need not be hashable
    rows = done[~pd.Series(cells, done.index, dtype=object).duplicated()].to_dict("records")
    drawn = [
        (name, row)
        for row in rows
        for name in records[row["trial_id"]].artifacts
        if name.endswith(".png")
    ]
    kept = list[tuple[str, str, str]]()
    size = 0
    for name, row in sorted(drawn, key=lambda found: found[0]):
        try:
            content = study.store.read(study.key(row["trial_id"], f"artifacts/{name}"), MAX_BYTES)
        except (FileNotFoundError, StorageError):
            continue
        size += len(content)
        if len(kept) == MAX_FIGURES or size > MAX_BYTES:
            return kept
        where = " ".join([str(row["arm"]), *(f"{axis}={row[axis]}" for axis in axes)])
        fold = "" if pd.isna(row["fold"]) else f", fold {row['fold']}"
        caption = f"{name.removesuffix('.png')}: {where}{fold}, seed {row['seed']}"
        kept.append((row["trial_id"], caption, base64.b64encode(content).decode()))
    return kept
