"""`contrasweep init`: a folder with a method, its study and its test, or the study of what is there."""

import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer
import yaml

from contrasweep.errors import SpecError

EXAMPLE = "own_method"
"""The package in the example that is copied; its name gives way to the new package's."""
FILES = (
    f"{EXAMPLE}/__init__.py",
    f"{EXAMPLE}/method.py",
    "study.yaml",
    "test_method.py",
    "README.md",
)
SCHEMA = "study.schema.json"


def init(
    folder: Annotated[
        Path, typer.Argument(help="A folder that is new or empty, or has scripts.")
    ] = Path(),
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A sweep of W&B, SEML, Hydra, Optuna or Ray Tune, or a script with flags.",
        ),
    ] = None,
) -> None:
    """Write a method to start from, or a study of what you have.

    In a new folder: a package, a study of it and its test; the study runs as it is. In a folder with one script, or
    with `--from`: `study.yaml` for it. What has no counterpart is printed.
    """
    scripts = sorted(folder.glob("*.py"))
    if source is None and len(scripts) == 1:
        source = scripts[0]
    if source is not None:
        from contrasweep.cli.conversion.sweeps import converted

        target = folder / "study.yaml"
        if target.exists():
            raise SpecError(
                "there is a study already",
                place="FOLDER",
                value=str(target),
                hint="name another folder",
            )
        study, without_counterpart = converted(source)
        folder.mkdir(parents=True, exist_ok=True)
        # A copy in which no list stands twice: YAML would write the second one as an alias.
        plain = json.loads(json.dumps(study))
        target.write_text(
            yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=120)
        )
        print(f"{target}: from {source}")
        for line in without_counterpart:
            print(f"no counterpart: {line}")
        print(f"\ncontrasweep plan {shlex.quote(str(target))}")
        return
    # The package has the folder's name, as far as Python can import it.
    name = re.sub(r"\W+", "_", folder.absolute().name.lower()).strip("_")
    _check(folder, name)
    for file, text in _files(name).items():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    print(f"{folder}: package {name}, study.yaml, test_method.py, README.md\n")
    print(f"cd {shlex.quote(str(folder))}\ncontrasweep plan study.yaml\ncontrasweep run study.yaml")


def _check(folder: Path, name: str) -> None:
    """Raise `SpecError` where no package `name` can be made in `folder`.

    That is so where the folder has files or is itself a file, and where `name` is no package's name or is taken.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        hint = "`--from FILE` makes a study of a script or a sweep that is there"
        raise SpecError(
            "the folder must be new or empty", place="FOLDER", value=str(folder), hint=hint
        )
    if not name.isidentifier():
        raise SpecError(
            "the folder's name is that of a package, which Python can import",
            place="FOLDER",
            value=name,
            hint="e.g. mythesis",
        )
    if importlib.util.find_spec(name) is not None:
        raise SpecError(
            "there is a package of this name already",
            place="FOLDER",
            value=name,
            hint=f"choose another, for example my_{name}",
        )


def _files(name: str) -> dict[str, str]:
    """Return file -> text of the skeleton: the example, with its package called `name`, and the schema of its study.

    Files are named relative to the new folder.
    """
    from contrasweep.cli.catalogue import with_method_settings
    from contrasweep.study.file import study_schema

    this_file = Path(__file__).resolve()
    # An installed package has the example in itself, a checkout beside the platform.
    example = this_file.parents[1] / "example"
    if not example.is_dir():
        example = this_file.parents[3] / "examples" / EXAMPLE
    texts = {}
    for file in FILES:
        text = (example / file).read_text()
        # The study of the example has the package's name with dashes.
        texts[file.replace(EXAMPLE, name)] = text.replace(EXAMPLE, name).replace(
            "own-method", name.replace("_", "-")
        )
    return texts | {SCHEMA: json.dumps(with_method_settings(study_schema()))}
