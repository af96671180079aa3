"""Commands on a study: plan, run, sync, schema, list, ui, doctor. Reports, jobs and data have their own files."""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from contrasweep.cli import data as data_commands
from contrasweep.cli import jobs, reports
from contrasweep.cli.options import (
    Cluster,
    Extend,
    Json,
    MaxConcurrent,
    RetryFailed,
    Sets,
    Storage,
    Study,
    Tracking,
    print_json,
)
from contrasweep.errors import SpecError, choose_from
from contrasweep.study.file import load_study

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Declare a table of contrastive-learning runs; get it back with intervals and paired tests.",
)
app.add_typer(data_commands.app, name="data", help="Stage datasets as Parquet, list, verify and show them.")
jobs.add_to(app)
reports.add_to(app)

STORAGE, TRACKING = "./contrasweep-runs", "sqlite:///mlflow.db"
TABLES = {
    "methods": ("trainables.methods", "METHODS"),
    "losses": ("trainables.losses", "LOSSES"),
    "similarities": ("trainables.similarities", "SIMILARITIES"),
    "encoders": ("trainables.encoders", "ENCODERS"),
    "datasets": ("contrasweep.data.importers", "DATASETS"),
    "searchers": ("contrasweep.tuning.searchers", "SEARCHERS"),
    "schedulers": ("contrasweep.tuning.pruners", "SCHEDULERS"),
}


@app.command()
def plan(
    study: Study,
    sets: Sets = None,
    storage: Storage = STORAGE,
    json: Json = False,
    cluster: Annotated[Path | None, typer.Option(help="Inventory file of a cluster to plan for.")] = None,
) -> None:
    """Show what would run: cells, replicates, what is done already; memory and packing of each cell, hours and cost on
    this machine or on the hosts of an inventory; and what the design can answer."""
    from contrasweep.planning import forecast
    from contrasweep.running.driver import plan as make

    found = forecast.forecast(make(load_study(study, sets or []), storage=storage), storage, cluster)
    print_json(found.to_dict()) if json else print(found.to_text())


@app.command()
def run(
    study: Study,
    sets: Sets = None,
    storage: Storage = STORAGE,
    tracking: Tracking = TRACKING,
    json: Json = False,
    max_concurrent: MaxConcurrent = None,
    extend: Extend = False,
    retry_failed: RetryFailed = False,
    cluster: Cluster = None,
) -> None:
    """Run a study, or go on with it; here, or on the Ray cluster in RAY_ADDRESS. Prints the table at the end."""
    from contrasweep.report.search_notes import notes_text
    from contrasweep.running.driver import run as run_study

    declared = load_study(study, sets or [])
    results = run_study(
        declared,
        storage=storage,
        tracking=tracking,
        max_concurrent=max_concurrent,
        extend=extend,
        retry_failed=retry_failed,
        cluster=cluster,
    )
    if json:
        print_json(reports.summary(results))
    else:
        print(results.table().to_text())
        print("\n" + notes_text(results) if results.spent() else "")
        print(f"\nrecords:  {storage}/{results.name}\nreport:   contrasweep report {results.name} --storage {storage}")
        if tracking != "none":
            print(f"MLflow:   contrasweep ui --tracking {tracking} --study {results.name}")
    if results.stopped:
        print(results.stopped, file=sys.stderr)
    raise typer.Exit(3 if results.stopped else 0 if results.complete else 1)


@app.command()
def sync(study: Study, storage: Storage = STORAGE, tracking: Tracking = TRACKING, json: Json = False) -> None:
    """Replay a study's records into MLflow: what is missing there is added, nothing twice."""
    from contrasweep.results.results import Results
    from contrasweep.tracking import sync as replay

    summary = replay(Results.load(reports.name(study), storage).records, tracking)
    print_json(vars(summary)) if json else print(summary)


@app.command()
def ui(
    tracking: Tracking = TRACKING,
    port: int = 5000,
    study: Annotated[str | None, typer.Option(help="Open this study.")] = None,
) -> None:
    """Serve the MLflow UI on the tracking store until interrupted."""
    from contrasweep.tracking import serve

    raise typer.Exit(serve(tracking, port, reports.name(study) if study else None))


@app.command("list")
def list_(kind: str, json: Json = False) -> None:
    """List what there is: methods, losses, similarities, datasets, encoders, searchers, schedulers or studies."""
    if kind == "studies":
        found = _studies()
    elif kind in TABLES:
        module, table = TABLES[kind]
        entries = getattr(importlib.import_module(module), table)
        found = {name: _about(entry) for name, entry in entries.items()}
    else:
        raise SpecError(
            "there is no such kind of thing",
            place="list",
            value=kind,
            hint=choose_from("kinds", [*TABLES, "studies"], kind),
        )
    if json:
        print_json(found)
    else:
        wide = max(map(len, found))
        print("\n".join(f"{name:<{wide}}  {text}".rstrip() for name, text in found.items()))


@app.command()
def schema() -> None:
    """Print the JSON schema of a study file, for editors."""
    from contrasweep.study.file import study_schema

    print_json(study_schema())


@app.command()
def doctor(storage: Storage = STORAGE, tracking: Tracking = TRACKING, json: Json = False) -> None:
    """Check what works here: versions, hosts and GPUs, Ray, storage, MLflow."""
    from contrasweep.cli.doctor import examine

    findings = examine(storage, tracking)
    if json:
        print_json([vars(f) for f in findings])
    else:
        print("\n".join(str(f) for f in findings))
    raise typer.Exit(0 if all(f.works for f in findings) else 1)


def _about(entry: object) -> str:
    """One line on an entry of a table."""
    text = (
        getattr(entry, "description", "")
        or getattr(entry, "about", "")
        or (entry.__doc__ if callable(entry) else "")
        or ("" if callable(entry) else str(entry))
    )
    return str(text).strip().split("\n")[0]


def _studies() -> dict[str, str]:
    import pkgutil

    from contrasweep.study.study import AblationGrid, Sweep

    search_spaces = importlib.import_module("search_spaces")  # by name: the platform does not depend on it
    modules = [importlib.import_module(f"search_spaces.{m.name}") for m in pkgutil.iter_modules(search_spaces.__path__)]
    return {
        f"{module.__name__}:{name}": value.description
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, AblationGrid | Sweep)
    }
