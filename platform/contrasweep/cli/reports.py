"""Commands on what a study has found: its report, and one arm against another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contrasweep.cli.options import Json, Storage, Study, print_json, width
from contrasweep.defaults import STORAGE
from contrasweep.study.file import load_study
from contrasweep.text_table import WIDTH

if TYPE_CHECKING:
    from contrasweep.results.results import Results
    from contrasweep.results.table import Table

Metric = Annotated[str | None, typer.Option(help="Another metric than the study's.")]
OverWhat = Annotated[
    Literal["replicates", "groups"],
    typer.Option(help="groups: all folds' test items by the groups they come from; --metric is a score of items."),
]
Output = Annotated[Path | None, typer.Option(help="File to write instead of standard output.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the main application."""
    for command in (report, compare):
        app.command()(command)


def report(
    study: Study,
    storage: Storage = STORAGE,
    json: Json = False,
    format: Annotated[str, typer.Option(help="text, markdown, latex, html, csv or parquet.")] = "text",
    rows: Annotated[list[str] | None, typer.Option(help="arm or an axis; repeatable.")] = None,
    columns: Annotated[list[str] | None, typer.Option(help="arm or an axis; repeatable.")] = None,
    metric: Metric = None,
    spread: Annotated[bool, typer.Option("--spread", help="Show (min–max) in the cells.")] = False,
    over: OverWhat = "replicates",
    output: Output = None,
) -> None:
    """Print or write the table of a study, as it stands now; a csv or parquet file gets NAME.comparisons beside it."""
    from contrasweep.report import write_report

    results = load(study, storage)
    if json:
        table = results.table(rows or None, columns or None, metric, over=over)
        print_json(
            summary(results, table)
            | {"rows": results.to_frame().astype(object).where(lambda f: f.notna(), None).to_dict("records")}
        )
        return
    write_report(
        results,
        format,
        rows=rows,
        columns=columns,
        metric=metric,
        output=output,
        spread=spread,
        over=over,
        width=(width() if output is None else None) or WIDTH,
    )


def compare(
    study: Study,
    arm_a: str,
    arm_b: str,
    storage: Storage = STORAGE,
    json: Json = False,
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv or json.")] = "text",
    metric: Metric = None,
    at: Annotated[list[str] | None, typer.Option(metavar="AXIS=VALUE", help="Only these cells; repeatable.")] = None,
    over: OverWhat = "replicates",
    output: Output = None,
) -> None:
    """Say whether ARM_A beats ARM_B, by how much, how sure, and what it would take to know; overall and in each
    cell."""
    from contrasweep.report import render_comparison, write
    from contrasweep.study.file import parse_set

    fixed = {path[0]: value for path, value in map(parse_set, at or [])}
    versus = load(study, storage).versus(arm_a, arm_b, metric, fixed, over=over)
    write(render_comparison(versus, "json" if json else format), output)


def load(study: str, storage: str) -> "Results":
    """What the storage has of a study."""
    from contrasweep.results.results import Results

    return Results.load(name(study), storage)


def name(study: str) -> str:
    """A study's name; what is neither a file nor module:NAME is taken for the name itself."""
    return load_study(study).name if ":" in study or study.endswith((".yaml", ".yml")) else study


def summary(results: "Results", table: "Table | None" = None) -> dict[str, object]:
    """The results as `--json` prints them, with the study's own table unless another is given."""
    return {
        "study": results.name,
        "trials": results.counts,
        "complete": results.complete,
        "stopped": results.stopped,
        "table": (table or results.table()).to_frame().to_dict("records"),
    }
