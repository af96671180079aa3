"""What a shell completes an argument to at Tab: study files, studies of a storage, arms, kinds of component."""

import os
from pathlib import Path

import typer

from contrasweep.defaults import STORAGE


def study_files(incomplete: str) -> list[str]:
    """Return the paths of the .yaml files that begin with `incomplete`, sorted."""
    folder, name = os.path.split(incomplete)
    paths = Path(folder or ".").glob("*.y*ml")
    return sorted(os.path.join(folder, path.name) for path in paths if path.name.startswith(name))


def studies(context: typer.Context, incomplete: str) -> list[str]:
    """Return the studies of the storage, then the .yaml files, that begin with `incomplete`.

    The storage is that of the command typed so far. A bucket is not listed, which is slow.
    """
    folder = Path(context.params.get("storage") or STORAGE)
    names = (path.parent.name for path in folder.glob("*/study.json"))
    return sorted(name for name in names if name.startswith(incomplete)) + study_files(incomplete)


def arms(context: typer.Context, incomplete: str) -> list[str]:
    """Return the arms, that begin with `incomplete`, of the study that stands before this argument.

    Empty where that study cannot be read.
    """
    from contrasweep.errors import ContrasweepError
    from contrasweep.storage.records import StudyRecords

    try:
        document = StudyRecords(
            context.params.get("storage") or STORAGE, context.params["study"]
        ).document()
    except (ContrasweepError, OSError):  # nobody reads an error at Tab
        return []
    return [arm for arm in (document.arms if document else ()) if arm.startswith(incomplete)]


def kinds(incomplete: str) -> list[str]:
    """Return the kinds of component that `contrasweep list` knows and that begin with `incomplete`."""
    from contrasweep.cli.catalogue import TABLES

    return [kind for kind in (*TABLES, "studies") if kind.startswith(incomplete)]
