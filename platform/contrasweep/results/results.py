"""`Results`: what a study has so far, read from the storage alone; frames, tables and comparisons of it."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from contrasweep.config import Config
from contrasweep.results.search import (
    Best,
    best_frame,
    best_of_grid,
    best_of_search,
    importance,
    pareto_frame,
    search_frame,
)
from contrasweep.results.study_data import Over, StudyData
from contrasweep.storage.record import Status
from contrasweep.study.arm_budget import ArmBudget, search_costs

if TYPE_CHECKING:  # brings SciPy along, for which a study's records need not wait
    from contrasweep.report.plots import StudyPlots
    from contrasweep.results.advice import Advice, Hours
    from contrasweep.results.answer import Answer, Versus
    from contrasweep.results.cells import TableStyle
    from contrasweep.results.datasets import DatasetSummary
    from contrasweep.results.study_tables import StudyTables
    from contrasweep.results.table import Table
    from contrasweep.statistics import Comparison


@dataclass(frozen=True, repr=False)
class Results(StudyData):
    """A study's trials and what they come to: frames, tables, comparisons, advice and figures."""

    @property
    def plot(self) -> "StudyPlots":
        """Figures of what the report draws: `.curves()`, `.cells()`, `.parallel()`, `.importance()`."""
        from contrasweep.report.plots import StudyPlots

        return StudyPlots(self)

    @property
    def counts(self) -> dict[str, int]:
        """Trials by status."""
        return dict(Counter(self.to_frame()["status"]))

    @property
    def complete(self) -> bool:
        """Whether every planned trial is done (or was stopped early on purpose)."""
        return all(Status(word).trained for word in self.counts)

    @property
    def pending(self) -> bool:
        """Whether a planned trial is still to run."""
        return any(Status(word).pending for word in self.counts)

    def to_frame(self) -> pd.DataFrame:
        """One row a trial: trial_id, arm, the axes, fold, seed, status, the metrics, seconds, gpu_memory_gib."""
        return self.frame.copy()

    @cached_property
    def search(self) -> pd.DataFrame:
        """A Sweep's search, one row a configuration (see `search.search_frame`). Empty for a grid."""
        return search_frame(self.search_records.values(), self.document)

    def best(self) -> pd.DataFrame:
        """One row an arm: of a search its best settings, their score in the search and their confirmed one with its
        interval; of a grid its best cell (see `search.Best`)."""
        return best_frame(self.best_settings)

    @cached_property
    def best_settings(self) -> list[Best]:
        """The same as objects, in the order of the study's arms."""
        from contrasweep.results.cells import label

        if self.document.search:
            cells = self.table(["arm"], []).cells
            by_arm = {row[0]: cell for (row, _), cell in cells.items()}
            return best_of_search(self.search, self.trial_records.values(), by_arm, self.document)
        table = self.table(["arm", *self.axes], [])
        values = {
            tuple(label(value) for value in row): row
            for row in self.planned[["arm", *self.axes]].itertuples(index=False, name=None)
        }
        rows = ((values[row], cell) for (row, _), cell in table.cells.items())
        cells_of = ((row[0], dict(zip(self.axes, row[1:], strict=True)), cell) for row, cell in rows)
        return best_of_grid(cells_of, self.document)

    def importance(self) -> pd.DataFrame:
        """Of a Sweep, one row an arm and searched setting: its share in what makes configurations good, what noise
        would show, and what that says (see `search.importance`). Empty for a grid."""
        return self._importance.copy()

    @cached_property
    def _importance(self) -> pd.DataFrame:
        return importance(self.search, self.document)

    def budget_curves(self) -> pd.DataFrame:
        """Of a Sweep, by arm: what k trials of its search buy (see `effects.budget_curves`)."""
        from contrasweep.results.effects import budget_curves

        return budget_curves(
            self.search,
            self.document.arms,
            searcher=self.document.search.searcher if self.document.search else "",
            mode=self.document.mode,
            alpha=self.document.alpha,
        )

    def noise(self, metric: str | None = None) -> pd.DataFrame:
        """Where the spread within a cell comes from: seed, fold, order of the data (see `effects.noise`)."""
        from contrasweep.results.effects import noise

        return noise(self.done, metric or self.metric, self.axes)

    def effects(self, metric: str | None = None) -> pd.DataFrame:
        """How much arm, axes and their interactions explain of the spread (see `effects.effects`)."""
        from contrasweep.results.effects import effects

        return effects(self.done, metric or self.metric, self.axes)

    def datasets(self, metric: str | None = None) -> "DatasetSummary | None":
        """Of a study over three datasets or more: mean ranks, critical differences, interquartile means and profiles of
        its arms (see `datasets.DatasetSummary`); None for others."""
        from contrasweep.results.datasets import dataset_summary

        metric = metric or self.metric
        return dataset_summary(self.frame, metric, self.axes, self.mode(metric))

    def pareto(self) -> pd.DataFrame:
        """Of a Sweep over several objectives or under constraints: its configurations, and which are on the front of
        their arm (see `search.pareto_frame`)."""
        return pareto_frame(self.search_records.values(), self.document)

    def spent(self) -> dict[str, str]:
        """Of a Sweep, by arm: what its search has cost beside its budget."""
        if self.document.search is None:
            return {}
        budget = ArmBudget(**self.document.search.budget)
        costs = search_costs(self.search_records.values(), self.document.arms)
        return {arm: cost.beside(budget) for arm, cost in costs.items()}

    def table(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        metric: str | None = None,
        *,
        over: Over = "replicates",
        style: "TableStyle | None" = None,
    ) -> "Table":
        """The study's table: mean and interval per cell, marks, what is missing shown as missing, and the verdicts of
        the study's question below.

        `rows` and `columns` are `arm`, an axis, or a list of these; without them the axes are the rows and
        the arms the columns. `style` says how it is drawn, `TableStyle(spread=True)` with (min-max) in its cells.
        `over="groups"` is about the test items of all folds: `metric` is then a score of test items (see
        `results.building`). Of another metric than the study's, and over groups, comparisons are exploratory.
        """
        from contrasweep.results.cells import PLAIN

        for name in [*_names(rows), *_names(columns)]:
            self.check_known("rows or columns", name, ["arm", *self.axes])
        rows, columns = self._layout(rows, columns)
        return self._tables.table(rows, columns, metric, over=over, style=style or PLAIN)

    def versus(
        self, a: str, b: str, metric: str | None = None, at: Config | None = None, *, over: Over = "replicates"
    ) -> "Versus":
        """Arm `a` against arm `b` in words and numbers: over the axes left free by `at`, and in each cell of the table.
        What belongs to the study's question has its verdict, the rest is exploratory. `over` as in `table`."""
        for arm in (a, b):
            self.check_known("arm", arm, list(dict.fromkeys(self.planned["arm"])))
        for axis in at or {}:
            self.check_known("axis", axis, self.axes)
        return self._tables.versus(a, b, metric, at or {}, over=over)

    def compare(self, a: str, b: str, metric: str | None = None, at: Config | None = None) -> "Comparison":
        """Arm `a` against arm `b` as one `Comparison`: `versus(...).overall`, of which this is short.

        `at` fixes axes; over those left free the differences of a replicate (fold, seed) are averaged. Only replicates
        that both arms have done in every such cell are used.
        """
        return self.versus(a, b, metric, at).overall.comparison

    def advice(self, hours: "Hours | None" = None) -> "Advice":
        """What would decide the comparisons that are undecided: for two and four times the replicates the detectable
        difference, the chance of a decision and the price, and how many replicates decide each with 80 %.

        `hours` says how long so many more trials of each arm take; by default as long as those so far, as many at a
        time."""
        from contrasweep.results.advice import advice

        return replace(advice(self, self.answer, self._tables.interim, hours), names=self.names)

    @property
    def answer(self) -> "Answer":
        """The comparisons that the study decides, with their verdicts."""
        return self._tables.answer

    @cached_property
    def _tables(self) -> "StudyTables":
        from contrasweep.results.study_tables import StudyTables

        return StudyTables(self)

    def pairs(self, a: str, b: str, metric: str, at: Config) -> pd.DataFrame:
        """Paired values: one row a replicate with fold, seed, a, b (means over the free axes)."""
        for arm in (a, b):
            self.check_known("arm", arm, list(dict.fromkeys(self.planned["arm"])))
        self.check_known("metric", metric, [str(c) for c in self.frame.columns])
        frame = self.at(self.done, at)
        keys = frame[["fold", "seed"]].assign(
            cell=[json.dumps(list(v), default=str) for v in frame[self.axes].itertuples(index=False)]
        )
        keys = keys.assign(
            fold=keys["fold"].astype(object).where(keys["fold"].notna(), -1), value=frame[metric], arm=frame["arm"]
        )
        wide = keys[keys["arm"].isin([a, b])].pivot_table(index=["fold", "seed", "cell"], columns="arm", values="value")
        if a not in wide or b not in wide:
            return pd.DataFrame(columns=["fold", "seed", "a", "b"])
        means = wide[[a, b]].dropna().groupby(level=["fold", "seed"]).mean().reset_index()
        return pd.DataFrame({"fold": means["fold"], "seed": means["seed"], "a": means[a], "b": means[b]})

    def _layout(self, rows: Any, columns: Any) -> tuple[Any, Any]:
        if rows is None and columns is None:
            return (self.axes or ["arm"]), (["arm"] if self.axes else [])
        taken = {*_names(rows), *_names(columns)}
        rest = [name for name in ["arm", *self.axes] if name not in taken]
        return (_names(rows) if rows is not None else rest), (_names(columns) if columns is not None else rest)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        return f"Results({self.name}: {counts})"

    def _repr_html_(self) -> str:
        return str(self.table()._repr_html_())

    def __str__(self) -> str:
        return str(self.table())


def _names(value: str | Sequence[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
