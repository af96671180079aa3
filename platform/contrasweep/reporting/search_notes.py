"""Notes on a search: its cost and budget, each arm's best settings and their importance."""

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

    `costs` has a line per arm: how much of its budget its search has spent, and what else it cost. `best` and
    `importance` are the frames of `Results.best` and `Results.importance` as tables of text with a head.
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
    """Return what the records say of a Sweep's search; nothing of a grid."""
    if not results.document.search:
        return SearchNotes()
    names = results.names
    costs = [f"{names(arm)}: {cost}" for arm, cost in results.spent().items()]
    return SearchNotes(
        tuple(costs), _rows(results.best(), names), _rows(results.importance(), names)
    )


def _rows(frame: pd.DataFrame, names: DisplayNames) -> Rows:
    """Return a frame as rows of text: the names of its columns, then its rows.

    Words are replaced by their display `names`.
    """
    if frame.empty:
        return ()
    rows = [tuple(map(names, frame.columns))]
    for row in frame.itertuples(index=False):
        rows.append(tuple(names(_text(value)) for value in row))
    return tuple(rows)


def _text(value: Any) -> str:
    """Return a value as short text: a float in four digits, any other value as tables show it."""
    if isinstance(value, float) and np.isfinite(value):
        return f"{value:.4g}"
    return canonical.label(value)
