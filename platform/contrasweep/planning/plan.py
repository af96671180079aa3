"""What a study would run, of a grid or of a sweep: the protocol that all later steps use."""

import html
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.errors import plural
from contrasweep.storage.record import RecordsById
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import DeclaredSearch
from contrasweep.study import dotted
from contrasweep.study.sweep import Study
from contrasweep.trial import Trial
from contrasweep.tuning.source import Source

if TYPE_CHECKING:
    import pandas as pd

Resolve = Callable[[str], Manifest]
"""Dataset name -> manifest, with the study's folds."""


@dataclass(frozen=True)
class Cell:
    """One combination of arm and axis values, with its trials; those of its confirmation for a search."""

    arm: str
    axes: Config
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class PlanRow:
    """Trials that a forecast shows in one row: a cell of a grid, an arm of a sweep."""

    arm: str
    trials: tuple[Trial, ...]  # their durations say how long one trial of the row takes
    examples: tuple[Trial, ...]  # these have to fit the hosts
    facts: Mapping[str, object]  # of the row, for programs
    columns: tuple[tuple[str, str], ...]  # (header, text), for people
    last: tuple[tuple[str, str], ...] = ()  # the same, shown after what the trials require


class Plan(Protocol):
    """What a study would run, of a grid or of a sweep; `contrasweep.plan` returns one.

    `trials`, `cells` and `to_frame()` are what a reader wants first. All but `source` is pure.

    Example:
        >>> import contrasweep as cs
        >>> planned = cs.plan(study)
        >>> len(planned.cells), planned.total, list(planned.to_frame().columns)
        (4, 20, ['trial_id', 'arm', 'batch_size', 'fold', 'seed'])
    """

    @property
    def study(self) -> Study:
        """The declaration that was planned."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return the cells of the table in its order; of a sweep these are the cells of its confirmation."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials of the table as far as they are known, each once, in the order in which they should start."""

    @property
    def total(self) -> int | None:
        """Trials in all, of the search too; None where the budget does not count trials."""

    @property
    def example_trials(self) -> list[Trial]:
        """Return trials that stand for all others in memory, hosts and code.

        In a grid these are the first of each cell, in a sweep trials spread over each arm's space.
        """

    @property
    def digest(self) -> str:
        """Return a digest of the study's question: it changes when other trials would answer the question."""

    def searches_of(self, arms: Collection[str]) -> Mapping[str, str]:
        """Return arm -> digest of its search, for each of `arms`; {} for a study without a search."""

    @property
    def datasets(self) -> Mapping[str, Manifest]:
        """Return the datasets that the trials read, by digest."""

    @property
    def table_datasets(self) -> list[Manifest]:
        """The datasets that the table is about."""

    @property
    def table_folds(self) -> int | None:
        """The folds of the table's replicates; None where they are on the test split."""

    @property
    def varied(self) -> list[str]:
        """Dotted keys that tell trials apart: axes, or what is searched."""

    @property
    def keys(self) -> list[str]:
        """Dotted keys of all settings that some trial has."""

    @property
    def stops_early(self) -> bool:
        """Whether a report may stop its trial, so that none may wait for others."""

    def summary(self) -> dict[str, object]:
        """Return what a reader of the table must know of the study, as label -> value: data, folds, seeds and such."""

    @property
    def declared_search(self) -> DeclaredSearch | None:
        """Return the search as study.json has it; None for a study without a search."""

    def complete(self, records: StudyRecords, finished: Collection[str]) -> bool:
        """Return whether nothing is left to run; `finished` are the ids of the trials with a record."""

    def stored_frame(self, records: StudyRecords, complete: bool) -> "pd.DataFrame | None":
        """Return the table of trials that the storage should have; None where the stored table should stay.

        `complete` is the result of the method `complete`. The stored table of a complete sweep stays, because it has
        the trials of the configurations that the searches found.
        """

    def trials_among(self, finished: Collection[str]) -> set[str]:
        """Return those of the trial ids `finished` that belong to this plan: of a sweep, all of them."""

    def source(self, records: StudyRecords, finished: Collection[str]) -> Source:
        """Return a source of the trials to run: those that are not `finished`, up to the next look (interim analysis).

        The looks that were taken are read from `records`. A sweep's source writes its candidates and its best
        configurations to the storage as the search goes on.
        """

    def relocated(self, resolve: Resolve) -> "Plan":
        """Return the same plan with the manifests that `resolve` gives; digests and trial ids stay the same."""

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with one row for each trial: trial_id, arm, the axes, fold, seed."""

    def rows(self, known: RecordsById) -> tuple[PlanRow, ...]:
        """Return the rows of a forecast, given the finished records `known` by trial id."""

    def rows_of_trials_to_run(self, known: RecordsById) -> Iterable[int] | None:
        """Return, for each trial to run, the index in `rows` of its row. The trials are in the order of their start.

        None where it is not known how many trials the budget pays for.
        """

    def totals(self, known: RecordsById) -> Mapping[str, int | None]:
        """Return name -> number of trials: of all, and of ended ones. None: the budget does not count trials."""

    def lines(self, known: RecordsById) -> list[str]:
        """Return what `totals` says, with the study's question, as lines for people."""


class PlanDisplay:
    """A mix-in that gives a plan its short text and its HTML: what `contrasweep plan` says of it, and its cells.

    The methods use attributes of a plan that this class does not declare.
    """

    example_trials: Any

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
        plan: Any = self
        total = (
            "as many trials as the budget pays for"
            if plan.total is None
            else plural(plan.total, "trial")
        )
        data = ", ".join(dict.fromkeys(manifest.name for manifest in plan.table_datasets))
        return f"{type(self).__name__}({plan.study.name}: {total} on {data}, {plural(len(plan.cells), 'cell')})"

    def _repr_html_(self) -> str:
        """Return the plan for notebooks: its lines, and a table of its cells with at most 60 rows."""
        import pandas as pd

        plan: Any = self
        # A cell of a sweep has no trials before its search has ended.
        rows = [
            {"arm": cell.arm, **cell.axes, "replicates": len(cell.trials) or "–"}
            for cell in plan.cells
        ]
        lines = html.escape("\n".join(plan.lines({})))
        frame = (
            pd.DataFrame(rows).fillna("–").to_html(index=False, escape=True, max_rows=60, border=0)
        )
        return f"<pre>{lines}</pre>{frame}"
