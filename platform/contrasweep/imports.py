"""Imports of objects at dotted paths, such as trainables, losses and other components of the user's package."""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import shlex
import sys
import sysconfig
import traceback
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasweep.config import Config
from contrasweep.errors import SpecError, choose_from, clipped

TRAINING_PACKAGE = "torch"
"""The package whose absence says that nothing is trained here."""
PARTS_GROUP = "contrasweep.parts"
"""The entry point group of parts of installed packages, by which `contrasweep list losses` shows them too.

    [project.entry-points."contrasweep.parts"]
    "losses.soft" = "contrasweep_soft.losses:soft"
    "readers.soft_*.json" = "contrasweep_soft.reading:read"

The word before the dot is the kind, as `contrasweep list` has it. A name stands for its dotted path, which a trial's
settings hold, so that its record has the package's version.
"""
SITE_FOLDERS = ("site-packages", "dist-packages")
"""Names of folders with installed packages. Metadata in any other folder, such as the current one, name no parts."""
_storages: set[Path] = set()  # folders that this process has used as storages
# Folders of the standard library and of installed packages.
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platlib", "purelib"))


def is_installed(name: str) -> bool:
    """Whether a package of this name could be imported; it is not imported for that."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def install_command(extra: str) -> str:
    """Return the command that installs an extra of contrasweep from where contrasweep itself came from.

    The name alone would ask a package index, where anybody may have registered it.
    """
    # pip writes this file of an installation from a folder or a repository (PEP 610), and none from an index.
    origin = json.loads(
        importlib.metadata.distribution("contrasweep").read_text("direct_url.json") or "{}"
    )
    url = origin.get("url", "")
    if "dir_info" in origin:
        editable = ["--editable"] if origin["dir_info"].get("editable") else []
        folder = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
        return shlex.join(["pip", "install", *editable, f"{folder}[{extra}]"])
    if version := origin.get("vcs_info"):
        url = f"{version['vcs']}+{url}@{version['commit_id']}"
    requirement = f"contrasweep[{extra}]"
    if url:
        requirement += f" @ {url}"
    return shlex.join(["pip", "install", requirement])


def require(package: str) -> None:
    """Raise `ModuleNotFoundError`, which says what to install, where a package of the extra `all` is missing."""
    if not is_installed(package):
        missing = f"{package} is not installed here: {install_command('all')}"
        raise ModuleNotFoundError(missing, name=package)


def import_from_here() -> None:
    """Put the current folder on `sys.path`, as Python does for a script in that folder.

    Raises `SpecError` where a storage that this process has used before lies on `sys.path`; see `check_no_imports`.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
        importlib.invalidate_caches()
    for folder in _storages:
        check_no_imports(folder)


def check_no_imports(storage: Path) -> None:
    """Raise `SpecError` where the storage or a study in it lies on `sys.path`.

    Its files could then be imported as modules. The storage is remembered, and `import_from_here` checks it again.
    """
    _storages.add(storage)
    for folder in {Path(folder or ".").resolve() for folder in sys.path}:
        if not folder.is_relative_to(storage):
            continue
        # The study's folder that `folder` is or lies in; the storage itself where `folder` is the storage.
        study = storage.joinpath(*folder.relative_to(storage).parts[:1])
        if study == storage or (study / "study.json").exists():
            raise SpecError(
                "a storage is no folder to import from, as the current one is for a study's code",
                place="storage",
                value=str(storage),
                hint="go to another folder, or take a storage below this one, such as contrasweep-runs",
            )


def project_folders() -> list[Path]:
    """Return where a project's own files are looked for.

    The first is the folder in which the process was started; a worker of Ray Tune, which changes its folder, has that
    one too. Then come the folders of `sys.path` that hold no installed packages.
    """
    first = os.environ.get("TUNE_ORIG_WORKING_DIR") or Path.cwd()
    folders = dict.fromkeys(Path(place) for place in (first, *sys.path) if place)
    return [folder for folder in folders if folder.is_dir() and not _holds_packages(folder)]


def project_file(name: str) -> Path | None:
    """Return the file of a project that `name`, a relative or absolute path, means; None where there is none.

    A file outside of `project_folders`, and a program of a virtual environment, is none of the project.
    """
    for folder in project_folders():
        path = folder / name
        is_inside = folder in path.parents and ".." not in Path(name).parts
        # As .venv/bin/python. A word of many lines, as of `bash -c`, is no path: pathlib would raise for it.
        is_of_environment = os.path.isfile(path.parent.parent / "pyvenv.cfg")
        if os.path.isfile(path) and is_inside and not is_of_environment:
            return path
    return None


def project_files(name: str) -> list[str]:
    """Return the names of the files of a project that `name` means: a file, or all that lie in a folder; [] for others.

    Hidden files and compiled ones are left out.
    """
    if project_file(name) is not None:
        return [name]
    parts = Path(name).parts
    # A path without parts is the project's folder itself; `..` or a leading `/` may lead outside of it.
    is_below = parts and not {"..", "/"} & set(parts)
    for folder in project_folders():
        if is_below and os.path.isdir(folder / name):
            names = []
            for file in sorted(path for path in (folder / name).rglob("*") if path.is_file()):
                path = file.relative_to(folder)
                if not any(part[0] == "." or part == "__pycache__" for part in path.parts):
                    names.append(str(path))
            return names
    return []


def project_folder(words: Sequence[str]) -> Path:
    """Return the folder in which a command of these `words` runs.

    It is the first of `project_folders` with a file that one of the words names, else the first of all.
    """
    for folder in project_folders():
        if any(os.path.isfile(folder / word) and not Path(word).is_absolute() for word in words):
            return folder
    return project_folders()[0]


def import_path(
    path: str,
    place: str = "",
    kind: str = "trainable",
    missing_hint: str = "",
    also_allowed: type | None = None,
) -> Any:
    """Return the class or function at `package.module:name`.

    For errors `kind` says what the object should be, and `missing_hint` is the hint where its package is missing. An
    object of the type `also_allowed` is returned too, though it cannot be called. Raises `SpecError` at `place` where
    the path leads nowhere, its module cannot be imported, or the object cannot be called.
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        hint = "package.module as in an import statement, not the path of a file"
        raise SpecError(f"the {kind}'s module is a dotted name", place=place, value=path, hint=hint)
    module = import_module(module_name, path, place, kind, missing_hint)
    if not hasattr(module, name):
        # The hint has what the module defines; what it imports only where it defines nothing.
        public = {
            name: value
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        }
        defined_there = [
            name
            for name, value in public.items()
            if getattr(value, "__module__", "") == module_name
        ]
        raise SpecError(
            f"the {kind}'s module has no such function or class",
            place=place,
            value=path,
            hint=choose_from("names", defined_there or list(public), name),
        )
    target = getattr(module, name)
    if not callable(target) and not (also_allowed and isinstance(target, also_allowed)):
        raise SpecError(
            f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} is a function or class",
            place=place,
            value=path,
            hint=f"{name} is of type {type(target).__name__}",
        )
    return target


def import_module(
    name: str, path: str = "", place: str = "", kind: str = "trainable", missing_hint: str = ""
) -> Any:
    """Return the module of this name.

    Raises `SpecError` at `place` where it cannot be imported. The error shows the dotted `path` of an object in the
    module, or without one the module's name; `kind` and `missing_hint` are those of `import_path`. On a machine that
    only plans, it raises `ModuleNotFoundError` where another module, which this one imports, is missing.
    """
    try:
        return importlib.import_module(name)
    # The module is someone else's: whatever it raises is told in one line.
    except (Exception, SystemExit) as error:
        # The missing module, if that is the error, is the named one, a package around it, or one that it imports.
        # "" is any other error.
        missing = ""
        if isinstance(error, ModuleNotFoundError):
            missing = error.name or ""
        is_named = bool(missing) and f"{name}.".startswith(f"{missing}.")
        # A machine that only plans may lack what a module imports: the caller leaves this check to those that train.
        if missing and not is_named and not is_installed(TRAINING_PACKAGE):
            raise
        problem = "cannot be imported"
        if is_named:
            hint = "; ".join(filter(None, (str(error), missing_hint or _looked(missing))))
        elif isinstance(error, ImportError):
            hint = f"{clipped(str(error), 900)}{failing_line(error)}"
        else:
            problem = "raises an error when it is imported"
            hint = in_one_line(error)
            if isinstance(error, SystemExit):
                hint += '; put what a script does below `if __name__ == "__main__":`'
        rule = f"the {kind}'s module {problem}"
        raise SpecError(rule, place=place, value=path or name, hint=hint) from None


def _holds_packages(folder: Path) -> bool:
    """Whether installed packages, programs or the standard library lie in a folder."""
    standard = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    installed = {"site-packages", "dist-packages", "lib-dynload"} & set(folder.parts)
    return bool(installed) or folder.name == standard or folder == Path(sys.executable).parent


def _looked(name: str) -> str:
    """Return the hint for a module that was not found: in which folder and packages Python has looked for it.

    "" for a module inside a package, whose name has a dot.
    """
    if "." in name:
        return ""
    return f"it is looked for in the current folder ({Path.cwd()}) and among the installed packages"


@contextlib.contextmanager
def errors_named(rule: str, place: str = "") -> Iterator[None]:
    """Turn each error that the user's code raises in the `with` block into a `SpecError` of this rule and place."""
    try:
        yield
    except SpecError:
        raise
    except (Exception, SystemExit) as error:  # somebody's code may call sys.exit
        raise SpecError(rule, place=place, hint=in_one_line(error)) from None


def in_one_line(error: BaseException) -> str:
    """Return an error of the user's code as a line: its type, its message, and where it was raised."""
    return f"{type(error).__name__}: {clipped(str(error), 900)}{failing_line(error)}"


def failing_line(error: BaseException) -> str:
    """Return the line of the user's code that raised `error`: ` (mine.py, line 3)`; "" where that is not known."""
    if isinstance(error, SyntaxError):
        return ""  # its text says where
    # Frames of the import system and of this file are in every such traceback.
    machinery = ("<", __file__, importlib.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(machinery)
    ]
    # The user's own frames, not those of libraries that they called, if there are any.
    frames = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)] or frames
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def build_part(
    kind: str, name: str, target: Callable[..., Any], *first: object, options: Config
) -> Any:
    """Return `target(*first, **options)`: the part of this `kind`, such as a pruner, that the user has named.

    `name`, for errors, is its dotted path or its name in a table. Raises `SpecError` at `<kind>_options` where `target`
    does not take the options, at `kind` where it raises an error.
    """
    # Bound before it is called, so that a TypeError from within is not taken for a wrong option.
    try:
        signature = inspect.signature(target)
        signature.bind(*first, **options)
    except TypeError as error:
        raise SpecError(
            f"the {kind} does not take these options",
            place=f"{kind}_options",
            value=dict(options),
            hint=str(error),
        ) from None
    except ValueError:  # of a class written in C, whose arguments nobody knows
        pass
    else:
        for option, parameter in signature.parameters.items():
            value = options.get(option, parameter.default)
            kinds = {type(parameter.default), type(value)}
            if bool in kinds and kinds & {int, float}:
                raise SpecError(
                    "a truth value is no number",
                    place=f"{kind}_options.{option}",
                    value=value,
                    hint=f"by default {parameter.default}",
                )
    with errors_named(f"{name} cannot be built as a {kind}", kind):
        return target(*first, **options)


@dataclass(frozen=True)
class Part:
    """A part of an installed package: the dotted path of the object, and the packages that name it."""

    path: str
    packages: tuple[str, ...]

    @property
    def description(self) -> str:
        """Return the text that `contrasweep list` shows beside the part's name."""
        return f"{self.path}, of {' and '.join(self.packages)}"


@functools.cache
def installed(kind: str) -> Mapping[str, Part]:
    """Return name -> part of the parts of one kind that installed packages bring; no package is imported for it."""
    parts: dict[str, Part] = {}
    for entry in importlib.metadata.entry_points(group=PARTS_GROUP):
        kind_of_part, _, name = entry.name.partition(".")
        if kind_of_part != kind or entry.dist is None:
            continue
        # Metadata beside the code of a checkout do not count as an installation: see SITE_FOLDERS.
        if {*SITE_FOLDERS}.isdisjoint(Path(str(entry.dist.locate_file(""))).parts):
            continue
        package = f"{entry.dist.name} {entry.dist.version}"
        # Where several packages have a part of this name, all of them are named for `path_of`.
        others = parts[name].packages if name in parts else ()
        parts[name] = Part(entry.value, (*others, package))
    return parts


def path_of(kind: str, name: str, place: str = "") -> str:
    """Return the dotted path of an installed part by its name; any other name as it is.

    Raises `SpecError` at `place` where two packages have a part of this name.
    """
    part = installed(kind).get(name)
    if part is not None and len(part.packages) > 1:
        raise SpecError(
            "two packages have a part of this name",
            place=place,
            value=name,
            hint=f"{' and '.join(part.packages)}; name its dotted path",
        )
    return name if part is None else part.path
