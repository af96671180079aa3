"""Notes on a search: its cost and budget, each arm's best settings and their importance."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contrasweep import canonical
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.results import Results
from contrasweep.text_table import text_table

Rows = tuple[tuple[str, ...], ...]
"""A table of texts: a head and the rows; empty where there is nothing to show."""
BEST = "Best settings of each arm"
IMPORTANCE = "Importance of each setting (PED-ANOVA), and what shuffled scores would show"


@dataclass(frozen=True)
class SearchNotes:
    """The notes on a search in a report; each is empty for a study without a search.

    `costs` has a line per arm: what its search has cost beside its budget. `best` is a table with a head and one row
    per arm: its best settings, their score in the search, and the confirmed mean with its interval. `importance` is a
    table with a head and one row per arm and setting.
    """

    costs: tuple[str, ...] = ()
    best: Rows = ()
    importance: Rows = ()

    def to_text(self, width: int | None = None) -> str:
        """Return the notes as text for a terminal of `width` columns (None: any); "" for a study without a search."""
        lines = [f"searched {line}" for line in self.costs]
        for title, rows in ((BEST, self.best), (IMPORTANCE, self.importance)):
            if rows:
                lines += ["", f"{title}:", "", *text_table(rows, rule=True, width=width)]
        return "\n".join(lines)


def search_notes(results: Results) -> SearchNotes:
    """Return what the records say of a Sweep's search."""
    names = results.names
    costs = [f"{names(arm)}: {cost}" for arm, cost in results.spent().items()]
    best = _named(_best(results), names) if results.document.search else ()
    return SearchNotes(tuple(costs), best, _named(_importance(results.importance()), names))


def _named(rows: Rows, names: DisplayNames) -> Rows:
    """Return the rows with the display name of each word that has one."""
    return tuple(tuple(map(names, row)) for row in rows)


def _importance(frame: pd.DataFrame) -> Rows:
    """Return a table with a head and a row for each arm and setting: its share, the share of noise, and the verdict."""
    rows = []
    for row in frame.to_dict("records"):
        noise = f"up to {percent(row['noise'])}" if np.isfinite(row["noise"]) else "–"
        rows.append(
            (
                row["arm"],
                row["setting"],
                percent(row["share"]),
                noise,
                str(row["configurations"]),
                row["verdict"],
            )
        )
    return (("arm", "setting", "share", "noise", "trained whole", "verdict"), *rows) if rows else ()


def percent(share: Any) -> str:
    """Return a share (0 to 1) as a whole percentage; a dash for NaN."""
    return f"{100 * share:.0f} %" if np.isfinite(share) else "–"


def _best(results: Results) -> Rows:
    """Return a table with a head and a row per arm: settings, trained configurations, score, and the confirmed mean."""
    entries = results.best_settings
    names = list(dict.fromkeys(itertools.chain(*(entry.settings for entry in entries))))
    rows = []
    for entry in entries:
        # Arms may have different settings.
        settings = [_text(entry.settings[n]) if n in entry.settings else "–" for n in names]
        confirmed = "not yet"
        if entry.mean is not None:
            confirmed = _interval(entry.mean, entry.low, entry.high)
        count = str(entry.configurations)
        rows.append((entry.arm, *settings, count, _text(entry.searched), confirmed))
    head = (
        "arm",
        *names,
        "trained whole",
        f"{results.names(results.metric)} in the search",
        "confirmed",
    )
    return (head, *rows) if rows else ()


def _interval(mean: float, low: float | None, high: float | None) -> str:
    """Return a mean with its interval, or alone where an end is not known."""
    known = low is not None and high is not None and np.isfinite(low) and np.isfinite(high)
    return f"{mean:.4g} [{low:.4g}, {high:.4g}]" if known else f"{mean:.4g}"


def _text(value: Any) -> str:
    """Return a value as short text: a float in four digits, "" for NaN, a list or mapping as JSON."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return canonical.dumps(value) if isinstance(value, list | dict) else str(value)
