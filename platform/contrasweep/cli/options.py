"""Options that several commands share, and how results are printed."""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contrasweep.cli import completion
from contrasweep.cli.documents import dumps
from contrasweep.errors import SpecError
from contrasweep.imports import check_no_imports
from contrasweep.storage.names import local_path
from contrasweep.terminal_text import write
from contrasweep.text_table import WIDTH, text_table

if TYPE_CHECKING:
    from contrasweep.results.requirement import Outcome


def option(help: str, **more: Any) -> typer.models.OptionInfo:
    """Return an option that has the name of its parameter; `more` are other arguments of `typer.Option`."""
    return typer.Option(help=help, **more)  # type: ignore[no-any-return]


def flag(name: str, help: str, *short: str) -> typer.models.OptionInfo:
    """Return an option without a value, such as `--quiet`, with further names `short`.

    The name has to be given, since Typer would add an option `--no-...` to a name that it chooses itself.
    """
    return typer.Option(name, *short, help=help)  # type: ignore[no-any-return]


Study = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="module:NAME, a .yaml file, or FILE.yaml:NAME of several.",
        autocompletion=completion.study_files,
    ),
]
StoredStudy = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study of the storage: its name, module:NAME, or a .yaml file.",
        autocompletion=completion.studies,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the study; repeatable."),
]


def _checked_storage(value: str) -> str:
    """Return the address of a storage without slashes at its end, so that names can be joined to it by one.

    `SpecError` for a path that this machine cannot have, and for a folder from which Python would import modules.
    """
    if "://" not in value:
        # before anything is imported for a study
        check_no_imports(local_path(value, "--storage").resolve())
    # All slashes at the end, but not those of `/` and `s3://`.
    return re.sub("(?<=[^/:])/+$", "", value)


Storage = Annotated[
    str,
    option(
        "Folder or s3://bucket/prefix for records, checkpoints and datasets.",
        envvar="CONTRASWEEP_STORAGE",
        callback=_checked_storage,
    ),
]
Tracking = Annotated[
    str,
    option(
        "MLflow store, tensorboard:FOLDER, wandb:FOLDER, package.module:Class, or several with commas; or none.",
        envvar="CONTRASWEEP_TRACKING",
    ),
]
StudyTracking = Annotated[
    str,
    option(
        "As for `ui`, one or several with commas; or none. Left out: the study's `tracking`, or "
        "sqlite:///mlflow.db.",
        envvar="CONTRASWEEP_TRACKING",
        show_default=False,
    ),
]
MaxConcurrent = Annotated[int | None, option("Trials at once, at most.", min=1)]
Extend = Annotated[
    bool,
    flag("--extend", "Keep the trials of another plan of this name and add to them."),
]
Spend = Annotated[
    bool,
    flag("--spend", "Count arms that are added as a look at a quarter of the level."),
]
RetryFailed = Annotated[bool, flag("--retry-failed", "Run failed trials again.")]
Rerun = Annotated[
    list[str] | None,
    option(
        "Run these again: an arm, ARM/axis=value, a trial's id; repeatable.",
        metavar="ARM|CELL|TRIAL",
    ),
]
RerunChanged = Annotated[
    bool,
    flag("--rerun-changed", "Run trials of other code again; what there is moves to archive/."),
]
AcceptCode = Annotated[
    bool,
    flag("--accept-code", "Keep trials of other code; every table says that they are."),
]
Cluster = Annotated[
    Path | None, option("Inventory file of the hosts that the cluster has or can start.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write instead of standard output.")
]
Json = Annotated[
    bool,
    flag("--json", "One JSON document, whose schema `contrasweep schema COMMAND` prints."),
]


def _checked_since(value: str | None) -> str | None:
    """Return `value`, the token that was passed as `--since`; `SpecError` where `--json` was not passed too."""
    if value is not None and not wants_json():
        raise SpecError(
            "this is for programs", place="--since", value=value, hint="pass --json too"
        )
    return value


Since = Annotated[
    str | None,
    option(
        "With --json: `token` of an earlier answer; `changed` then names what differs.",
        metavar="TOKEN",
        callback=_checked_since,
    ),
]
_ADDRESS = option("The cluster's dashboard, http://HEAD:8265.", envvar="RAY_API_SERVER_ADDRESS")
Address = Annotated[str, _ADDRESS]
AddressOrNone = Annotated[str | None, _ADDRESS]


Require = Annotated[
    str,
    option(
        "End with 0 where it holds, 5 where it surely does not, 6 where there is too little data.",
        metavar="better|not-worse:M|equivalent:M",
    ),
]


def required(require: str, outcome: "Outcome | None") -> dict[str, str] | None:
    """Return the requirement `require` and its outcome as documents have both: `{"of": "better", "outcome": "open"}`.

    None where `outcome` is None, which means that nothing was required.
    """
    return {"of": require, "outcome": outcome} if outcome else None


def end_as(require: str, outcome: "Outcome | None") -> None:
    """Print on stderr whether the requirement `require` holds, and exit with the status for that: 0, 5 or 6.

    Does nothing where `outcome` is None: nothing was required.
    """
    from contrasweep.results.requirement import STATUS

    if outcome is None:
        return
    texts = {"holds": "holds", "fails": "surely does not hold", "open": "not enough data to say"}
    print(f"required: {require}: {texts[outcome]}", file=sys.stderr)
    raise typer.Exit(STATUS[outcome])


def print_json(name: str, value: Mapping[str, object], output: Path | None = None) -> None:
    """Write the document `name` with the members `value` to the file `output`; None: to standard output.

    `contrasweep.cli.documents` says what a document is.
    """
    write((dumps(name, value) + "\n").encode(), output)


def print_table(rows: Sequence[Sequence[str]], *, rule: bool = False) -> None:
    """Print rows in columns that fit the terminal; with `rule` the first row is a head, with a line below it."""
    print("\n".join(text_table(rows, rule=rule, width=width())))


def whole(name: str, value: Mapping[str, object]) -> object:
    """Return the document of the kind `name` with the members `value`, as mappings, lists, texts and numbers.

    The result can be a member of another document.
    """
    return loads(dumps(name, value))


def wants_json() -> bool:
    """Whether `--json` stands on the command line.

    It is known before the options are parsed, so that an error in them is a document too.
    """
    return "--json" in sys.argv


def width() -> int | None:
    """Return the columns of the terminal; None where the output goes into a file or a pipe, which has any number.

    The variable COLUMNS, if it is a number above 0, takes precedence over both.
    """
    return shutil.get_terminal_size((0, 0)).columns or None


def line_width(output: Path | None = None) -> int:
    """Return the characters of a line to lay out: the terminal's, or `WIDTH` for a pipe and for the file `output`."""
    return (None if output else width()) or WIDTH


def changed_code(rerun_changed: bool, accept_code: bool) -> Literal["stop", "rerun", "accept"]:
    """Return what to do with recorded trials of other code: `stop`, `rerun` or `accept`.

    `rerun_changed` and `accept_code` say whether the options `--rerun-changed` and `--accept-code` were passed. Without
    either of them it is `stop`; `SpecError` with both.
    """
    if rerun_changed and accept_code:
        raise SpecError(
            "trials of other code are either run again or kept",
            place="--rerun-changed, --accept-code",
        )
    if rerun_changed:
        return "rerun"
    return "accept" if accept_code else "stop"
