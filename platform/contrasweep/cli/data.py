"""`contrasweep data stage|list|show|verify`."""

from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from contrasweep.cli.options import Json, Storage, option, print_json, print_table
from contrasweep.defaults import STORAGE
from contrasweep.errors import DataError, plural

if TYPE_CHECKING:
    from rich.progress import TaskID

    from contrasweep.data.inspecting import DatasetRow


app = typer.Typer(
    no_args_is_help=True, help="Stage datasets as Parquet, list, show and verify them."
)


@app.command()
def stage(
    name: Annotated[
        str, typer.Argument(help="A dataset's name; `contrasweep data list --known` lists them.")
    ],
    source: Annotated[
        str | None, option("The published files, where the dataset is not bundled.")
    ] = None,
    to: Annotated[
        str | None, option("Folder or s3:// address; default STORAGE/datasets/NAME.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, a setting of the importer; repeatable."),
    ] = None,
    storage: Storage = STORAGE,
    json: Json = False,
) -> None:
    """Turn a dataset's published format into Parquet shards and a manifest."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from contrasweep.data import inspecting, resolving, staging
    from contrasweep.study.file import parse_set

    # `parse_set` splits `a.b=value` into the parts of the key and the value.
    settings = {".".join(path): value for path, value in map(parse_set, set_ or [])}
    place = to or resolving.default_place(name, settings, storage)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(split: str, rows: int) -> None:
            """Show that so many rows of a split are written; its bar appears with the first."""
            if split not in tasks:
                tasks[split] = bar.add_task(f"{name} {split}", total=None)
            bar.update(tasks[split], completed=rows)

        manifest = staging.stage(name, place, source=source, settings=settings, progress=advance)
    _print_one(inspecting.show(manifest), json)


@app.command("list")
def list_(
    storage: Storage = STORAGE,
    known: Annotated[bool, option("What can be staged instead.")] = False,
    json: Json = False,
) -> None:
    """List the datasets staged below STORAGE, or with --known those that can be staged."""
    from contrasweep.data import inspecting, resolving

    rows = (
        inspecting.known() if known else list(map(inspecting.summary, resolving.staged_in(storage)))
    )
    if json:
        print_json("datasets", {"known" if known else "datasets": rows})
    elif not rows:
        print(f"nothing is staged in {storage}; `contrasweep data list --known` lists what can be")
    else:
        if not known:
            rows = [
                {**row, "rows": _counts(row["rows"]), "digest": row["digest"][:12]} for row in rows
            ]
        # The head has the names of the columns, which are those of the rows.
        cells = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
        print_table(cells)


@app.command()
def show(name: str, storage: Storage = STORAGE, json: Json = False) -> None:
    """Show a staged dataset: splits, classes, columns, folds, where it came from and what was left out."""
    from contrasweep.data import inspecting, resolving

    _print_one(inspecting.show(resolving.find(name, storage=storage)), json)


@app.command()
def verify(name: str, storage: Storage = STORAGE, json: Json = False) -> None:
    """Read every shard and compare it with the manifest; an error names each object that is not as it should be."""
    from contrasweep.data import inspecting, resolving

    manifest = resolving.find(name, storage=storage)
    findings = inspecting.verify(manifest)
    # A program reads what is wrong from the document, a person from the error's line; both end with status 2.
    if json:
        print_json(
            "data-verify", {"uri": manifest.uri, "digest": manifest.digest, "findings": findings}
        )
        raise typer.Exit(2 if findings else 0)
    if not findings:
        shards = plural(len(manifest.shards), "shard")
        print(f"{manifest.name}: {shards} as the manifest says, digest {manifest.digest[:12]}")
    else:
        lines = "; ".join(f"{finding.object} {finding.problem}" for finding in findings)
        raise DataError(
            f"{manifest.name}: {len(findings)} of its objects are not what the manifest says: {lines}"
        )


def _counts(rows: dict[str, int]) -> str:
    """Return the rows of each split as text: `train 1,000 · test 200`."""
    return " · ".join(f"{split} {n:,}" for split, n in rows.items())


def _print_one(shown: "DatasetRow", json: bool) -> None:
    """Print the facts on one dataset, a line each and cut at 400 characters; with `json` the whole document."""
    if json:
        print_json("dataset", shown)
        return
    for key, value in {**shown, "rows": _counts(shown["rows"])}.items():
        text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
        if len(text) > 400:
            text = f"{text[:400]} … (--json shows all)"
        print(f"{key:14s}{text}")
