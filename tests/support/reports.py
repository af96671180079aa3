"""Reports of made-up trials, without a storage."""

from contrasweep.reporting import ReportData
from contrasweep.results.building import DecisionRule, build_table
from contrasweep.statistics.design import Design


def report_of(frame, document, **more):
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

    def table(rows, columns):
        layout = {"rows": rows, "columns": columns, "axes": axes, "metric": document.metric}
        return build_table(frame, rule=rule, links=more.get("links"), **layout)

    own = table(axes or ["arm"], ["arm"] if axes else [])
    return ReportData(
        frame=frame,
        document=document,
        table=own,
        overall=table(["arm"], []) if axes else None,
        **more,
    )
