"""The tables and comparisons of one study: which are its question's, and what the others are."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, get_args

import pandas as pd

from contrasweep.config import Config
from contrasweep.errors import SpecError, choose_from
from contrasweep.results.answer import Answer
from contrasweep.results.building import build_table
from contrasweep.results.cells import Pair, label
from contrasweep.results.code_use import MixedCode, mark_mixed_code
from contrasweep.results.comparing import ItemValues, Judging
from contrasweep.results.display_names import DisplayNames
from contrasweep.results.growth import Extension, Growth
from contrasweep.results.item_reader import Items
from contrasweep.results.item_values import item_values
from contrasweep.results.names import OWN_COLUMNS, Over
from contrasweep.results.over_groups import chosen_score, table_over_groups
from contrasweep.results.study_trials import StudyTrials
from contrasweep.results.table import Table
from contrasweep.results.versus import Versus, versus
from contrasweep.statistics.design import Design
from contrasweep.storage.confirmations import confirmation_notes
from contrasweep.storage.records import StudyRecords


class StoredStudy(StudyTrials, Protocol):
    """What tables are built from: `Results` has it."""

    @property
    def records(self) -> StudyRecords:
        """The study in its storage."""

    @property
    def run_urls(self) -> Mapping[str, str]:
        """MLflow runs by trial id."""

    @property
    def metric(self) -> str:
        """The study's metric."""

    @property
    def axes(self) -> list[str]:
        """The study's axes."""

    @property
    def title(self) -> str:
        """What stands over every table."""

    @property
    def items(self) -> Items:
        """A trial's scores of its test items."""

    @property
    def mixed_code(self) -> MixedCode:
        """Trials of other code than the newest."""

    @property
    def unread(self) -> list[str]:
        """Settings that no trial read."""

    @property
    def notices(self) -> list[str]:
        """What its trials say of themselves."""

    @property
    def names(self) -> DisplayNames:
        """What is shown in place of declared names."""

    def broken_notes(self) -> list[str]:
        """Files that were left out."""

    def to_frame(self) -> pd.DataFrame:
        """One row a trial with its metrics."""

    def at(self, frame: pd.DataFrame, at: Config) -> pd.DataFrame:
        """The rows of these cells."""

    def mode(self, metric: str) -> Any:
        """Which values of a metric are better."""

    def known_metric(self, metric: str, known: list[str]) -> None:
        """`SpecError` for an unknown metric."""


class StudyTables:
    """Builds what `Results` hands out, so that every table and comparison of a study has the same verdicts."""

    def __init__(self, results: StoredStudy) -> None:
        self.results = results

    @cached_property
    def design(self) -> Design:
        """How the study's cells are replicated, as far as its declaration says it."""
        return Design(folds=self.results.document.folds)

    @cached_property
    def overall(self) -> Table:
        """The arms over all axes, of the study's metric."""
        return self._build(["arm"], [], self.results.metric)

    @cached_property
    def by_cell(self) -> Table:
        """The arms in each cell, of the study's metric."""
        return self._build(self.results.axes, ["arm"], self.results.metric) if self.results.axes else self.overall

    @cached_property
    def growth(self) -> Growth | Extension | None:
        """The looks at the study, if it is looked at as it grows or was extended after its end."""
        records = self.results.records
        return Growth.of(self.results.document.spec, records) or Extension.of(records)

    @property
    def answer(self) -> Answer:
        """What the study decides."""
        question = self.results.document.question
        table = self.overall if question == "overall" else self.by_cell
        return Answer(table.pairs, question, tuple(self.results.axes) if question == "overall" else ())

    def table(self, rows: Any, columns: Any, metric: str | None, *, spread: bool, over: Over) -> Table:
        """The table of this layout with the study's answer below it, where it is about the study's metric."""
        table = self._build(rows, columns, metric, over=over, spread=spread)
        if table.metric == self.results.metric and over == "replicates" and not table.decisive:
            averages = {}
            if self.results.document.question == "overall" and table.column_factors == ("arm",) and not table.pooled:
                averages = {arm: cell for (arm, _), cell in self.overall.cells.items()}
            table = replace(table, given_answer=self.answer, averages=averages)
        own = table.metric == self.results.metric and over == "replicates"
        growth = self.growth.notes if own and self.growth is not None else []
        confirmed = confirmation_notes(self.results.document.spec, self.results.records)
        table = replace(table, notes=(*table.notes, *growth, *confirmed, *self.results.unread, *self.results.notices))
        table = mark_mixed_code(table, self.results.mixed_code, self.results.records)
        return replace(table, notes=(*table.notes, *self.results.broken_notes()), names=self.results.names)

    def versus(self, a: str, b: str, metric: str | None, at: Config, *, over: Over) -> Versus:
        """`a` against `b`: what the study's question decides of them with its verdict, the rest exploratory."""
        results, free = self.results, [axis for axis in self.results.axes if axis not in at]
        where = "".join(f", {axis} {value}" for axis, value in at.items())
        own = (metric or results.metric) == results.metric and over == "replicates"
        frame = results.at(results.to_frame(), at)
        cells: list[Pair] = []
        if results.axes and (free or own):
            cells = self._between(self.by_cell.pairs if own else (), a, b, at)
            if not cells:
                cells = self._between(
                    self._build(results.axes, ["arm"], metric, over=over, family=False).pairs, a, b, at
                )
        if at and not free and cells and cells[0].comparison.judgement is not None:
            return replace(versus(f"{results.title}{where}", a, b, cells, ()), names=results.names)
        overall = self._between(self.overall.pairs, a, b, {}) if own and not at else []
        overall = overall or list(self._build(["arm"], [], metric, over=over, family=False, frame=frame).pairs)
        shown = versus(f"{results.title}{where}", a, b, overall, cells if free else (), free)
        return replace(shown, names=results.names)

    def _between(self, pairs: Any, a: str, b: str, at: Config) -> list[Pair]:
        """The comparisons of the two arms at these values of axes, which are then left out of their contexts."""
        fixed = {axis: label(value) for axis, value in at.items()}
        kept = [p for p in pairs if {p.a, p.b} == {a, b} and fixed.items() <= dict(p.context).items()]
        return [replace(p, context=tuple((axis, v) for axis, v in p.context if axis not in fixed)) for p in kept]

    def _build(
        self,
        rows: Any,
        columns: Any,
        metric: str | None,
        *,
        over: Over = "replicates",
        spread: bool = False,
        family: bool = True,
        frame: Any = None,
    ) -> Table:
        results, document = self.results, self.results.document
        if over not in (known := get_args(Over)):
            raise SpecError(
                "there are no such replicates", place="over", value=over, hint=choose_from("kinds", list(known), over)
            )
        whole = results.to_frame() if frame is None else frame
        if over == "groups":
            metric = chosen_score(results.trial_records, metric, results.metric)
        else:
            metric = metric or results.metric
            results.known_metric(metric, [c for c in whole.columns if c not in {*OWN_COLUMNS, *results.axes}])
        own = family and metric == results.metric and over == "replicates"
        judging = Judging(
            design=self.design,
            mode=results.mode(metric),
            alpha=document.alpha,
            question=document.question if own else None,
            margin=document.smallest_difference,
            reference=document.reference if family else None,
            growth=self.growth if own else None,
        )
        shown: dict[str, Any] = {"rows": rows, "columns": columns, "title": results.title, "spread": spread}
        if over == "groups":
            return table_over_groups(
                results.items, whole, results.trial_records, results.axes, metric, judging=judging, **shown
            )
        items = self._items(metric)
        if items is not None:
            judging = replace(judging, design=Design(items=max(map(len, items.sizes.values()))))
        return build_table(
            whole, metric=metric, judging=judging, links=results.run_urls, axes=results.axes, items=items, **shown
        )

    def _items(self, metric: str) -> ItemValues | None:
        """The scores of test items that the metric is the mean of, where the study has one split and its trials left
        them."""
        results = self.results
        if self.design.folds:
            return None
        return item_values(results.items, results.to_frame(), results.trial_records, metric)
