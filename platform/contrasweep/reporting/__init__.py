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
from contrasweep.reporting.charts import drawn_metrics
from contrasweep.reporting.data import ReportData
from contrasweep.reporting.formats import csv_text
from contrasweep.reporting.page import html_report
from contrasweep.reporting.search_notes import search_notes
from contrasweep.results.answer import Versus
from contrasweep.results.notices import code_diff
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
"""Formats that have several metrics side by side, digits, percents, a caption and a label."""
COMPARISON_FORMATS = ("text", "markdown", "csv")
"""Formats of a comparison of two arms."""


def write_report(
    results: Results,
    format: str,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    metric: str | None = None,
    output: Path | None = None,
    width: int = WIDTH,
    style: TableStyle = PLAIN,
) -> None:
    """Write the study as it stands now in one of `FORMATS`.

    html is the whole report. text, markdown and latex are the table with its verdicts; with several metrics, or a
    `style` for papers, as a paper prints it. csv and parquet have one row per cell; beside a file NAME.csv its
    comparisons, one row each, are written to NAME.comparisons.csv. yaml is a study file that runs each arm with its
    best settings.

    Args:
        results: The study.
        format: One of `FORMATS`.
        rows: The factors in the rows, as in `Results.table`.
        columns: The factors in the columns.
        metric: The metric, or several metrics with commas, which stand side by side.
        output: The file to write; by default standard output is written.
        width: The columns of a text.
        style: How the table is drawn.

    Raises:
        SpecError: For an unknown format, and for options that the format does not have.
        StorageError: If the file cannot be written.
    """
    _check(format, FORMATS)
    metrics = [name.strip() for name in (metric or "").split(",") if name.strip()]
    if metric and metric in results.frame:  # the name of one metric may have a comma
        metrics = [metric]
    for_paper = style.of_paper or len(metrics) > 1
    if for_paper and format not in PAPER_FORMATS:
        raise SpecError(
            "several metrics, digits, percent, caption and label are for tables of papers",
            place="--format",
            value=format,
            hint=f"take one of {', '.join(PAPER_FORMATS)}",
        )
    # A table for each metric that is named, or one for the study's own metric.
    wanted: list[str | None] = [*metrics] or [None]
    tables = [results.table(rows or None, columns or None, name, style=style) for name in wanted]
    if for_paper:
        write(_drawn(tables, format, width).encode(), output)
        return
    write(render(results, format, tables[0], width=width), output)
    if output is not None and format in ("csv", "parquet"):
        write(
            _frame_bytes(tables[0].comparisons(), format),
            output.with_suffix(f".comparisons{output.suffix}"),
        )


def write_files(results: Results, folder: Path) -> tuple[dict[str, Path], str]:
    """Write the study's table, comparisons, trials and report as files into `folder`.

    The file `code.diff` is written where trials ran different versions of the code.

    Returns:
        Name -> path of each file, and the table in Markdown.
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
    diff = code_diff(results.records, set(results.mixed_code.older.values()))
    if diff:
        content["code.diff"] = diff.encode()
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return {name: folder / name for name in content}, note


def render(
    results: Results, format: str, table: Table | None = None, *, width: int = WIDTH
) -> bytes:
    """Return the content of a report file in one of `FORMATS`; a text has `width` columns.

    It shows `table`; where none is given, the study's own table.
    """
    table = table or results.table()
    if format == "html":
        return html_report(report_data(results, table)).encode()
    if format in ("csv", "parquet"):
        return _frame_bytes(table.to_frame(), format)
    if format == "latex":
        return _drawn([table], format, width).encode()
    if format == "yaml":
        return _best_study(results, table.notes).encode()
    # Text and Markdown: the table, the advice on its verdicts, what the search found, and the notes. The advice is
    # about the study's metric alone.
    is_text = format == "text"
    in_columns = []
    if table.metric == results.metric:
        in_columns.append(results.advice().to_text(width if is_text else WIDTH).rstrip())
    if results.spent():
        in_columns.append(search_notes(results).to_text(width if is_text else None))
    notes = results.notes
    # Markdown would join the lines of what is laid out in columns, so that it stands in a fence.
    if not is_text:
        in_columns = [fenced(part) for part in in_columns if part]
        notes = list(map(markdown_text, notes))
    parts = [_drawn([table], format, width).rstrip(), *in_columns, *notes]
    return ("\n\n".join(filter(None, parts)) + "\n").encode()


def _drawn(tables: Sequence[Table], format: str, width: int) -> str:
    """Return tables of several metrics side by side as text, in the `format` text, markdown or latex.

    A text has `width` columns.
    """
    if format == "text":
        return text_of(tables, width) + "\n"
    return markdown_of(tables) if format == "markdown" else latex_of(tables)


def _best_study(results: Results, notes: Sequence[str]) -> str:
    """Return a study file that runs each arm with its best settings; comments say where these are from, and `notes`."""
    from contrasweep.results.search import rerun

    fields = rerun(results.best_settings, results.document)
    if not fields["arms"]:
        raise SpecError(
            "a study of the best settings needs a trial that was trained to its end",
            place="--format",
            value="yaml",
            hint=f"{command_line('status', results.name, storage=results.records.storage)} says how far it is",
        )
    lines = [f"The best settings of each arm of {results.name}, as a study, on fresh seeds."]
    if fields.get("folds") and results.document.search:
        # By default a search is on the first fold.
        searched = results.document.spec.get("search_folds") or [0]
        word = "fold" if len(searched) == 1 else "folds"
        folds = f"{word} {', '.join(map(str, searched))}"
        lines.append(
            f"The settings were chosen on {folds}, where scores are too good by the choice."
        )
    lines.append("The fields of an arm can be the `incumbent` of a campaign.")
    # A note may have a value of an axis with a line break, after which its text would be no comment.
    comments = "".join(f"# {' '.join(line.split())}\n" for line in [*lines, *notes])
    return comments + yaml.safe_dump(fields, sort_keys=False)


def render_comparison(versus: Versus, format: str) -> bytes:
    """Return the content of a file that compares two arms, in one of `COMPARISON_FORMATS`."""
    _check(format, COMPARISON_FORMATS)
    if format == "csv":
        return _frame_bytes(versus.to_frame(), format)
    return (versus.to_text() if format == "text" else versus.to_markdown()).encode()


def _check(format: str, known: Sequence[str]) -> None:
    """Raise `SpecError` where the format is none of those that are `known`."""
    check_known(format, "formats beside --json", known, "there is no such format", place="--format")


def _frame_bytes(frame: pd.DataFrame, format: str) -> bytes:
    """Return the content of a file with this frame, `csv` or `parquet`."""
    if format == "csv":
        return csv_text(frame).encode()
    sink = io.BytesIO()
    frame.to_parquet(sink, index=False)
    return sink.getvalue()


def report_data(results: Results, table: Table) -> ReportData:
    """Return all that the HTML report of a study shows. It is about the metric of `table`, in the layout of `table`."""
    # The traceback of each trial that failed, for a column of the frame.
    frame = results.to_frame()
    errors: Any = [
        getattr(results.trial_records.get(trial_id), "error", None)
        for trial_id in frame["trial_id"]
    ]
    # The declaration with the metric of the page, and the command that makes the page again.
    command = command_line(
        "report", results.name, format="html", output="report.html", storage=results.records.storage
    )
    document = replace(
        results.document,
        metric=table.metric,
        mode=table.mode,
        commands=(*results.document.commands, command),
    )
    # Curves are read before the table gets its notes, which name the broken files that were found.
    links = read_links(results.records)
    curves = results.curves([*results.trial_records, *results.search_records])
    table = replace(table, notes=tuple(dict.fromkeys([*table.notes, *results.broken_notes()])))
    # Each code that made trials: digest, number of trials, commit.
    codes = []
    counts = Counter(record.code for record in results.all_records.values())
    for code, count in counts.items():
        if code.digest:
            changed = " with changes" if code.dirty else ""
            codes.append([code.digest, str(count), f"{code.commit or '–'}{changed}"])
    # The command that serves the pages of the runs, where no server does already.
    ui_command = ""
    if links.runs and not links.served:
        ui_command = command_line("ui", tracking=links.tracking)
    data = ReportData(
        frame=frame.assign(error=errors),
        document=document,
        table=table,
        overall=results.table(["arm"], [], table.metric) if results.axes else None,
        names=results.names,
        curves=curves,
        storage=results.records.store.uri,
        links=results.run_urls,
        trials_of_sweep=trials.trials_of_sweep(results),
        images=trials.figures(results),
        search_notes=search_notes(results),
        notes=results.notes,
        advice=results.advice() if table.metric == results.metric else None,
        study_link=links.study,
        code=codes,
        archived=sum(len(part.trial_ids) for part in list_archived(results.records)),
        ui_command=ui_command,
    )
    # Curves that no figure draws are dropped: those of a big study are large.
    drawn = dict.fromkeys([table.metric, *drawn_metrics(data)])
    return replace(data, curves=curves.filter(["trial_id", "step", *drawn]))
