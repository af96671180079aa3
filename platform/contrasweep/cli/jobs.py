"""Commands on jobs: submit a study to a cluster, ask for its status, read its log, stop it."""

import typer


def add_to(app: typer.Typer) -> None:
    """Add the commands on jobs to the main application."""
