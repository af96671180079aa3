"""The tables and comparisons of one study: which are its question's, and what the others are."""

from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

from contrasweep.config import Config
from contrasweep.errors import SpecError, choose_from
from contrasweep.results.answer import Answer, Versus, versus
from contrasweep.results.building import build_table, chosen_score, table_over_groups
from contrasweep.results.cells import Pair, TableStyle, label
from contrasweep.results.comparing import DecisionRule
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.items import ItemValues, item_values
from contrasweep.results.notices import mark_mixed_code
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.study_data import OWN_COLUMNS, Over, StudyData
from contrasweep.results.table import Table
from contrasweep.statistics.design import Design
from contrasweep.storage.confirmations import confirmation_notes


class StudyTables:
    """Builds what a study hands out, so that every table and comparison of a study has the same verdicts."""

    def __init__(self, data: StudyData) -> None:
        self.data = data

    @cached_property
    def design(self) -> Design:
        """How the study's cells are replicated, as far as its declaration says it."""
        return Design(folds=self.data.document.folds)

    @cached_property
    def overall(self) -> Table:
        """The arms over all axes, of the study's metric."""
        return self._build(["arm"], [], self.data.metric)

    @cached_property
    def by_cell(self) -> Table:
        """The arms in each cell, of the study's metric."""
        return self._build(self.data.axes, ["arm"], self.data.metric) if self.data.axes else self.overall

    @cached_property
    def interim(self) -> InterimVerdicts | ExtensionVerdicts | None:
        """The looks at the study, if it is looked at as it grows or was extended after its end."""
        records = self.data.records
        return InterimVerdicts.of(self.data.document.spec, records) or ExtensionVerdicts.of(records)

    @property
    def answer(self) -> Answer:
        """What the study decides."""
        question = self.data.document.question
        table = self.overall if question == "overall" else self.by_cell
        return Answer(table.pairs, question, tuple(self.data.axes) if question == "overall" else ())

    def table(self, rows: Any, columns: Any, metric: str | None, *, over: Over, style: TableStyle) -> Table:
        """The table of this layout with the study's answer below it, where it is about the study's metric."""
        table = self._build(rows, columns, metric, over=over)
        if table.metric == self.data.metric and over == "replicates" and not table.decisive:
            averages = {}
            if self.data.document.question == "overall" and table.column_factors == ("arm",) and not table.pooled:
                averages = {arm: cell for (arm, _), cell in self.overall.cells.items()}
            table = replace(table, given_answer=self.answer, averages=averages)
        own = table.metric == self.data.metric and over == "replicates"
        interim = self.interim.notes if own and self.interim is not None else []
        confirmed = confirmation_notes(self.data.document.spec, self.data.records)
        table = replace(table, notes=(*table.notes, *interim, *confirmed, *self.data.unread, *self.data.notices))
        table = mark_mixed_code(table, self.data.mixed_code, self.data.records)
        names = DisplayNames({**self.data.names.names, **style.names.names})
        return replace(table, notes=(*table.notes, *self.data.broken_notes()), style=replace(style, names=names))

    def versus(self, a: str, b: str, metric: str | None, at: Config, *, over: Over) -> Versus:
        """`a` against `b`: what the study's question decides of them with its verdict, the rest exploratory."""
        data, free = self.data, [axis for axis in self.data.axes if axis not in at]
        where = "".join(f", {axis} {value}" for axis, value in at.items())
        own = (metric or data.metric) == data.metric and over == "replicates"
        frame = data.at(data.frame, at)
        cells: list[Pair] = []
        if data.axes and (free or own):
            cells = self._between(self.by_cell.pairs if own else (), a, b, at)
            if not cells:
                cells = self._between(self._build(data.axes, ["arm"], metric, over=over, family=False).pairs, a, b, at)
        if at and not free and cells and cells[0].comparison.judgement is not None:
            return replace(versus(f"{data.title}{where}", a, b, cells, ()), names=data.names)
        overall = self._between(self.overall.pairs, a, b, {}) if own and not at else []
        overall = overall or list(self._build(["arm"], [], metric, over=over, family=False, frame=frame).pairs)
        shown = versus(f"{data.title}{where}", a, b, overall, cells if free else (), free)
        return replace(shown, names=data.names)

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
        family: bool = True,
        frame: Any = None,
    ) -> Table:
        data, document = self.data, self.data.document
        if over not in (known := get_args(Over)):
            raise SpecError(
                "there are no such replicates", place="over", value=over, hint=choose_from("kinds", list(known), over)
            )
        whole = data.frame if frame is None else frame
        if over == "groups":
            metric = chosen_score(data.trial_records, metric, data.metric)
        else:
            metric = metric or data.metric
            data.known_metric(metric, [c for c in whole.columns if c not in {*OWN_COLUMNS, *data.axes}])
        own = family and metric == data.metric and over == "replicates"
        rule = DecisionRule(
            design=self.design,
            mode=data.mode(metric),
            alpha=document.alpha,
            question=document.question if own else None,
            margin=document.smallest_difference,
            reference=document.reference if family else None,
            interim=self.interim if own else None,
        )
        shown: dict[str, Any] = {"rows": rows, "columns": columns, "title": data.title}
        if over == "groups":
            return table_over_groups(data.items, whole, data.trial_records, data.axes, metric, rule=rule, **shown)
        items = self._items(metric)
        if items is not None:
            rule = replace(rule, design=Design(items=max(map(len, items.sizes.values()))))
        return build_table(whole, metric=metric, rule=rule, links=data.run_urls, axes=data.axes, items=items, **shown)

    def _items(self, metric: str) -> ItemValues | None:
        """The scores of test items that the metric is the mean of, where the study has one split and its trials left
        them."""
        data = self.data
        if self.design.folds:
            return None
        return item_values(data.items, data.frame, data.trial_records, metric)
