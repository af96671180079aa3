"""Single trials in a report: the list of all, and their own figures."""

import base64
import math
import random
from collections.abc import Sequence
from typing import Any

import pandas as pd

from contrasweep.canonical import label
from contrasweep.config import MutableConfig
from contrasweep.errors import StorageError
from contrasweep.reporting.data import ReportData, Variables
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.results import Results
from contrasweep.results.study_data import TRIAL_COLUMNS
from contrasweep.rows import row_tuples
from contrasweep.storage.record import Phase, Status
from contrasweep.study import dotted

MAX_TRIALS = 100_000
"""The most trials that a page lists."""
MAX_DETAILED = 5_000
"""The most trials that a page lists with further metrics than the study's."""
MAX_METRICS = 16
"""The most further metrics of a trial in the list."""
CURVE_STEPS = 60
"""The most steps of a trial's curve in the list."""
CURVE_VALUES = 200_000
"""The most values of all curves of a page together."""
EXACT_DIGITS = 17
"""So many digits give a number exactly: of axes, whose values are declared."""
DIGITS = 6
"""The digits of all other numbers in the list."""
FIXED_COLUMNS = (*TRIAL_COLUMNS, "error", "phase")
"""The columns of a frame of trials that are neither settings nor metrics."""
TONES = {
    status.value: "open" if status.pending else "bad" for status in Status if not status.trained
}
"""Status -> how the page marks it; other statuses have no mark."""

Column = dict[str, Any]
"""A column of the list of trials, as the page's script reads it: a name, and values or words."""


def trials_section(data: ReportData) -> Variables:
    """Return the list of all trials for the page, those of a search too: settings, metrics and status.

    `listed` has the columns, which the page's script reads; `omitted` counts the trials beyond `MAX_TRIALS`, which are
    left out. `logs` is the command that shows a trial's log.
    """
    frame = data.all_trials.head(MAX_TRIALS).reset_index(drop=True)
    if frame.empty:
        return {}
    # The settings that have a column: the axes, and the searched settings, which in the frame of a sweep stand between
    # its first column, the phase, and the ids (`trials_of_sweep`).
    settings = data.axes
    if data.trials_of_sweep is not None:
        names = list(map(str, frame.columns))
        settings = [*settings, *names[1 : names.index("trial_id")]]
    columns = _columns_of(frame, data, settings)
    trials = list(frame["trial_id"].astype(str))
    listed: Column = {
        "columns": [*columns, {"name": "trial", "values": trials}],
        "size": len(frame),
        "tones": TONES,
        "stopped": [status.value for status in Status if status.stopped_early],
        "metric": data.names(data.metric),
        "settings": list(map(data.names, settings)),
        "curves": _curves(data, trials),
        "links": [data.links.get(i, "") for i in trials] if data.links else [],
    }
    return {
        "logs": data.log_command("TRIAL"),
        "listed": listed,
        "omitted": len(data.all_trials) - len(frame),
    }


def _columns_of(frame: pd.DataFrame, data: ReportData, settings: Sequence[str]) -> list[Column]:
    """Return the columns of the list of the trials in `frame`, from the arm to the metrics and the seconds.

    `settings` are the axes and the searched settings, which have a column each.
    """
    # The metrics that have a column: in a long list the study's alone, else others too, scores of evaluations first.
    metrics = [data.metric]
    if len(frame) <= MAX_DETAILED:
        known = {*FIXED_COLUMNS, *settings, data.metric}
        numeric = frame.drop(columns=known, errors="ignore").select_dtypes("number")
        reported = [str(name) for name in numeric.columns if frame[name].notna().any()]
        metrics += sorted(reported, key=lambda name: "/" not in name)[:MAX_METRICS]
    columns = [_words("arm", list(map(data.names, frame["arm"])), list(map(data.names, data.arms)))]
    if data.trials_of_sweep is not None:
        columns.append(_words("phase", list(frame["phase"])))
    for name in settings:
        digits = EXACT_DIGITS if name in data.axes else DIGITS
        column = _column(data.names(name), frame[name], data.names, digits)
        # A setting that an arm searches on a logarithmic scale is drawn on one.
        if data.trials_of_sweep is not None and "words" not in column:
            spaces = [data.document.space(arm).get(name) for arm in data.document.arms]
            column["log"] = any(isinstance(space, dict) and space.get("log") for space in spaces)
        columns.append(column)
    for name in ("fold", "seed"):
        if frame[name].notna().any():
            columns.append(_words(name, list(map(label, frame[name]))))
    columns.append(_words("status", list(frame["status"].astype(str))))
    for name in (*metrics, "seconds"):
        if name in frame:
            columns.append(_numbers(data.names(name), frame[name]))
    return columns


def trials_of_sweep(results: Results) -> pd.DataFrame | None:
    """Return one row for each trial of a sweep with its phase and settings, the confirmation first; None for a grid."""
    if not results.document.search:
        return None
    names: dict[str, None] = {}  # of the settings that any arm searches
    for arm in results.document.arms:
        names |= dict.fromkeys(results.document.space(arm))
    # The trials of the search are in no table: what would be planned of them is in their records.
    fields = ["trial_id", "arm", "fold", "seed"]
    searched = [
        [getattr(record, name) for name in fields] for record in results.search_records.values()
    ]
    search = results.frame_of(pd.DataFrame(searched, columns=fields), results.search_records)
    frame = pd.concat([results.frame, search], ignore_index=True)
    rows = []
    for trial_id in frame["trial_id"]:
        record = results.all_records.get(trial_id)
        # An earlier confirmation may have had other seeds or configurations.
        searching = record is not None and record.notes.phase == Phase.SEARCH
        settings: MutableConfig = {"phase": "search" if searching else "confirmation"}
        for name in names:
            settings[name] = dotted.name_of(dotted.lookup(record.config, name)) if record else None
        rows.append(settings)
    # A metric that has the name of a setting is left out.
    others = frame.drop(columns=["phase", *names], errors="ignore")
    return pd.concat([pd.DataFrame(rows, columns=["phase", *names]), others], axis=1)


def _curves(data: ReportData, trials: Sequence[str]) -> Variables | None:
    """Return the learning curve of each of `trials`, for the study's metric; None where no curves are known.

    `steps` are at most `CURVE_STEPS` steps. `values` has for each trial its values at these steps, None where it has
    none; for a trial without a curve it has 0 in place of the list. At most `CURVE_VALUES` values are kept: of too many
    trials, those whose curves are kept are drawn at random, the same ones each time.
    """
    if data.curves is None or data.metric not in data.curves:
        return None
    reports = data.curves[["trial_id", "step", data.metric]].dropna()
    wide = reports.pivot_table(index="trial_id", columns="step", values=data.metric, observed=True)
    if wide.shape[1] < 2:
        return None
    # Every n-th step, counted back from the last one.
    stride = math.ceil(wide.shape[1] / CURVE_STEPS)
    wide = wide.iloc[:, ::-stride].iloc[:, ::-1]
    most = min(len(trials), CURVE_VALUES // wide.shape[1])
    chosen = set(random.Random(0).sample(trials, most))
    rows = {
        str(name): [float(f"{value:.4g}") if math.isfinite(value) else None for value in row]
        for name, row in zip(wide.index, wide.to_numpy(), strict=True)
        if name in chosen
    }
    return {
        "steps": wide.columns.astype(int).tolist(),
        "values": [rows.get(trial, 0) for trial in trials],
    }


def _column(name: str, values: "pd.Series[Any]", names: DisplayNames, digits: int) -> Column:
    """Return the column of a setting: of numbers (rounded to `digits`) if all values are numbers, else of words.

    `name` is its title; words are shown by their display `names`.
    """
    known = values.dropna()
    if len(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    ):
        return _numbers(name, values, digits)
    return _words(name, [names(label(value)) for value in values])


def _words(name: str, texts: Sequence[str], words: Sequence[str] | None = None) -> Column:
    """Return a column of texts for the page's script, in which each different text is stored once.

    The column has a list of the different texts, `words`, and for each row the index of its text in that list, `at`.
    The argument `words` is this list; by default the texts stand in it in the order in which they first occur.
    """
    known = {word: i for i, word in enumerate(words or dict.fromkeys(texts))}
    return {"name": name, "words": list(known), "at": [known[text] for text in texts]}


def _numbers(name: str, values: "pd.Series[Any]", digits: int = DIGITS) -> Column:
    """Return a column of numbers for the page's script, rounded to `digits` significant digits.

    An entry that is no number is None.
    """
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    shown = (float(f"{number:.{digits}g}") if math.isfinite(number) else None for number in numbers)
    return {
        "name": name,
        "values": [
            int(number) if number is not None and number.is_integer() else number
            for number in shown
        ],
    }


MAX_FIGURES = 72
"""The most figures of trials in a report."""
MAX_BYTES = 4 * 2**20
"""The most bytes of all figures together, so that a report can be mailed."""


def figures(results: Results) -> list[tuple[str, str, str]]:
    """Return the PNG artifacts of each cell's first finished trial, as (trial id, caption, PNG in base64).

    They are at most `MAX_FIGURES`, with at most `MAX_BYTES` together. Artifacts of one name, from all cells, stand side
    by side, so that a limit leaves out names and not cells. A file that cannot be read is left out.
    """
    done = results.done
    axes = results.axes
    cells = list(map(repr, row_tuples(done, ["arm", *axes])))  # values of axes need not be hashable
    rows = done[~pd.Series(cells, done.index, dtype=object).duplicated()].to_dict("records")
    artifacts = []
    for row in rows:
        names = results.trial_records[row["trial_id"]].artifacts
        artifacts += [(name, row) for name in names if name.endswith(".png")]
    shown = list[tuple[str, str, str]]()
    size = 0
    for name, row in sorted(artifacts, key=lambda artifact: artifact[0]):
        try:
            key = results.records.key(row["trial_id"], f"artifacts/{name}")
            content = results.records.store.read(key, MAX_BYTES)
        except (FileNotFoundError, StorageError):
            continue
        size += len(content)
        if len(shown) == MAX_FIGURES or size > MAX_BYTES:
            return shown
        where = " ".join([str(row["arm"]), *(f"{axis}={row[axis]}" for axis in axes)])
        fold = "" if pd.isna(row["fold"]) else f", fold {row['fold']}"
        caption = f"{name.removesuffix('.png')}: {where}{fold}, seed {row['seed']}"
        shown.append((row["trial_id"], caption, base64.b64encode(content).decode()))
    return shown
