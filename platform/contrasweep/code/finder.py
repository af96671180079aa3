"""Finds the source of a module, without running it, and the installed distribution that it belongs to."""

import json
import pkgutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path

SITE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Module:
    """A module as it lies on the path to import from.

    `file` is empty for a namespace package. `folders` are where the modules of a package lie, () for a plain module.
    """

    name: str
    file: str
    folders: tuple[str, ...] = ()
    loader: object = None

    def parts(self) -> list[str]:
        """Return the modules of a package, without those in its subfolders."""
        return sorted(f"{self.name}.{part.name}" for part in pkgutil.iter_modules(self.folders))

    @property
    def is_source(self) -> bool:
        """Whether its file is Python text."""
        return bool(self.file) and not self.file.endswith((*EXTENSION_SUFFIXES, *BYTECODE_SUFFIXES))

    def read(self) -> bytes:
        """Return the bytes of its file; OSError if it cannot be read."""
        get_data = getattr(self.loader, "get_data", None)  # in a zip on the path, say
        return bytes(get_data(self.file)) if get_data else Path(self.file).read_bytes()


class Finder:
    """Finds modules as `import` would, each once. A new one is made for each walk, so that it sees new files."""

    def __init__(self) -> None:
        PathFinder.invalidate_caches()
        self.known: dict[str, Module | None] = {}
        self.standard: dict[str, bool] = {}

    def find(self, name: str) -> Module | None:
        """The module of this dotted name; None where there is none (it may be an attribute of one)."""
        if name not in self.known:
            self.known[name] = self._find(name)
        return self.known[name]

    def is_standard(self, name: str) -> bool:
        """Whether `import name` gives a top-level module of Python's own, not the user's of that name."""
        if name not in self.standard:
            self.standard[name] = name in sys.builtin_module_names or (
                name in sys.stdlib_module_names and self._is_pythons(name)
            )
        return self.standard[name]

    def _is_pythons(self, name: str) -> bool:
        loaded = sys.modules.get(name)
        if loaded is not None:
            return in_standard_library(getattr(loaded, "__file__", None) or "")
        source = self.find(name)
        return source is None or in_standard_library(source.file)

    def _find(self, name: str) -> Module | None:
        parent, _, last = name.rpartition(".")
        if not all(part.isidentifier() for part in name.split(".")):
            return None
        folders: Sequence[str] | None = None
        if parent:
            package = self.find(parent)
            if package is None or not package.folders:
                return None
            folders = package.folders
        # By its last part: a namespace package inside another asks for its parent in sys.modules otherwise.
        spec = PathFinder.find_spec(last, folders) or _other_finders(name, folders)
        return _of_spec(name, spec) if spec else _of_imported(name)


def in_standard_library(file: str) -> bool:
    """Whether a module's file is the standard library's; one without a file is built in."""
    return not file or (file.startswith(_standard_folders()) and not in_site_folder(file))


def in_site_folder(file: str) -> bool:
    """Whether a file lies where packages are installed."""
    return any(part in SITE_FOLDERS for part in Path(file).parts)


@cache
def _standard_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(
        {
            f"{folder}/"
            for name in ("stdlib", "platstdlib")
            for folder in (paths[name], str(Path(paths[name]).resolve()))
        }
    )


def _other_finders(name: str, folders: Sequence[str] | None) -> ModuleSpec | None:
    """Return a module as other finders have it: an editable install may bring one."""
    for finder in sys.meta_path:
        kind = finder if isinstance(finder, type) else type(finder)
        if kind.__module__.partition(".")[0] in ("_frozen_importlib", "_frozen_importlib_external", "_pytest"):
            continue
        try:
            spec: ModuleSpec | None = finder.find_spec(name, folders)
        except Exception:  # someone else's finder
            continue
        if spec is not None:
            return spec
    return None


def _of_spec(name: str, spec: ModuleSpec) -> Module | None:
    folders = tuple(spec.submodule_search_locations or ())
    file = spec.origin if spec.has_location and spec.origin else ""
    return Module(name, file, folders, spec.loader) if file or folders else None


def _of_imported(name: str) -> Module | None:
    """Return a module that this process has imported in another way, such as by its file."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None or not file:
        return None
    return Module(name, file, tuple(getattr(module, "__path__", ())), None)


@cache
def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution; empty where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def distribution_of(package: str, site_folder: str) -> str | None:
    """Return the distribution whose version identifies `package`, a package or module in `site_folder`.

    None where none does: its files were put there by hand, or it was installed from a folder (`pip install .`), whose
    version stays the same while its code changes.
    """
    folder = Path(site_folder)
    own_name = package.partition(".")[0].replace("_", "-").lower()
    infos = sorted(
        (p for p in folder.glob("*-info") if p.suffix in (".dist-info", ".egg-info")),
        key=lambda p: p.name.split("-")[0].replace("_", "-").lower() != own_name,  # the likely one first
    )
    for info in infos:
        if _lists(info, package):
            return None if _from_a_folder(info) else _name(info)
    return None


def site_folder_of(file: str) -> str:
    """Return the folder of installed packages that holds a file."""
    return str(next(parent for parent in Path(file).parents if parent.name in SITE_FOLDERS))


def _lists(info: Path, package: str) -> bool:
    name, top = package.replace(".", "/").encode(), package.partition(".")[0].encode()
    for listing, marks in (("RECORD", (b"\n%b/" % name, b"\n%b." % name)), ("top_level.txt", (b"\n%b\n" % top,))):
        try:
            text = b"\n" + (info / listing).read_bytes().replace(b"\r\n", b"\n") + b"\n"
        except OSError:
            continue
        return any(mark in text for mark in marks)
    return False


def _from_a_folder(info: Path) -> bool:
    try:
        return "dir_info" in json.loads((info / "direct_url.json").read_bytes())
    except (OSError, ValueError):
        return False


def _name(info: Path) -> str:
    return str(metadata.PathDistribution(info).metadata["Name"])
