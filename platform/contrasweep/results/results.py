"""`Results`: what a study has so far, read from the storage alone; frames, tables and comparisons of it."""

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, choose_from
from contrasweep.results.code_use import MixedCode, mark_mixed_code
from contrasweep.results.pareto import pareto_frame
from contrasweep.results.searched import importance, search_frame
from contrasweep.storage import compact
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.arm_budget import ArmBudget, search_costs
from contrasweep.tracking.links import read_links

if TYPE_CHECKING:  # brings SciPy along, for which a study's records need not wait
    from contrasweep.results.table import Table
    from contrasweep.results.versus import Versus
    from contrasweep.statistics import Comparison

OWN_COLUMNS = ("trial_id", "arm", "fold", "seed", "status", "seconds", "gpu_memory_gib")
Over = Literal["replicates", "groups"]


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
        rest = compact.read_records(records, etags)
        of_trials = {trial_id: rest.pop(trial_id) for trial_id in planned["trial_id"] if trial_id in rest}
        return cls(
            document,
            planned,
            of_trials,
            rest if document.search else {},
            records,
            etags,
            read_links(records).runs if run_urls is None else run_urls,
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
            status=[(record.status if record else Status.PENDING).value for record in rows],
            **metrics,
            seconds=[record.seconds if record else np.nan for record in rows],
            gpu_memory_gib=pd.array([record.gpu_memory_gib if record else None for record in rows], dtype="Float64"),
        )

    @cached_property
    def search(self) -> pd.DataFrame:
        """A Sweep's search, one row a configuration (see `searched.search_frame`). Empty for a grid."""
        return search_frame(self.search_records.values(), self.document)

    def importance(self) -> dict[str, dict[str, float]]:
        """Of a Sweep, by arm: the share of each searched setting in what makes configurations good (PED-ANOVA)."""
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
    def items(self) -> Callable[[str], Mapping[str, Any]]:
        """A trial's scores of its test items by name, read once."""
        return functools.cache(self.records.items)

    def curves(self, trial_ids: Iterable[str] | None = None) -> pd.DataFrame:
        """Every report of the table's trials, or of `trial_ids`: trial_id, step, time, and the metrics."""
        return compact.read_curves(self.records, self.etags, self.trial_records if trial_ids is None else trial_ids)

    def table(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        metric: str | None = None,
        *,
        spread: bool = False,
        over: Over = "replicates",
    ) -> "Table":
        """The study's table: mean and interval per cell, the best marked, what is missing shown as missing.

        `rows` and `columns` are `arm`, an axis, or a list of these; without them the axes are the rows and
        the arms the columns. With `spread` cells show (min-max) over folds or replicates beside their interval.
        `over="groups"` pools the folds: `metric` is then a score of test items, and a replicate is a group of these
        (see `results.over_groups`).
        """
        for name in [*_names(rows), *_names(columns)]:
            self._known("rows or columns", name, ["arm", *self.axes])
        rows, columns = self._layout(rows, columns)
        return self._table(self._frame, rows, columns, metric, self.document.reference, spread, over)

    def versus(
        self,
        a: str,
        b: str,
        metric: str | None = None,
        at: Mapping[str, Any] | None = None,
        *,
        over: Over = "replicates",
    ) -> "Versus":
        """Arm `a` against arm `b` in words and numbers: over the axes left free by `at`, and in each cell of the table,
        with p-values adjusted over the table's family of comparisons. `over` as in `table`."""
        from contrasweep.results.versus import versus

        for arm in (a, b):
            self._known("arm", arm, list(dict.fromkeys(self.planned["arm"])))
        frame, reference = self._at(self._frame, at or {}), self.document.reference
        family = reference if reference in (a, b) else None
        free = [axis for axis in self.axes if axis not in (at or {})]
        cells = self._table(frame, free, ["arm"], metric, family, over=over) if free else None
        where = "".join(f", {axis} {value}" for axis, value in (at or {}).items())
        return versus(f"{self.title}{where}", a, b, self._table(frame, ["arm"], [], metric, family, over=over), cells)

    def _table(
        self,
        frame: pd.DataFrame,
        rows: Any,
        columns: Any,
        metric: str | None,
        reference: str | None,
        spread: bool = False,
        over: Over = "replicates",
    ) -> "Table":
        from contrasweep.results.building import build_table
        from contrasweep.results.over_groups import chosen_score, table_over_groups

        if over not in (known := get_args(Over)):
            raise SpecError(
                "there are no such replicates", place="over", value=over, hint=choose_from("kinds", list(known), over)
            )
        if over == "groups":
            metric = chosen_score(self.trial_records, metric, self.metric)
        else:
            metric = metric or self.metric
            self._known(
                "metric", metric, [c for c in self._frame.columns if c not in {*OWN_COLUMNS, *self.axes}] or [metric]
            )
        layout: dict[str, Any] = {
            "rows": rows,
            "columns": columns,
            "mode": self._mode(metric),
            "alpha": self.document.alpha,
            "reference": reference,
            "title": self.title,
            "spread": spread,
        }
        if over == "groups":
            table = table_over_groups(self.items, frame, self.trial_records, self.axes, metric, **layout)
        else:
            table = build_table(
                frame, metric=metric, train_fraction=self._train_fraction, links=self.run_urls, **layout
            )
        return mark_mixed_code(table, self.mixed_code, self.records)

    @cached_property
    def mixed_code(self) -> MixedCode:
        """Trials of the table that ran other code than the newest."""
        return MixedCode.of(self.trial_records.values())

    def _mode(self, metric: str) -> Any:
        """Of another metric than the study's larger is better, unless it is a loss or the similarity to other
        classes."""
        return self.document.mode if metric == self.metric else "min" if metric.startswith(("loss", "noise")) else "max"

    @property
    def title(self) -> str:
        """The study, its data, and whether any of the data is synthetic, as it stands over every table."""
        names = dict.fromkeys(d.name + " (synthetic)" * d.synthetic for d in self.document.datasets)
        return f"{self.name} on {', '.join(names)}"

    def compare(self, a: str, b: str, metric: str | None = None, at: Mapping[str, Any] | None = None) -> "Comparison":
        """Arm `a` against arm `b` over paired replicates: values of the same axes, fold and seed.

        `at` fixes axes; over those left free the differences of a replicate are averaged, so that a
        replicate (fold, seed) counts once. Only replicates that both arms have done are used.
        """
        from contrasweep.statistics import compare_paired

        metric = metric or self.metric
        pairs = self.pairs(a, b, metric, at or {})
        if pairs.empty:
            raise SpecError("the arms have no finished replicate in common", place="compare", value=(a, b))
        return compare_paired(
            pairs["a"].to_numpy(),
            pairs["b"].to_numpy(),
            train_fraction=self._train_fraction,
            alpha=self.document.alpha,
            mode=self._mode(metric),
            groups=list(pairs["fold"]) if self._train_fraction else None,
        )

    def pairs(self, a: str, b: str, metric: str, at: Mapping[str, Any]) -> pd.DataFrame:
        """Paired values: one row a replicate with fold, seed, a, b (means over the free axes)."""
        for arm in (a, b):
            self._known("arm", arm, list(dict.fromkeys(self.planned["arm"])))
        self._known("metric", metric, [str(c) for c in self._frame.columns])
        frame = self._at(self._frame[self._frame["status"] == Status.DONE], at)
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

    def _at(self, frame: pd.DataFrame, at: Mapping[str, Any]) -> pd.DataFrame:
        """The rows of those cells alone."""
        for axis, value in at.items():
            self._known("axis", axis, self.axes)
            frame = frame[[v == value for v in frame[axis]]]
        return frame

    @property
    def _train_fraction(self) -> float | None:
        return self.document.train_fraction

    def _layout(self, rows: Any, columns: Any) -> tuple[Any, Any]:
        if rows is None and columns is None:
            return (self.axes or ["arm"]), (["arm"] if self.axes else [])
        taken = {*_names(rows), *_names(columns)}
        rest = [name for name in ["arm", *self.axes] if name not in taken]
        return (_names(rows) if rows is not None else rest), (_names(columns) if columns is not None else rest)

    def _known(self, kind: str, value: str, known: list[str]) -> None:
        if value not in known:
            raise SpecError(
                f"there is no such {kind}",
                place=f"study {self.name}",
                value=value,
                hint=choose_from(kind, known, value),
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
