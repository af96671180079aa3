"""Reports of made-up trials, without a storage."""

import pandas as pd

from contrasweep.reporting import ReportData
from contrasweep.results.building import DecisionRule, build_table
from contrasweep.results.table import Table
from contrasweep.statistics.design import Design
from contrasweep.storage.study_document import StudyDocument


def report_of(frame: pd.DataFrame, document: StudyDocument, **more) -> ReportData:
    """The report of the study `document`, whose trials are the rows of `frame`."""
    axes = list(document.axes)
    rule = DecisionRule(
        Design(folds=document.folds),
        document.mode,
        document.alpha,
        document.question,
        document.smallest_difference,
        document.reference,
    )

    def table(rows: list[str], columns: list[str]) -> Table:
        layout = {"rows": rows, "columns": columns, "axes": axes, "metric": document.metric}
        return build_table(frame, rule=rule, links=more.get("links"), **layout)

    own = table(axes or ["arm"], ["arm"] if axes else [])
    return ReportData(frame, document, table=own, overall=table(["arm"], []) if axes else None, **more)
