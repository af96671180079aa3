"""Reports of a study for people: tables in every format, and one self-contained HTML page."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from contrasweep.errors import SpecError, check_known
from contrasweep.markdown_text import fenced, markdown_text
from contrasweep.reporting import trials
from contrasweep.reporting.curves import drawn_metrics
from contrasweep.reporting.data import ReportData, TrialData
from contrasweep.reporting.formats import csv_text
from contrasweep.reporting.page import html_report
from contrasweep.reporting.search_notes import search_notes
from contrasweep.results.answer import Versus
from contrasweep.results.notices import archived_changes, code_diff
from contrasweep.results.results import Results
from contrasweep.results.table import PLAIN, Table, TableStyle, latex_of, markdown_of, text_of
from contrasweep.shell import command_line
from contrasweep.storage.archive import list_archived
from contrasweep.terminal_text import write
from contrasweep.text_table import WIDTH
from contrasweep.tracking.links import read_links

__all__ = [
    "COMPARISON_FORMATS",
    "FORMATS",
    "ReportData",
    "html_report",
    "render",
    "render_comparison",
    "report_data",
    "write_files",
    "write_report",
]

FORMATS = ("text", "markdown", "latex", "html", "csv", "parquet", "yaml")
PAPER_FORMATS = ("text", "markdown", "latex")
"""Those that have several metrics side by side, digits, percents, a caption and a label."""
COMPARISON_FORMATS = ("text", "markdown", "latex", "csv")
"""Those of a comparison of two arms."""


def write_report(
    results: Results,
    format: str = "text",
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    metric: str | None = None,
    output: Path | None = None,
    width: int = WIDTH,
    style: TableStyle = PLAIN,
) -> None:
    """Write the study as it stands now in one of `FORMATS`.

    html is the whole report, the others are the table with its verdicts. csv and parquet hold one row a cell; beside a
    file NAME.csv its comparisons, one row each, are NAME.comparisons.csv. yaml is a study file that runs each arm with
    its best settings. Text, markdown and latex are written as a paper prints them where there are several metrics, or
    the `style` is one of papers.

    Args:
        results: The study.
        format: One of `FORMATS`.
        rows: The factors in the rows, as in `Results.table`.
        columns: The factors in the columns.
        metric: The metric; several with commas between them stand side by side.
        output: The file to write; without it standard output is written.
        width: The columns of a text.
        style: How the table is drawn.

    Raises:
        SpecError: For an unknown format, and for options that the format does not have.
        StorageError: If the file cannot be written.
    """
    _check(format, FORMATS)
    metrics = [name.strip() for name in (metric or "").split(",") if name.strip()]
    for_paper = style.of_paper or len(metrics) > 1
    if for_paper and format not in PAPER_FORMATS:
        raise SpecError(
            "several metrics, digits, percent, caption and label are for tables of papers",
            place="--format",
            value=format,
            hint=f"take one of {', '.join(PAPER_FORMATS)}",
        )
    # One table for each metric that is named, or that of the study's own.
    wanted: list[str | None] = [*metrics] or [None]
    tables = [results.table(rows or None, columns or None, name, style=style) for name in wanted]
    if for_paper:
        forms = {
            "text": lambda: text_of(tables, width) + "\n",
            "markdown": lambda: markdown_of(tables),
            "latex": lambda: latex_of(tables),
        }
        write(forms[format]().encode(), output)
        return
    write(render(results, format, tables[0], width=width), output)
    if output is not None and format in ("csv", "parquet"):
        write(
            _frame_bytes(tables[0].comparisons(), format),
            output.with_suffix(f".comparisons{output.suffix}"),
        )


def write_files(results: Results, folder: Path) -> tuple[dict[str, Path], str]:
    """Write the study's table in every form, its comparisons, trials and report as files into `folder`.

    A file of what differs between codes is among them where several codes made the study, or archived trials of it.

    Returns:
        The files by name, and the table in Markdown.
    """
    table = results.table()
    note = table.to_markdown()
    content = {
        "table.md": note.encode(),
        "table.tex": table.to_latex().encode(),
        "table.csv": _frame_bytes(table.to_frame(), "csv"),
        "comparisons.csv": _frame_bytes(table.comparisons(), "csv"),
        "trials.csv": _frame_bytes(results.to_frame(), "csv"),
        "report.html": render(results, "html", table),
    }
    archived = archived_changes(
        results.records, {**results.search_records, **results.trial_records}
    )
    if diff := code_diff(results.records, results.mixed_code.changes | archived):
        content["code.diff"] = diff.encode()
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return {name: folder / name for name in content}, note


def render(
    results: Results, format: str, table: Table | None = None, *, width: int = WIDTH
) -> bytes:
    """Return the content of a report file in one of `FORMATS`, of the study's own table unless another is given.

    A text has `width` columns.
    """
    table = table or results.table()
    if format == "html":
        return html_report(report_data(results, table)).encode()
    if format in ("csv", "parquet"):
        return _frame_bytes(table.to_frame(), format)
    if format == "latex":
        return table.to_latex().encode()
    if format == "yaml":
        return _best_study(results).encode()
    # Text and Markdown: the table, the advice on its verdicts, what the search found, and the notes. The advice is
    # about the study's metric alone. Within Markdown what is laid out in columns stands in a fence.
    shown = table.to_text(width) if format == "text" else table.to_markdown()
    advised = (
        results.advice().to_text(width if format == "text" else WIDTH).rstrip()
        if table.metric == results.metric
        else ""
    )
    search = (
        search_notes(results).to_text(width if format == "text" else None)
        if results.spent()
        else ""
    )
    notes = results.notes
    if format == "markdown":
        advised, search = (fenced(part) if part else "" for part in (advised, search))
        notes = list(map(markdown_text, notes))
    return (
        "\n\n".join(part for part in (shown.rstrip(), advised, search, *notes) if part) + "\n"
    ).encode()


def _best_study(results: Results) -> str:
    """Return a study file that runs each arm with its best settings, with comments on where these are from."""
    from contrasweep.results.search import rerun

    fields = rerun(results.best_settings, results.document)
    lines = [f"The best settings of each arm of {results.name}, as a study, on fresh seeds."]
    searched = results.document.spec.get("search_folds") or [
        0
    ]  # by default a search is on the first fold
    if fields.get("folds") and results.document.search:
        folds = f"fold{'s' * (len(searched) > 1)} {', '.join(map(str, searched))}"
        lines.append(
            f"The settings were chosen on {folds}, where scores are too good by the choice."
        )
    return "".join(f"# {line}\n" for line in lines) + yaml.safe_dump(fields, sort_keys=False)


def render_comparison(versus: Versus, format: str) -> bytes:
    """Return the content of a file that compares two arms, in one of `COMPARISON_FORMATS`."""
    _check(format, COMPARISON_FORMATS)
    if format == "csv":
        return _frame_bytes(versus.to_frame(), format)
    return {"text": versus.to_text, "markdown": versus.to_markdown, "latex": versus.to_latex}[
        format
    ]().encode()


def _check(format: str, known: Sequence[str]) -> None:
    check_known(format, "formats", known, "there is no such format", place="--format")


def _frame_bytes(frame: pd.DataFrame, format: str) -> bytes:
    """Return the content of a file with this frame, `csv` or `parquet`."""
    if format == "csv":
        return csv_text(frame).encode()
    sink = io.BytesIO()
    frame.to_parquet(sink, index=False)
    return sink.getvalue()


def report_data(results: Results, table: Table) -> ReportData:
    """Return all that the HTML report of a study shows; its metric and the layout of its table are those of `table`."""
    # Beside the frame the traceback of each trial that failed.
    frame = results.to_frame()
    errors: Any = [
        getattr(results.trial_records.get(trial_id), "error", None)
        for trial_id in frame["trial_id"]
    ]
    again = command_line(
        "report", results.name, format="html", output="report.html", storage=results.records.storage
    )
    # What the page says of its metric and how it is made again.
    document = replace(
        results.document,
        metric=table.metric,
        mode=table.mode,
        commands=(*results.document.commands, again),
    )
    # Curves are read first: files that are found broken then are named below the table.
    links = read_links(results.records)
    curves = results.curves([*results.trial_records, *results.search_records])
    # What no figure draws is let go: the curves of a big study are large.
    drawn = drawn_metrics(TrialData(frame, document, curves=curves))
    curves = curves.filter(["trial_id", "step", *dict.fromkeys([table.metric, *drawn])])
    table = replace(table, notes=tuple(dict.fromkeys([*table.notes, *results.broken_notes()])))
    return ReportData(
        frame.assign(error=errors),
        document,
        table=table,
        overall=results.table(["arm"], [], table.metric) if results.axes else None,
        names=results.names,
        curves=curves,
        storage=results.records.store.uri,
        links=results.run_urls,
        of_sweep=trials.trials_of_sweep(results),
        images=trials.figures(results.records, frame, results.trial_records, results.axes),
        search=results.search if len(results.search) else None,
        importance=results.importance(),
        search_notes=search_notes(results),
        notes=results.notes,
        advice=results.advice() if table.metric == results.metric else None,
        study_link=links.study,
        code=_code(results),
        archived=sum(len(part.trial_ids) for part in list_archived(results.records)),
        served=""
        if links.served or not links.runs
        else command_line("ui", tracking=links.tracking),
    )


def _code(results: Results) -> list[list[str]]:
    """Return one row for each code that made trials, also trials of a search: digest, trials, commit."""
    used = Counter(
        record.code
        for record in [*results.search_records.values(), *results.trial_records.values()]
        if record.code.digest
    )
    return [
        [code.digest, str(count), (code.commit or "–") + " with changes" * code.dirty]
        for code, count in used.items()
    ]
