"""Commands on what a study has found: its report, one arm against another."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contrasweep.cli import completion
from contrasweep.cli.documents import dumps
from contrasweep.cli.options import (
    Json,
    Output,
    Require,
    Storage,
    StoredStudy,
    end_as,
    flag,
    line_width,
    option,
    print_json,
    print_table,
    required,
)
from contrasweep.defaults import STORAGE
from contrasweep.errors import SpecError
from contrasweep.terminal_text import write

if TYPE_CHECKING:
    from contrasweep.results.results import Results
    from contrasweep.results.table import Table
    from contrasweep.storage.study_document import StudyDocument
    from contrasweep.study.sweep import Study as DeclaredStudy

Metric = Annotated[str | None, option("Another metric than the study's; of a table several: a,b.")]


def report(
    study: StoredStudy,
    storage: Storage = STORAGE,
    json: Json = False,
    format: Annotated[
        str,
        option("text, markdown, latex, html, csv, parquet, or yaml: a study of the best settings."),
    ] = "text",
    rows: Annotated[list[str] | None, option("arm or an axis; repeatable.")] = None,
    columns: Annotated[list[str] | None, option("arm or an axis; repeatable.")] = None,
    metric: Metric = None,
    cell: Annotated[
        Literal["mean-ci", "mean-std", "mean-se", "mean"],
        option("What stands behind a mean: its interval, a deviation, or nothing."),
    ] = "mean-ci",
    output: Output = None,
    caption: Annotated[str, option("Of a paper's table: what stands above it.")] = "",
    label: Annotated[str, option("Of a paper's table, for LaTeX's \\ref.")] = "",
    digits: Annotated[int | None, option("Of a paper's table: digits after the point.")] = None,
    percent: Annotated[bool, flag("--percent", "A paper's table in percent.")] = False,
    wide: Annotated[bool, flag("--wide", "A paper's table over both columns of a page.")] = False,
    declared: Annotated[
        bool,
        flag(
            "--declared",
            "List what was declared when, once a trial had ended, in place of the table.",
        ),
    ] = False,
) -> None:
    """Print or write the table of a study, as it stands now.

    A csv or parquet file gets NAME.comparisons beside it.
    """
    from contrasweep.reporting import write_report
    from contrasweep.results.table import TableStyle

    results = load(study, storage)
    if declared:
        print_table(declarations(results.document), rule=True)
        return
    if json:
        table = results.table(rows or None, columns or None, metric)
        print_json("report", summary(results, table), output)
        return
    write_report(
        results,
        format,
        rows=rows,
        columns=columns,
        metric=metric,
        output=output,
        width=line_width(output),
        style=TableStyle(digits, percent, caption, label, cell=cell, wide=wide),
    )


def declarations(document: "StudyDocument") -> list[list[str]]:
    """Return a head and a row for each declaration of a study: when (UTC), after how many trials, changes, by whom.

    A study that was declared once has one row, which says `declared`.
    """
    from contrasweep.storage.study_document import LogEntry

    # The log is empty until something changes: then study.json itself tells of the only declaration.
    first = LogEntry(document.created, ", ".join(document.commands), trials=document.trials)
    rows = [[document.name, "after", "changes", "by"]]
    for entry in document.log or (first,):
        when = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        changes = ", ".join(entry.changes) + (f" (looks: {entry.spent})" if entry.spent else "")
        rows.append(
            [
                when,
                f"{entry.ended} of {entry.trials or '-'} trials",
                changes or "declared",
                entry.by,
            ]
        )
    return rows


def compare(
    study: StoredStudy,
    a: Annotated[str, typer.Argument(help="An arm.", autocompletion=completion.arms)],
    b: Annotated[
        str, typer.Argument(help="The arm that it is to beat.", autocompletion=completion.arms)
    ],
    storage: Storage = STORAGE,
    json: Json = False,
    format: Annotated[str, option("text, markdown or csv.")] = "text",
    metric: Metric = None,
    at: Annotated[
        list[str] | None, option("Only these cells; repeatable.", metavar="AXIS=VALUE")
    ] = None,
    output: Output = None,
    require: Require = "",
) -> None:
    """Say whether an arm beats another, by how much, how sure.

    It says so overall and in each cell, and what it would take to know.
    """
    from contrasweep.reporting import render_comparison
    from contrasweep.results.requirement import Requirement
    from contrasweep.study.file import parse_set

    requirement = Requirement.parse(require) if require else None
    # `batch_size=8`, as --set takes it, gives the axis and the value.
    fixed = {
        ".".join(path): value for path, value in (parse_set(text, "--at") for text in at or [])
    }
    versus = load(study, storage).versus(a, b, metric, fixed)
    outcome = requirement.outcome_of_all([versus.overall]) if requirement else None
    if json:
        document = versus.to_dict() | {"required": required(require, outcome)}
        print_json("compare", document, output)
    else:
        write(render_comparison(versus, format), output)
    end_as(require, outcome)


def diff(
    a: Annotated[
        str,
        typer.Argument(
            metavar="STUDY[:ARM]",
            help="A study in the storage, or one of its arms.",
            autocompletion=completion.studies,
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            metavar="STUDY[:ARM]", help="Another one.", autocompletion=completion.studies
        ),
    ],
    storage: Storage = STORAGE,
    json: Json = False,
) -> None:
    """Show what differs between two studies or arms.

    Compared are declaration, settings with their defaults, code, data and versions.
    """
    from contrasweep.results.difference import study_difference

    differences = study_difference(a, b, storage)
    if json:
        print_json("diff", vars(differences))
    elif differences.rows:
        rows = [[row.kind, row.arms or "all", row.name, row.a, row.b] for row in differences.rows]
        print_table([["what", "arms", "", a, b], *rows], rule=True)
    else:
        print("no difference")


def bundle(
    study: StoredStudy,
    output: Annotated[Path, typer.Option("--output", "-o", help="The zip file to write.")],
    storage: Storage = STORAGE,
) -> None:
    """Write a study as one file that others can check.

    They need no contrasweep: it has records, declaration, code, environment, table, report and a verifier. All trials
    of the study must have ended.
    """
    import hashlib

    from contrasweep.reporting.bundle import VERIFIER, pack_bundle

    results = load(study, storage)
    content = pack_bundle(results, (dumps("report", summary(results)) + "\n").encode())
    write(content, output)
    # Sent separately from the file, these digests let the receiver check that the file is unchanged and the verifier is
    # ours.
    print(f"{output}: {len(content) / 2**20:.2f} MiB, sha256 {hashlib.sha256(content).hexdigest()}")
    print(f"verify.py: sha256 {hashlib.sha256(VERIFIER.read_bytes()).hexdigest()}")


def load(study: str, storage: str) -> "Results":
    """Return the results of a study in a storage; `study` is its name, module:NAME or a file.

    `SpecError` where the storage has no such study.
    """
    from contrasweep.results.results import Results

    return Results.load(name(study), storage)


def name(study: str) -> str:
    """Return the name of a study or campaign that module:NAME or a file declares; any other text is the name itself.

    Whether a storage has the study is not asked.
    """
    try:
        declaration = declared(study)
    except SpecError:
        # Campaigns need packages that a machine which only submits and watches may lack.
        with contextlib.suppress(SpecError, ModuleNotFoundError):
            from contrasweep.campaign.campaign import load_campaign

            return load_campaign(study).name
        raise
    return study if declaration is None else declaration.name


def declared(study: str) -> "DeclaredStudy | None":
    """Return the study that is declared at module:NAME or in a file; None for any other text, a stored study's name.

    `SpecError` where the declaration is not there or breaks a rule.
    """
    from contrasweep.study.file import is_declaration, load_study

    return load_study(study) if is_declaration(study) else None


def summary(results: "Results", table: "Table | None" = None) -> dict[str, object]:
    """Return the members of the document `report`; without `table`, its cells are those of the study's own table."""
    table = table or results.table()
    return {
        "study": results.name,
        "statuses": results.statuses,
        "complete": results.complete,
        "broken": [str(error) for error in results.broken],
        "stopped": results.stopped,
        "table": table.to_rows(),
        "comparisons": [pair.to_dict() for pair in table.answer.pairs],
        "notes": list(table.notes),
        "advice": results.advice().to_dict(),
        "best": [vars(entry) for entry in results.best_settings],
        "importance": results.importance().to_dict("records"),
        "rows": results.trial_rows(),
    }
