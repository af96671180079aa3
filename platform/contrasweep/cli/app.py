"""Commands on a study: plan, run, sync, schema, list, ui, doctor. Reports, jobs and data have their own files."""

import sys
import textwrap
from contextlib import nullcontext
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contrasweep.cli import (
    campaigns,
    completion,
    jobs,
    judge,
    maintenance,
    reports,
    skeleton,
    watching,
)
from contrasweep.cli import data as data_commands
from contrasweep.cli.examples import GroupedCommands, add_examples
from contrasweep.cli.options import (
    AcceptCode,
    Cluster,
    Extend,
    Json,
    MaxConcurrent,
    Rerun,
    RerunChanged,
    RetryFailed,
    Sets,
    Spend,
    Storage,
    StoredStudy,
    Study,
    StudyTracking,
    Tracking,
    changed_code,
    flag,
    line_width,
    option,
    print_json,
    print_table,
    whole,
    width,
)
from contrasweep.defaults import OF_STUDY, STORAGE, TRACKING
from contrasweep.errors import SpecError, StorageError
from contrasweep.secrets import redacted
from contrasweep.shell import command_line

if TYPE_CHECKING:
    from contrasweep.cli.catalogue import Setting
    from contrasweep.planning.planner import Plan
    from contrasweep.results.results import Results
    from contrasweep.study.sweep import Study as DeclaredStudy

app = typer.Typer(
    cls=GroupedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Declare a table of contrastive-learning runs; get it back with intervals and paired tests.",
)


def _print_version(wanted: bool) -> None:
    """Print the version and end the command, where `--version` was passed (`wanted`)."""
    if wanted:
        from importlib.metadata import version

        print(f"contrasweep {version('contrasweep')}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Declare a table of contrastive-learning runs; get it back with intervals and paired tests."""


@app.command()
def plan(
    study: Study,
    sets: Sets = None,
    storage: Storage = STORAGE,
    json: Json = False,
    cluster: Annotated[Path | None, option("Inventory file of a cluster to plan for.")] = None,
    extend: Extend = False,
    spend: Spend = False,
    noise: Annotated[
        Path | None,
        option("What `contrasweep noise --json` wrote: the noise to plan by."),
    ] = None,
) -> None:
    """Show what would run, what it takes and what it can decide.

    It shows cells, replicates and what is done already; memory and packing of each cell; hours and cost on this machine
    or on the hosts of an inventory. For datasets that are not staged, it shows how many cells wait for them and the
    commands that stage them. It shows each study of a file.
    """
    from contrasweep.running.preview import preview
    from contrasweep.study.file import load_studies

    plans: list[Plan] = []
    documents = []
    for declared in load_studies(study, sets or []):
        expected = preview(
            declared,
            storage=storage,
            cluster=cluster,
            extend=extend,
            spend=spend,
            noise=noise,
            before=plans,
        )
        if not json:  # what would run is worth reading where `run` would refuse it
            print(("\n" if plans else "") + expected.to_text(width()))
        # What `run` would refuse is an error of `plan` too.
        if expected.refused is not None:
            raise expected.refused
        documents.append(expected.to_dict())
        # Arms of a later study of the file may start from the trials of this one.
        if expected.plan:
            plans.append(expected.plan)
    if json and len(documents) > 1:
        print_json("plans", {"studies": [whole("plan", document) for document in documents]})
    elif json:
        print_json("plan", documents[0])


@app.command()
def run(
    study: Study,
    sets: Sets = None,
    storage: Storage = STORAGE,
    tracking: StudyTracking = OF_STUDY,
    json: Json = False,
    quiet: Annotated[
        bool, flag("--quiet", "Show no progress; failures and the table stay.", "-q")
    ] = False,
    max_concurrent: MaxConcurrent = None,
    extend: Extend = False,
    spend: Spend = False,
    retry_failed: RetryFailed = False,
    rerun: Rerun = None,
    rerun_changed: RerunChanged = False,
    accept_code: AcceptCode = False,
    cluster: Cluster = None,
    submitted_code: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a study, or go on with it; print its table at the end.

    Trials run on this machine, or on the Ray cluster in RAY_ADDRESS. Several studies of a file run one after the other:
    each begins once the one before it is complete.
    """
    from contrasweep.running.driver import run as run_study
    from contrasweep.running.session import session
    from contrasweep.running.study_code import check_submitted
    from contrasweep.storage.lease import listening
    from contrasweep.study.file import load_studies

    studies = load_studies(study, sets or [])
    if rerun and len(studies) > 1:
        raise SpecError(
            "trials of one study run again",
            place="--rerun",
            hint=command_line("run", f"{study}:NAME", rerun=True),
        )
    # Only `submit` passes this, in the command of a job: the file says which code the one study was sent with.
    if submitted_code is not None:
        check_submitted(studies[0], submitted_code)
    done: list[Results] = []
    # Ray is started once for all studies.
    with session() if len(studies) > 1 else nullcontext():
        for declared in studies:
            with listening(storage, declared.name):
                results = run_study(
                    declared,
                    storage=storage,
                    tracking=tracking,
                    max_concurrent=max_concurrent,
                    extend=extend,
                    spend=spend,
                    retry_failed=retry_failed,
                    rerun=rerun or [],
                    changed=changed_code(rerun_changed, accept_code),
                    cluster=cluster,
                    quiet=quiet,
                )
            done.append(results)
            if not json:
                _print_results(results, storage, tracking, declared)
            for line in results.unused_settings:
                print(f"warning: {line}", file=sys.stderr)
            if results.stopped or not results.complete:
                waiting = ", ".join(other.name for other in studies[len(done) :])
                if waiting:
                    print(
                        f"{results.name} is not complete, so that {waiting} did not begin",
                        file=sys.stderr,
                    )
                break
    if json and len(studies) > 1:
        print_json(
            "reports",
            {"studies": [whole("report", reports.summary(results)) for results in done]},
        )
    elif json:
        print_json("report", reports.summary(results))
    # 3: a budget has ended the run, which may go on. 1: a trial has failed, or is missing for another reason.
    if results.stopped:
        print(results.stopped, file=sys.stderr)
        raise typer.Exit(3)
    raise typer.Exit(0 if results.complete else 1)


def _print_results(
    results: "Results", storage: str, tracking: str, declared: "DeclaredStudy"
) -> None:
    """Print the results of a study that has run: its table, advice on undecided comparisons, search and storage.

    Where MLflow tracks the study, its page on a server is printed too, or the command that opens it. `tracking` is the
    option of that name; `OF_STUDY` stands for what the study `declared` names.
    """
    from contrasweep.reporting.search_notes import search_notes
    from contrasweep.tracking.kinds import parted, tracking_of
    from contrasweep.tracking.links import read_links

    print(results.table().to_text(line_width()))
    advice = results.advice().to_text(line_width()).rstrip()
    if advice:
        print("\n" + advice)
    if results.spent():
        print("\n" + search_notes(results).to_text(width()))
    print(
        f"\nrecords:  {storage}/{results.name}\nreport:   {command_line('report', results.name, storage=storage)}"
    )
    stores, _ = parted(tracking_of(tracking, declared.tracking))  # MLflow's, and other trackers
    for store in stores:
        links = read_links(results.records)
        page = command_line("ui", tracking=redacted(store), study=results.name, storage=storage)
        # A server's page opens at once.
        print(f"MLflow:   {links.study if links.served and links.tracking == store else page}")


@app.command()
def evaluate(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            help="module:NAME, a .yaml file, or a name; with --model, of a new study.",
        ),
    ] = None,
    on: Annotated[
        str,
        option("Staged datasets of images with labels.", metavar="DATASET[,DATASET]"),
    ] = "",
    function: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="PACKAGE.MODULE:FUNCTION",
            help="f(model, data, trial) -> {metric: number}.",
        ),
    ] = "",
    model: Annotated[
        str,
        option("load(path) -> network, of a --checkpoint.", metavar="PACKAGE.MODULE:FUNCTION"),
    ] = "",
    checkpoint: Annotated[
        Path | None, option("A file or folder of a network that was trained elsewhere.")
    ] = None,
    storage: Storage = STORAGE,
    tracking: StudyTracking = OF_STUDY,
    json: Json = False,
    quiet: Annotated[bool, flag("--quiet", "Show no progress.", "-q")] = False,
    max_concurrent: MaxConcurrent = None,
    cluster: Cluster = None,
) -> None:
    """Score the networks of a study again, on other data.

    With --with, your own function scores them. With --model and --checkpoint, a network from elsewhere is scored.
    Nothing is trained. Each trial gets further metrics: DATASET/knn1, DATASET/probe and others; those of --with are
    FUNCTION/METRIC, or with --on too DATASET/FUNCTION/METRIC.
    """
    from contrasweep.running import driver

    options: Any = {
        "on": [name.strip() for name in on.split(",") if name.strip()],
        "function": function,
        "storage": storage,
        "tracking": tracking,
        "max_concurrent": max_concurrent,
        "cluster": cluster,
        "quiet": quiet,
    }
    # --model and --checkpoint go together; without both, a study is needed.
    if (checkpoint is not None) != bool(model) or not (study or model):
        hint = "or --model PACKAGE.MODULE:FUNCTION --checkpoint FILE, for a network that was trained elsewhere"
        raise SpecError("it evaluates the networks of a study", place="STUDY", hint=hint)
    # `results` are those of the scored study with the new metrics, `evaluated` those of the trials that scored it.
    if checkpoint is not None:
        evaluated = driver.evaluate_checkpoint(checkpoint, model, name=study or "", **options)
        results = evaluated
    else:
        results, evaluated = driver.evaluate(study or "", **options)
    # The metrics that an evaluation adds are columns with a slash in their name, and a value in some trial.
    columns = map(str, evaluated.done.dropna(axis=1, how="all"))
    metrics = [name for name in columns if "/" in name]
    table = results.table(metric=metrics[0]) if metrics else None
    if json:
        print_json("report", reports.summary(results, table))
    else:
        print(table.to_text(line_width()) if table else "")
        metrics_line = textwrap.fill(
            f"metrics:  {', '.join(metrics)}", line_width(), subsequent_indent=" " * 10
        )
        print(
            f"{metrics_line}\nreport:   {command_line('report', results.name, storage=storage, metric='NAME')}"
        )
    raise typer.Exit(0 if evaluated.complete else 1)


@app.command()
def sync(
    study: StoredStudy,
    storage: Storage = STORAGE,
    tracking: StudyTracking = OF_STUDY,
    json: Json = False,
    follow: Annotated[bool, flag("--follow", "Go on while the study runs.")] = False,
) -> None:
    """Bring MLflow and other trackers up to a study's storage.

    Trials that are missing there are added, and none is added twice.
    """
    from contrasweep.results.results import Results
    from contrasweep.running.publish import publish
    from contrasweep.tracking.kinds import checked_tracking, tracking_of
    from contrasweep.tracking.sync import follow as follow_study
    from contrasweep.tracking.sync import sync as bring_up
    from contrasweep.tracking.tracker import TrackedStudy

    # Whoever can write to a storage could put an address into it. So an address from a storage is never used, only one
    # from a study file of the user.
    declared = reports.declared(study)
    results = Results.load(declared.name if declared else study, storage)
    named = results.document.spec.get("tracking")
    if tracking == OF_STUDY and declared is None and named is not None:
        raise SpecError(
            "the address that a storage names is not used",
            place="tracking",
            value=redacted(str(named)),
            hint="if it is yours, say so by --tracking, or give the file or module:NAME that declares the study",
        )
    trackers = checked_tracking(tracking_of(tracking, declared.tracking if declared else None))
    if follow:
        if gaps := follow_study(results.records, trackers):
            raise StorageError("\n".join(gaps))
        return
    complete = bool(results.statuses) and not results.pending
    done = list(bring_up(results.records, trackers, complete=complete))
    if not trackers.store.is_none:  # the table and notes too
        publish(results, trackers, TrackedStudy.stored(results.records), synced=True)
    if json:
        print_json("sync", {"trackers": done})
    else:
        print("\n".join(map(str, done)))


@app.command()
def ui(
    tracking: Tracking = TRACKING,
    port: Annotated[int, option("The first one that is free counts.", min=1, max=65535)] = 5000,
    study: Annotated[str | None, option("Open this study of the storage.")] = None,
    storage: Storage = STORAGE,
) -> None:
    """Serve the MLflow UI on the tracking store until interrupted."""
    from contrasweep.tracking.mlflow.ui import serve
    from contrasweep.tracking.tracker import TrackedStudy

    shown = (
        TrackedStudy.stored(watching.known_study(reports.name(study), storage)) if study else None
    )
    raise typer.Exit(serve(tracking, port, shown))


@app.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="methods, losses, targets, similarities, encoders, heads, augmentations, optimizers, datasets, "
            "readers, searchers, pruners, trackers or studies.",
            autocompletion=completion.kinds,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            help="An entry, or package.module:name, to print its settings; for studies, the package to list."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the entries of a kind, or the settings of one entry.

    A setting is listed with its type, its default, and what it does.
    """
    from contrasweep.cli import catalogue

    # Studies have no settings: their name is that of a package whose studies are listed.
    if name is None or kind == "studies":
        entries = catalogue.descriptions(kind, name or catalogue.STUDIES)
        if json:
            print_json("list", {"entries": entries})
            return
        if not entries:
            raise SpecError("there are no entries", place=f"list {kind}", value=name)
        print_table(list(entries.items()))
        if signature := catalogue.SIGNATURES.get(kind):
            print(f"\nyour own, by package.module:name: {signature}")
        return
    settings = catalogue.settings(kind, name)
    if json:
        print_json("list", {"settings": settings})
    else:
        print(_settings_text(name, settings))


@app.command()
def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            help="What a command prints with --json: report, plan, status, ... or error. Left out: a study."
        ),
    ] = None,
) -> None:
    """Print the JSON schema of a study file, or of a document.

    The schema of a study file is for editors, and has the settings of all methods.
    """
    # Documents are made of results, which need pandas; an editor's schema does without.
    if name is None:
        from contrasweep.cli.catalogue import with_method_settings
        from contrasweep.study.file import study_schema

        schema = with_method_settings(study_schema())
    else:
        from contrasweep.cli.schemas import document_schema

        schema = document_schema(name)
    print(dumps(schema, indent=1, default=str))


@app.command()
def doctor(storage: Storage = STORAGE, tracking: Tracking = TRACKING, json: Json = False) -> None:
    """Check versions, hosts and GPUs, Ray, storage and MLflow."""
    from contrasweep.cli.doctor import examine

    findings = examine(storage, tracking)
    if json:
        print_json("doctor", {"findings": findings})
    else:
        print("\n".join(str(finding) for finding in findings))
    raise typer.Exit(0 if all(finding.works for finding in findings) else 1)


@app.command()
def mcp(
    storage: Storage = STORAGE,
    folder: Annotated[Path, option("The folder that has the studies. They run in it.")] = Path("."),
    tracking: StudyTracking = OF_STUDY,
    allow: Annotated[
        Literal["read", "run"],
        option("run: tools that train and stop studies too, within a budget."),
    ] = "read",
    gpu_hours: Annotated[
        float | None,
        option("GPU-hours that all runs may take; without a GPU, hours of a slot.", min=0),
    ] = None,
) -> None:
    """Serve a storage and its studies over the Model Context Protocol.

    The server speaks on standard input and output, and needs the extra `mcp`.
    """
    from contrasweep.cli.mcp_server import Allowance, Tools, make_server

    if (allow == "run") != (gpu_hours is not None):  # one without the other
        hint = "--allow run --gpu-hours 2"
        raise SpecError(
            "`--allow run` and a budget go together", place="--allow", value=allow, hint=hint
        )
    if not folder.is_dir():
        raise SpecError("a folder that is there", place="--folder", value=str(folder))
    allowance = None if gpu_hours is None else Allowance(gpu_hours)
    make_server(Tools(storage, folder, tracking, allowance)).run("stdio")


for command in (
    reports.report,
    reports.compare,
    reports.diff,
    reports.bundle,
    campaigns.decide,
    campaigns.ledger,
    judge.judge,
    judge.noise,
    watching.watch,
    watching.studies,
    watching.jobs,
    maintenance.code,
    maintenance.note,
    maintenance.clean,
    maintenance.remove,
    maintenance.restore,
    maintenance.verify,
    jobs.submit,
    jobs.status,
    jobs.logs,
    jobs.stop,
    skeleton.init,
):
    app.command()(command)
app.add_typer(
    data_commands.app, name="data", help="Stage datasets as Parquet, list, verify and show them."
)
add_examples(app)


def run_app() -> Any:
    """Run the command of `sys.argv`, and return its exit status: `INTERRUPTED` where a signal has come."""
    from contrasweep.running.signals import INTERRUPTED, interruption

    # While the command runs, an interruption is a KeyboardInterrupt in it, so that the command ends in order.
    interruption.at_once = False
    try:
        return app(standalone_mode=False)
    # An import or compiled code may turn a KeyboardInterrupt into another error.
    except BaseException:
        if not interruption.requested:
            raise
        return INTERRUPTED
    # From now on a signal ends the process at once, if it is the command line's and not a program of the user's.
    finally:
        interruption.at_once = interruption.ends_process


def _settings_text(name: str, settings: list["Setting"]) -> str:
    """Return one paragraph for each setting: name, type and default on a line, its help below.

    A sentence where the entry `name` has none.
    """
    if not settings:
        return f"{name} has no settings"
    wide = max(len(setting.name) for setting in settings)
    lines = []
    for setting in settings:
        default = "required" if setting.default is None else f"default {setting.default}"
        lines.append(f"{setting.name:<{wide}}  {', '.join(filter(None, [setting.type, default]))}")
        text = textwrap.fill(" ".join(setting.help.split()), 100)
        if text:
            lines.append(textwrap.indent(text, " " * (wide + 2)))
    return "\n".join(lines)
