"""Tables, comparisons and reports with display names in place of declared ones: the same numbers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd

from contrasweep.report.data import ReportData
from contrasweep.results.advice import Advice
from contrasweep.results.answer import Answer
from contrasweep.results.cells import Key, Pair, label
from contrasweep.results.display_names import NONE, DisplayNames
from contrasweep.results.table import Table
from contrasweep.results.versus import Versus


def displayed(shown: Table | Versus | Advice) -> Table | Versus | Advice:
    """What a format shows of a table, of two arms or of advice."""
    if not (names := shown.names):
        return shown
    if isinstance(shown, Table):
        return named_table(shown, names)
    if isinstance(shown, Versus):
        overall, *cells = (named_pair(pair, names) for pair in shown.pairs)
        a, b, metric, free = names(shown.a), names(shown.b), names(shown.metric), tuple(map(names, shown.free))
        return Versus(shown.title, a, b, metric, overall, tuple(cells), free)
    return named_advice(shown, names)


def named_advice(advice: Advice, names: DisplayNames) -> Advice:
    """Advice with display names."""
    outlooks = tuple(replace(one, pair=named_pair(one.pair, names)) for one in advice.outlooks)
    return replace(advice, outlooks=outlooks, names=NONE)


def named_table(table: Table, names: DisplayNames) -> Table:
    """A table with display names."""
    rows, columns = _keys(table.rows, names), _keys([*table.columns, *table.averages], names)
    return replace(
        table,
        metric=names(table.metric),
        row_factors=tuple(map(names, table.row_factors)),
        column_factors=tuple(map(names, table.column_factors)),
        rows=tuple(rows[row] for row in table.rows),
        columns=tuple(columns[column] for column in table.columns),
        cells={(rows[row], columns[column]): cell for (row, column), cell in table.cells.items()},
        pairs=tuple(named_pair(pair, names) for pair in table.pairs),
        compared=tuple(map(names, table.compared)),
        pooled=tuple(map(names, table.pooled)),
        reference=None if table.reference is None else names(table.reference),
        given_answer=None if table.given_answer is None else named_answer(table.given_answer, names),
        averages={columns[column]: cell for column, cell in table.averages.items()},
        names=NONE,
    )


def named_answer(answer: Answer, names: DisplayNames) -> Answer:
    """Comparisons with display names."""
    pairs = tuple(named_pair(pair, names) for pair in answer.pairs)
    return replace(answer, pairs=pairs, axes=tuple(map(names, answer.axes)))


def named_pair(pair: Pair, names: DisplayNames) -> Pair:
    """A comparison with display names."""
    context = tuple((names(factor), names(value)) for factor, value in pair.context)
    return replace(pair, context=context, a=names(pair.a), b=names(pair.b), metric=names(pair.metric))


def named_report(data: ReportData, names: DisplayNames) -> ReportData:
    """All that the HTML report shows, with display names; settings that were searched keep theirs."""
    if not names:
        return data
    document = data.document
    declared = {names(arm): settings for arm, settings in (document.spec.get("arms") or {}).items()}
    reported = [] if data.curves is None else map(str, data.curves)
    columns = {word: names(word) for word in [data.metric, *data.axes, *reported]}
    frame = data.frame.assign(**{axis: _values(data.frame[axis], names) for axis in data.axes})
    return replace(
        data,
        frame=_named_arms(frame, names).rename(columns=_free(columns, frame)),
        document=replace(
            document,
            metric=_free(columns, frame).get(data.metric, data.metric),
            arms=tuple(map(names, document.arms)),
            axes=tuple(_free(columns, frame).get(axis, axis) for axis in document.axes),
            reference=None if document.reference is None else names(document.reference),
            spec={**document.spec, "arms": declared},
        ),
        curves=None if data.curves is None else data.curves.rename(columns=_free(columns, data.curves)),
        search=None if data.search is None else _named_arms(data.search, names),
        importance=None if data.importance is None else _named_arms(data.importance, names),
        spent=None if data.spent is None else _named_arms(data.spent, names),
        by_item=[
            {names(key): names(value) if isinstance(value, str) else value for key, value in row.items()}
            for row in data.by_item
        ],
        over_groups=[named_table(table, names) for table in data.over_groups],
        advice=data.advice and named_advice(data.advice, names),
        given=data.given and named_table(data.given, names),
        given_overall=data.given_overall and named_table(data.given_overall, names),
    )


def _keys(keys: Iterable[Key], names: DisplayNames) -> dict[Key, Key]:
    """By key how it is shown; as they are where two would be shown alike."""
    shown = {key: tuple(map(names, key)) for key in keys}
    return shown if len(set(shown.values())) == len(shown) else {key: key for key in shown}


def _free(columns: dict[str, str], frame: pd.DataFrame) -> dict[str, str]:
    """New names of columns; none that another column has."""
    return {old: new for old, new in columns.items() if new == old or new not in frame}


def _named_arms(frame: pd.DataFrame, names: DisplayNames) -> pd.DataFrame:
    if "arm" not in frame:
        return frame
    return frame.assign(arm=[names(str(arm)) for arm in frame["arm"]])


def _values(column: "pd.Series[Any]", names: DisplayNames) -> list[Any]:
    return [names(label(value)) if label(value) in names.names else value for value in column]
