"""`contrasweep init`: a folder with a method, its study and its test, which works without changes."""

import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from contrasweep.errors import SpecError

EXAMPLE = "own_method"
"""The package in the example that is copied; its name gives way to the new package's."""
FILES = (f"{EXAMPLE}/__init__.py", f"{EXAMPLE}/method.py", "study.yaml", "test_method.py", "README.md")
SCHEMA = "study.schema.json"


def add_to(app: typer.Typer) -> None:
    """Add the command to the main application."""
    app.command()(init)


def init(
    folder: Annotated[Path, typer.Argument(help="A folder that is new or empty.")],
    package: Annotated[
        str | None, typer.Option(help="Name of the Python package in it; default: the folder's name.")
    ] = None,
) -> None:
    """Write a method of your own to start from.

    A package, a study of it and its test; the study runs as it is.
    """
    name = package or re.sub(r"\W+", "_", folder.absolute().name.lower()).strip("_")
    _check(folder, name)
    for file, text in _files(name).items():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    print(f"{folder}: package {name}, study.yaml, test_method.py, README.md\n")
    print(f"cd {shlex.quote(str(folder))}\ncontrasweep plan study.yaml\ncontrasweep run study.yaml")


def _check(folder: Path, name: str) -> None:
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise SpecError("the folder must be new or empty", place="FOLDER", value=str(folder))
    if not name.isidentifier():
        raise SpecError(
            "the package needs a name that Python can import", place="--package", value=name, hint="e.g. mythesis"
        )
    if importlib.util.find_spec(name) is not None:
        raise SpecError(
            "there is a package of this name already",
            place="--package",
            value=name,
            hint=f"choose another, for example --package my_{name}",
        )


def _files(name: str) -> dict[str, str]:
    """File -> text of the skeleton, with the example's package called `name`."""
    from contrasweep.cli.catalogue import with_method_settings
    from contrasweep.study.file import study_schema

    texts = {}
    for file in FILES:
        text = (_example() / file).read_text()
        texts[file.replace(EXAMPLE, name)] = text.replace(EXAMPLE, name).replace("own-method", name.replace("_", "-"))
    return texts | {SCHEMA: json.dumps(with_method_settings(study_schema()))}


def _example() -> Path:
    """The example's folder: inside the installed package, or in a checkout beside it."""
    here = Path(__file__).resolve()
    installed = here.parents[1] / "example"
    return installed if installed.is_dir() else here.parents[3] / "examples" / EXAMPLE
