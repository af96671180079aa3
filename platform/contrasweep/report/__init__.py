"""What a study says, for people: tables in every format and one self-contained HTML report."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from contrasweep.errors import SpecError, StorageError, choose_from
from contrasweep.report import trials
from contrasweep.report.page import html_report
from contrasweep.report.source import Source
from contrasweep.report.table import Table, build_table

if TYPE_CHECKING:
    from contrasweep.results import Results

__all__ = ["FORMATS", "Source", "Table", "build_table", "html_report", "report_source", "write_report"]

FORMATS = ("text", "markdown", "latex", "html", "csv", "parquet")


def write_report(results: "Results", format: str = "text", *, rows: Sequence[str] | None = None,
                 columns: Sequence[str] | None = None, metric: str | None = None, output: Path | None = None) -> None:  # fmt: skip
    """The study as it stands now, in one of `FORMATS`, to the file `output` or to standard output.

    csv and parquet hold one row a cell; html is the whole report, the others are the table with its verdicts.
    """
    if format not in FORMATS:
        raise SpecError(
            "there is no such format",
            place="--format",
            value=format,
            hint=choose_from("formats", list(FORMATS), format),
        )
    content = render(results, format, rows=rows, columns=columns, metric=metric)
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(content)
    except OSError as error:
        raise StorageError(
            f"{output} cannot be written ({error.strerror}); choose another --output"
        ) from None


def render(results: "Results", format: str, *, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None,
           metric: str | None = None) -> bytes:  # fmt: skip
    """The content of a report file."""
    table = results.table(rows or None, columns or None, metric)
    if format == "html":
        return html_report(report_source(results, table)).encode()
    if format == "parquet":
        sink = io.BytesIO()
        table.to_frame().to_parquet(sink, index=False)
        return sink.getvalue()
    if format == "csv":
        return str(table.to_frame().to_csv(index=False)).encode()
    shown = {"text": table.to_text, "markdown": table.to_markdown, "latex": table.to_latex}[format]
    return (str(shown()).rstrip() + "\n").encode()


def report_source(results: "Results", table: Table) -> Source:
    """All that the HTML report shows, from a study's records; `table` says its metric and layout."""
    frame = results.to_frame()
    found = [results.found.get(trial_id) for trial_id in frame["trial_id"]]
    extra: dict[str, list[Any]] = {
        name: [getattr(record, name, None) for record in found]
        for name in ("error", "host", "started", "ended", "gpu_utilisation", "host_memory_gib")
    }
    facts = {**results.facts, "metric": table.metric, "mode": table.mode}
    where = f"--storage {results.records.storage}"
    facts["commands"] = [*results.facts.get("commands", []), f"contrasweep report {results.name} --format html {where}"]
    return Source(
        frame.assign(**extra), facts, curves=results.curves(), links=results.run_urls,
        rows=table.row_factors, columns=table.column_factors,
        images=trials.figures(results.records, frame, results.found, results.axes),
        by_item=trials.by_item(results.records, frame, results.found, results.axes), search=_search(results), importance=results.importance(),
    )  # fmt: skip


def _search(results: "Results") -> pd.DataFrame | None:
    """What a Sweep's search tried; None for a grid."""
    return results.search if len(results.search) else None
