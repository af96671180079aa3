"""The command that reads all of a study again: verify."""

from dataclasses import asdict
from typing import Annotated

import typer

from contrasweep.cli.options import Json, Storage, Study, print_json
from contrasweep.cli.reports import name
from contrasweep.defaults import STORAGE
from contrasweep.errors import SpecError

MAX_LINES = 20


def add_to(app: typer.Typer) -> None:
    """Add the command to the main application."""
    app.command()(verify)


def verify(
    study: Study,
    storage: Storage = STORAGE,
    repair: Annotated[
        bool, typer.Option("--repair", help="Put what is broken aside, in archive/, so that it is made again.")
    ] = False,
    json: Json = False,
) -> None:
    """Read every file of a study again, and name what is broken. Exit: 0 nothing broken is left, 1 something is."""
    from contrasweep.running.verification import verify as examine
    from contrasweep.storage.records import StudyRecords

    records = StudyRecords(storage, name(study))
    if next(records.store.list(f"{records.study}/"), None) is None:
        raise SpecError(
            "there is no such study in this storage", place="STUDY", value=records.study, hint=f"storage is {storage}"
        )
    result = examine(records, repair=repair)
    if json:
        findings = [asdict(finding) | {"outcome": finding.outcome} for finding in result.findings]
        print_json(asdict(result) | {"findings": findings, "sound": result.sound})
        raise typer.Exit(0 if result.sound else 1)
    for finding in result.findings[:MAX_LINES]:
        outcome = finding.outcome if repair or not finding.repair else f"with --repair {finding.outcome}"
        print(f"{finding.file}: {finding.problem}; {outcome}")
    if more := len(result.findings) - MAX_LINES:
        print(f"... and {more} more (all of them with --json)" if more > 0 else "", end="\n" if more > 0 else "")
    print(f"{records.study}: {result.files} files of {result.trials} trials read, {len(result.findings)} broken")
    if result.archived:
        print(f"what was archived lies in {records.study}/archive/{result.archived}; run the study again")
    raise typer.Exit(0 if result.sound else 1)
