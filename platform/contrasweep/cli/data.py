"""Commands on datasets."""

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def datasets() -> None:
    """Stage datasets as Parquet, list, verify and show them."""
