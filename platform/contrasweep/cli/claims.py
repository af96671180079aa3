"""The command that sets what papers claim beside what studies decided: claims."""

from pathlib import Path
from typing import Annotated

import typer

from contrasweep.cli.options import Storage
from contrasweep.defaults import STORAGE

LEDGER = "contrasweep.search_spaces.claims:CLAIMS"
PAGE = "contrasweep.search_spaces.claims:write_page"
"""By dotted path, and imported when the command runs: the platform does without the ledger of papers."""


def add_to(app: typer.Typer) -> None:
    """Add the command to the main application."""
    app.command()(claims)


def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Studies whose claims are meant: MINING, survey-mining; else all."),
    ] = None,
    of: Annotated[str, typer.Option(metavar="CLAIMS", help="Where the claims are, as module:NAME.")] = LEDGER,
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
    from contrasweep.imports import import_path

    write_page = import_path(PAGE, kind="ledger")
    write_page(of, names or [], storage=storage, run=run, cluster=cluster, output=output, reports=reports)
