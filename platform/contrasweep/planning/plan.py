"""What the plan of a grid and that of a sweep have in common: cells, rows of a forecast, how they are shown."""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.errors import plural
from contrasweep.study import dotted
from contrasweep.trial import Trial

Resolve = Callable[[str], Manifest]
"""Dataset name -> manifest, with the study's folds."""


@dataclass(frozen=True)
class Cell:
    """One combination of an arm and values of the axes, with its trials; in a sweep the trials of a confirmation."""

    arm: str
    axes: Config
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class PlanRow:
    """The trials that a forecast shows in one row: those of a cell of a grid, or of an arm of a sweep."""

    arm: str
    trials: tuple[Trial, ...]  # their durations say how long one trial of the row takes
    examples: tuple[Trial, ...]  # these have to fit the hosts
    facts: Mapping[str, object]  # of the row, for programs
    columns: tuple[tuple[str, str], ...]  # (header, text), for people
    last: tuple[tuple[str, str], ...] = ()  # the same, shown after what the trials require


class PlanBase:
    """The base class of both kinds of plan, `GridPlan` and `SweepPlan`, with the attributes that both have.

    Modules that must not import these two use this class. Others use the type `planner.Plan`. The class also makes the
    short text and the HTML of a plan.
    """

    study: Any
    cells: Any
    trials: Any
    total: Any
    example_trials: Any
    table_datasets: Any
    table_folds: Any
    lines: Any

    @property
    def keys(self) -> list[str]:
        """Dotted keys of all example trials' configs, in the order of their first appearance."""
        return list(
            dict.fromkeys(
                key for trial in self.example_trials for key in dotted.flatten(trial.config)
            )
        )

    def __repr__(self) -> str:
        """Return `GridPlan(losses: 20 trials on digits-lt, 4 cells)`."""
        total = (
            "as many trials as the budget pays for"
            if self.total is None
            else plural(self.total, "trial")
        )
        data = ", ".join(dict.fromkeys(manifest.name for manifest in self.table_datasets))
        return f"{type(self).__name__}({self.study.name}: {total} on {data}, {plural(len(self.cells), 'cell')})"

    def _repr_html_(self) -> str:
        """Return the plan for notebooks: its lines, and a table of its cells with at most 60 rows."""
        import pandas as pd

        # A cell of a sweep has no trials before its search has ended.
        rows = [
            {"arm": cell.arm, **cell.axes, "replicates": len(cell.trials) or "–"}
            for cell in self.cells
        ]
        lines = html.escape("\n".join(self.lines({})))
        frame = (
            pd.DataFrame(rows).fillna("–").to_html(index=False, escape=True, max_rows=60, border=0)
        )
        return f"<pre>{lines}</pre>{frame}"
