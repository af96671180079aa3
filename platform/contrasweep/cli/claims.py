"""The command that sets what papers claim beside what studies decided: claims."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasweep.cli.options import Storage
from contrasweep.defaults import STORAGE
from contrasweep.errors import NotStagedError, SpecError

if TYPE_CHECKING:
    from contrasweep.report.claims import Claim

OURS = "search_spaces.claims:CLAIMS"


def add_to(app: typer.Typer) -> None:
    """Add the command to the main application."""
    app.command()(claims)


def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Studies whose claims are meant: MINING, survey-mining; else all."),
    ] = None,
    of: Annotated[str, typer.Option(metavar="CLAIMS", help="Where the claims are, as module:NAME.")] = OURS,
    storage: Storage = STORAGE,
    run: Annotated[bool, typer.Option("--run", help="Run their studies first, or go on with them.")] = False,
    cluster: Annotated[
        Path | None, typer.Option(help="Inventory file of hosts that the studies at the papers' scale are planned for.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write the page to, in Markdown.")] = None,
    reports: Annotated[
        Path | None, typer.Option(help="Folder for a report of each study, in Markdown, to which the page links.")
    ] = None,
) -> None:
    """Set each claim of a paper beside what the study that asks about it decided: verdict, difference, interval,
    replicates, a floor and a ceiling, and the commands that make it again."""
    from contrasweep.report import write, write_report
    from contrasweep.report.at_scale import at_scale
    from contrasweep.report.claims import chosen, page, read
    from contrasweep.results.results import Results
    from contrasweep.running.driver import run as run_study
    from contrasweep.study.file import load_study

    known = chosen(_claims(of), names or [])
    if run:
        for study in dict.fromkeys(claim.study for claim in known):
            try:
                run_study(load_study(study), storage=storage, tracking=None)
            except NotStagedError as error:  # the others can be asked all the same
                typer.echo(f"{study} is not run: {error}", err=True)
    rows = [read(claim, storage) for claim in known]
    if cluster is not None:
        scales = {study: at_scale(study, storage, cluster) for study in {claim.full for claim in known if claim.full}}
        rows = [replace(row, at_scale=scales.get(row.claim.full, "")) for row in rows]
    if reports is not None:
        for name in {row.study.name for row in rows if row.comparison is not None}:
            write_report(Results.load(name, storage), "markdown", output=reports / f"{name}.md")
    write(page(rows, _seen_from(output, reports)).encode(), output)


def _seen_from(page: Path | None, reports: Path | None) -> str:
    """The folder of reports as the page links to it."""
    return "" if reports is None else Path(os.path.relpath(reports, page.parent if page else Path())).as_posix()


def _claims(path: str) -> "list[Claim]":
    from contrasweep.imports import import_from_here, import_path
    from contrasweep.report.claims import Claim

    import_from_here()
    known = import_path(path, kind="list of claims", of=list)
    if not isinstance(known, list) or not known or not all(isinstance(claim, Claim) for claim in known):
        raise SpecError(
            "claims are a list of contrasweep.report.claims.Claim", place="--of", value=path, hint=f"such as {OURS}"
        )
    return known
