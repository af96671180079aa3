"""`Results`: what a study has so far, read from the storage alone; frames, tables and comparisons of it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from contrasweep.config import Config
from contrasweep.errors import BrokenFileError, SpecError, choose_from
from contrasweep.results.code_use import MixedCode
from contrasweep.results.display_names import DisplayNames, display_names
from contrasweep.results.item_reader import ItemReader, Items
from contrasweep.results.names import OWN_COLUMNS, Over
from contrasweep.results.notices import notice_lines
from contrasweep.results.pareto import pareto_frame
from contrasweep.results.searched import importance, search_frame
from contrasweep.results.unread import unread_lines
from contrasweep.rows import ItemColumns
from contrasweep.storage import compact
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.arm_budget import ArmBudget, search_costs
from contrasweep.tracking.links import read_links

if TYPE_CHECKING:  # brings SciPy along, for which a study's records need not wait
    from contrasweep.report.plots import StudyPlots
    from contrasweep.results.advice import Advice
    from contrasweep.results.answer import Answer
    from contrasweep.results.best import Best
    from contrasweep.results.datasets import DatasetSummary
    from contrasweep.results.prices import Hours
    from contrasweep.results.study_tables import StudyTables
    from contrasweep.results.table import Table
    from contrasweep.results.versus import Versus
    from contrasweep.statistics import Comparison

MAX_NOTES = 3
PLURALS = {"arm": "arms", "axis": "axes", "metric": "metrics", "rows or columns": "rows and columns"}


@dataclass(frozen=True, repr=False)
class Results:
    """A study's trials and what became of them. A trial without a record is `pending`."""

    document: StudyDocument
    planned: pd.DataFrame  # one row a trial of the table: trial_id, arm, the axes, fold, seed
    trial_records: Mapping[str, Record]  # those there are of the planned trials, by trial id
    search_records: Mapping[str, Record]  # those of a Sweep's search
    records: StudyRecords
    etags: Mapping[str, str]  # the records' state when they were read
    run_urls: Mapping[str, str] = field(default_factory=dict)  # of the trials' MLflow runs, where they are known
    stopped: str = ""  # which budget ended the run that gave these results
    broken: list[BrokenFileError] = field(default_factory=list)  # files of single trials, left out of what is shown

    @classmethod
    def load(cls, study: str, storage: str, *, run_urls: Mapping[str, str] | None = None) -> "Results":
        """The study called `study` as it lies in `storage`; `SpecError` if it was never run there."""
        records = StudyRecords(storage, study)
        document = records.document()
        if document is None:
            raise SpecError(
                "there is no such study in this storage",
                place="STUDY",
                value=study,
                hint=f"storage is {storage}; run it first with: contrasweep run",
            )
        planned, etags = read_planned(records), compact.record_etags(records)
        broken: list[BrokenFileError] = []
        rest = compact.read_records(records, etags, broken)
        of_trials = {trial_id: rest.pop(trial_id) for trial_id in planned["trial_id"] if trial_id in rest}
        return cls(
            document,
            planned,
            of_trials,
            rest if document.search else {},
            records,
            etags,
            read_links(records).runs if run_urls is None else run_urls,
            broken=broken,
        )

    @property
    def name(self) -> str:
        """The study's name."""
        return self.document.name

    @property
    def metric(self) -> str:
        """The metric that the study is about."""
        return self.document.metric

    @property
    def axes(self) -> list[str]:
        """What the arms are compared over, as declared."""
        return list(self.document.axes)

    @cached_property
    def names(self) -> DisplayNames:
        """What the study's `labels` call its arms, axes and metrics where people read them."""
        return display_names(self.document.labels, [*self.document.arms, *self._frame.columns])

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
        return set(self.counts) <= {Status.DONE, Status.PRUNED}

    def to_frame(self) -> pd.DataFrame:
        """One row a trial: trial_id, arm, the axes, fold, seed, status, the metrics, seconds, gpu_memory_gib."""
        return self._frame.copy()

    @cached_property
    def _frame(self) -> pd.DataFrame:
        rows = [self.trial_records.get(trial_id) for trial_id in self.planned["trial_id"]]
        taken = {*OWN_COLUMNS, *self.axes}
        names = dict.fromkeys([self.metric, *(name for record in rows if record for name in record.metrics)])
        metrics = {
            (f"metric.{name}" if name in taken else name): [
                record.metrics.get(name, np.nan) if record else np.nan for record in rows
            ]
            for name in names
        }
        return self.planned.assign(
            status=[
                self._status(trial_id, record).value
                for trial_id, record in zip(self.planned["trial_id"], rows, strict=True)
            ],
            **metrics,
            seconds=[record.seconds if record else np.nan for record in rows],
            gpu_memory_gib=pd.array([record.gpu_memory_gib if record else None for record in rows], dtype="Float64"),
        )

    def _status(self, trial_id: str, record: Record | None) -> Status:
        return record.status if record else Status.BROKEN if trial_id in self.etags else Status.PENDING

    @cached_property
    def search(self) -> pd.DataFrame:
        """A Sweep's search, one row a configuration (see `searched.search_frame`). Empty for a grid."""
        return search_frame(self.search_records.values(), self.document)

    def best(self) -> pd.DataFrame:
        """One row an arm: of a search its best settings, their score in the search and their confirmed one with its
        interval; of a grid its best cell (see `best.Best`)."""
        from contrasweep.results.best import best_frame

        return best_frame(self.best_settings)

    @cached_property
    def best_settings(self) -> "list[Best]":
        """The same as objects, in the order of the study's arms."""
        from contrasweep.results.best import best_of_grid, best_of_search
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
        would show, and what that says (see `searched.importance`). Empty for a grid."""
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

        return noise(self._frame[self._frame["status"] == Status.DONE], metric or self.metric, self.axes)

    def effects(self, metric: str | None = None) -> pd.DataFrame:
        """How much arm, axes and their interactions explain of the spread (see `effects.effects`)."""
        from contrasweep.results.effects import effects

        return effects(self._frame[self._frame["status"] == Status.DONE], metric or self.metric, self.axes)

    def datasets(self, metric: str | None = None) -> "DatasetSummary | None":
        """Of a study over three datasets or more: mean ranks, critical differences, interquartile means and profiles of
        its arms (see `datasets.DatasetSummary`); None for others."""
        from contrasweep.results.datasets import dataset_summary

        metric = metric or self.metric
        return dataset_summary(self._frame, metric, self.axes, self.mode(metric))

    def pareto(self) -> pd.DataFrame:
        """Of a Sweep over several objectives or under constraints: its configurations, and which are on the front of
        their arm (see `pareto.pareto_frame`)."""
        return pareto_frame(self.search_records.values(), self.document)

    def spent(self) -> dict[str, str]:
        """Of a Sweep, by arm: what its search has cost beside its budget."""
        if self.document.search is None:
            return {}
        budget = ArmBudget(**self.document.search.budget)
        costs = search_costs(self.search_records.values(), self.document.arms)
        return {arm: cost.beside(budget) for arm, cost in costs.items()}

    @cached_property
    def items(self) -> Items:
        """A trial's scores of its test items by name, read once; {} where they are broken."""
        return ItemReader(self._items, remote=not isinstance(self.records.store, LocalStore))

    def _items(self, trial_id: str) -> ItemColumns:
        record = self.trial_records.get(trial_id)
        try:
            return self.records.items(trial_id, record.items if record else ())
        except BrokenFileError as error:
            self._leave_out([error])
            return {}

    def _leave_out(self, broken: Iterable[BrokenFileError]) -> None:
        known = set(map(str, self.broken))
        self.broken.extend(error for error in broken if str(error) not in known)

    def broken_notes(self) -> list[str]:
        """What a reader must know of broken files, in a few lines."""
        told = [f"left out: {error}" for error in self.broken[:MAX_NOTES]]
        return told + [f"left out: {len(self.broken) - MAX_NOTES} more broken files"] * (len(self.broken) > MAX_NOTES)

    def curves(self, trial_ids: Iterable[str] | None = None) -> pd.DataFrame:
        """Every report of the table's trials, or of `trial_ids`: trial_id, step, time, and the metrics."""
        broken: list[BrokenFileError] = []
        wanted = self.trial_records if trial_ids is None else trial_ids
        curves = compact.read_curves(self.records, self.etags, wanted, broken)
        self._leave_out(broken)
        return curves

    def system(self) -> pd.DataFrame:
        """What every trial used over time: trial_id, step (seconds since it began), time, `gpu_utilization_percentage`,
        `gpu_memory_gib`, `cpu_utilization_percentage` of the host and `process_memory_gib`; none of shorter trials."""
        broken: list[BrokenFileError] = []
        wanted = [*self.search_records, *self.trial_records]
        return compact.read_system(self.records, self.etags, wanted, broken)

    def table(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        metric: str | None = None,
        *,
        spread: bool = False,
        over: Over = "replicates",
    ) -> "Table":
        """The study's table: mean and interval per cell, marks, what is missing shown as missing, and the verdicts of
        the study's question below.

        `rows` and `columns` are `arm`, an axis, or a list of these; without them the axes are the rows and
        the arms the columns. With `spread` cells show (min-max) over folds or replicates beside their interval.
        `over="groups"` is about the test items of all folds: `metric` is then a score of test items (see
        `results.over_groups`). Of another metric than the study's, and over groups, comparisons are exploratory.
        """
        for name in [*_names(rows), *_names(columns)]:
            self._known("rows or columns", name, ["arm", *self.axes])
        rows, columns = self._layout(rows, columns)
        return self._tables.table(rows, columns, metric, spread=spread, over=over)

    def versus(
        self, a: str, b: str, metric: str | None = None, at: Config | None = None, *, over: Over = "replicates"
    ) -> "Versus":
        """Arm `a` against arm `b` in words and numbers: over the axes left free by `at`, and in each cell of the table.
        What belongs to the study's question has its verdict, the rest is exploratory. `over` as in `table`."""
        for arm in (a, b):
            self._known("arm", arm, list(dict.fromkeys(self.planned["arm"])))
        for axis in at or {}:
            self._known("axis", axis, self.axes)
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

        return replace(advice(self, self._tables.growth, hours), names=self.names)

    @property
    def answer(self) -> "Answer":
        """The comparisons that the study decides, with their verdicts."""
        return self._tables.answer

    @cached_property
    def _tables(self) -> "StudyTables":
        from contrasweep.results.study_tables import StudyTables

        return StudyTables(self)

    @cached_property
    def unread(self) -> list[str]:
        """A sentence for each setting that no trial of some arms read."""
        return unread_lines([*self.trial_records.values(), *self.search_records.values()])

    @cached_property
    def notices(self) -> list[str]:
        """A sentence for what finished trials of the table say of themselves, such as that OCL was SCL in them."""
        return notice_lines(self.trial_records.values())

    @cached_property
    def mixed_code(self) -> MixedCode:
        """Trials of the table that ran other code than the newest."""
        return MixedCode.of(self.trial_records.values())

    def mode(self, metric: str) -> Any:
        """Which values of a metric are better. Of another one than the study's larger ones are, unless it is a loss or
        the similarity to other classes."""
        return self.document.mode if metric == self.metric else "min" if metric.startswith(("loss", "noise")) else "max"

    @property
    def title(self) -> str:
        """The study, its data, and whether any of the data is synthetic, as it stands over every table."""
        names = dict.fromkeys(self.names(d.name) + " (synthetic)" * d.synthetic for d in self.document.datasets)
        return f"{self.name} on {', '.join(names)}"

    def pairs(self, a: str, b: str, metric: str, at: Config) -> pd.DataFrame:
        """Paired values: one row a replicate with fold, seed, a, b (means over the free axes)."""
        for arm in (a, b):
            self._known("arm", arm, list(dict.fromkeys(self.planned["arm"])))
        self._known("metric", metric, [str(c) for c in self._frame.columns])
        frame = self.at(self._frame[self._frame["status"] == Status.DONE], at)
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

    def at(self, frame: pd.DataFrame, at: Config) -> pd.DataFrame:
        """The rows of `frame` (of `to_frame`) in those cells alone: axis -> value."""
        for axis, value in at.items():
            self._known("axis", axis, self.axes)
            frame = frame[[v == value for v in frame[axis]]]
        return frame

    def _layout(self, rows: Any, columns: Any) -> tuple[Any, Any]:
        if rows is None and columns is None:
            return (self.axes or ["arm"]), (["arm"] if self.axes else [])
        taken = {*_names(rows), *_names(columns)}
        rest = [name for name in ["arm", *self.axes] if name not in taken]
        return (_names(rows) if rows is not None else rest), (_names(columns) if columns is not None else rest)

    def known_metric(self, metric: str, known: list[str]) -> None:
        """`SpecError` unless `metric` is one of `known`, or nothing is known of any yet."""
        self._known("metric", metric, known or [metric])

    def _known(self, kind: str, value: str, known: list[str]) -> None:
        if value not in known:
            raise SpecError(
                f"there is no such {kind}",
                place=f"study {self.name}",
                value=value,
                hint=choose_from(PLURALS[kind], known, value),
            )

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        return f"Results({self.name}: {counts})"

    def _repr_html_(self) -> str:
        return str(self.table()._repr_html_())

    def __str__(self) -> str:
        return str(self.table())


def _names(value: str | Sequence[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
