"""The code of a trial: a digest of the user's modules that it reaches, found by their imports without running them.

What counts how:
- a module of the user's (in a checkout, an editable install, on PYTHONPATH): by its normal form (see `normal_form`);
- an extension module of the user's: by the bytes of its file;
- what is installed (site-packages) or comes with Python: by the distribution's version, which is kept beside the digest
  and is no part of it. Neither are the distributions' names: what is imported stands in the modules, and an optional
  package that is installed later makes no other code;
- the platform (`contrasweep`, but for its methods): by its version, in a checkout too;
- files that modules read (YAML, tables) and modules whose names are computed at run time: not at all.
"""

import gc
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contrasweep.code.checkout import Checkout, checkout_of
from contrasweep.code.entry_points import FILE, dotted_paths, module_of
from contrasweep.code.finder import Finder, Module, distribution_of, in_site_folder, installed_version, site_folder_of
from contrasweep.code.interactive import bound_values, script_of, source_of
from contrasweep.code.normal_form import Import, NormalForm, normal_form, short_digest
from contrasweep.config import Config
from contrasweep.imports import project_file

METHODS = ("trainables", "search_spaces")
"""Packages of `contrasweep` whose modules count as the user's do. All others are the platform."""


@dataclass(frozen=True)
class Source:
    """The source of one module: its name, the file in a snapshot, its bytes and the digest of their normal form.

    `path` is where it lies here; empty where it was put together from a notebook.
    """

    module: str
    file: str
    data: bytes
    digest: str
    path: str = ""


@dataclass(frozen=True)
class CodeVersion:
    """Which code a trial ran: digests of the user's modules, and versions of the distributions that they import.

    `commit` is that of the checkout that holds the trainable's module; `dirty`: a module differs from it, or it lacks
    one.
    """

    digest: str
    modules: Mapping[str, str] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    dirty: bool = False


@dataclass(frozen=True)
class Code:
    """The code of a trainable with its sources, by module."""

    version: CodeVersion
    sources: Mapping[str, Source]


def code_of(trainable: str | Callable[..., Any], paths: Iterable[str] = ()) -> Code:
    """Return the code that `trainable` (a dotted path or the function) and the dotted `paths` of its config reach.

    Modules are found, read and parsed, never run. Modules that were read are kept for the process, by content.
    """
    walk = _Walk()
    with _collection_paused():
        if callable(trainable):
            walk.function(trainable)
        else:
            walk.module(module_of(trainable))
        for path in paths:
            walk.file(path.removeprefix(FILE)) if path.startswith(FILE) else walk.module(module_of(path))
        walk.follow()
    main = trainable.__module__ if callable(trainable) else module_of(trainable)
    return Code(_version(walk, main), dict(sorted(walk.sources.items())))


class CurrentCode:
    """The code that trials would run now, worked out once for each trainable and what their configs name by path."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Keep the trainables that were given as functions, by their dotted path."""
        self.functions = functions
        self._known: dict[tuple[str, ...], Code] = {}

    def of(self, trainable: str, config: Config) -> Code:
        """Return the code of a trial with this trainable and config."""
        key = (trainable, *sorted(set(dotted_paths(config))))
        if key not in self._known:
            self._known[key] = code_of(self.functions.get(trainable, trainable), key[1:])
        return self._known[key]


def differing_modules(modules: Mapping[str, str]) -> list[str]:
    """Return the names of those `modules` (name -> digest) that differ here or cannot be found.

    A notebook's function has no module of its own and travels with the trial: it is not looked at.
    """
    finder = Finder()
    return [
        name
        for name, digest in sorted(modules.items())
        if name != "__main__" and (":" not in name or name.startswith(FILE)) and _digest_here(finder, name) != digest
    ]


def digest_of_module(name: str) -> str:
    """The digest of one module as it would be imported here; empty where there is none."""
    return _digest_here(Finder(), name)


def _digest_here(finder: Finder, name: str) -> str:
    if name.startswith(FILE):
        path = project_file(name.removeprefix(FILE))
        return "" if path is None else _form_of_file(path, path.read_bytes()).digest
    module = finder.find(name)
    try:
        return _form_of(module)[1].digest if module is not None and module.file else ""
    except OSError:
        return ""


def _form_of_file(path: Path, data: bytes) -> NormalForm:
    """Return the normal form of a script; a file that is not Python counts by its bytes."""
    return normal_form(data, is_command=True) if path.suffix == ".py" else NormalForm(short_digest(data))


def _form_of(module: Module) -> tuple[bytes, NormalForm]:
    data = module.read()
    return data, normal_form(data) if module.is_source else NormalForm(short_digest(data))


def digest_of(modules: Mapping[str, str]) -> str:
    """Return the digest of some code from its modules' digests."""
    return short_digest("\n".join(f"{name} {modules[name]}" for name in sorted(modules)).encode())


class _Walk:
    """Follows imports from some modules to all that they reach."""

    def __init__(self) -> None:
        self.finder = Finder()
        self.sources: dict[str, Source] = {}
        self.distributions: dict[str, str] = {}
        self.seen: set[str] = set()
        self.queue: deque[str] = deque()  # packages before what is in them
        self.by_version: set[str] = set()  # packages that an installed distribution holds

    def module(self, name: str) -> None:
        """Follow a module, if there is one of this name, and the packages on the way to it."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            prefix = ".".join(parts[:end])
            if prefix in self.by_version:
                return
            if prefix not in self.seen:
                self.seen.add(prefix)
                self.queue.append(prefix)

    def function(self, function: Callable[..., Any]) -> None:
        """Follow a function into its module, or, where it has no file, into its own source."""
        name = function.__module__
        if (script := script_of(function)) is not None:
            self._text(name, script.read_bytes(), str(script))
        elif name != "__main__" and self.finder.find(name) is not None:
            self.module(name)
        else:
            self._text(name, source_of(function))
            return
        if values := bound_values(function):
            self._text(f"{name}:{function.__qualname__}", values)

    def file(self, name: str) -> None:
        """Follow a file that a command runs, and for a script the modules beside it."""
        path = project_file(name)
        if path is None or f"{FILE}{name}" in self.sources:
            return
        data = path.read_bytes()
        parsed = _form_of_file(path, data)
        self.sources[f"{FILE}{name}"] = Source(f"{FILE}{name}", name.removeprefix("./"), data, parsed.digest, str(path))
        self._imports(parsed, "")
        for imported in parsed.imports:
            beside = Path(name).parent / f"{imported.module.replace('.', '/')}.py"
            if not imported.level and self.finder.find(imported.module) is None:
                self.file(str(beside))

    def follow(self) -> None:
        """Follow imports until nothing new is reached."""
        while self.queue:
            name = self.queue.popleft()
            top = name.partition(".")[0]
            if _is_platform(name):
                self._installed(name, "contrasweep")
            elif top not in self.by_version and not self.finder.is_standard(top):
                module = self.finder.find(name)
                if module is not None and module.file:
                    self._take(module)

    def _take(self, module: Module) -> None:
        if in_site_folder(module.file):
            distribution = distribution_of(module.name, site_folder_of(module.file))
            if distribution is not None:
                self._installed(module.name, distribution)
                return
        try:
            data, parsed = _form_of(module)
        except OSError:
            return
        self.sources[module.name] = Source(module.name, _file_of(module), data, parsed.digest, module.file)
        self._imports(parsed, module.name if module.folders else module.name.rpartition(".")[0])
        if parsed.discovers:
            for part in module.parts():
                self.module(part)

    def _installed(self, package: str, distribution: str) -> None:
        if package != "contrasweep":  # it holds the methods too
            self.by_version.add(package)
        self.distributions[distribution] = installed_version(distribution)

    def _text(self, module: str, data: bytes, path: str = "") -> None:
        """Source that is no module's file."""
        parsed = normal_form(data, is_main=True)
        file = re.sub(r"\W+", "_", module) + ".py"
        self.sources[module] = Source(module, file, data, parsed.digest, path)
        self._imports(parsed, "")

    def _imports(self, parsed: NormalForm, package: str) -> None:
        for imported in parsed.imports:
            name = _absolute(imported, package)
            if not name:
                continue
            self.module(name)
            if imported.name == "*":
                for exported in self._exported(name):
                    self.module(f"{name}.{exported}")
            elif imported.name:
                self.module(f"{name}.{imported.name}")  # a module of the package, or an attribute

    def _exported(self, package: str) -> tuple[str, ...]:
        """Return the names in the package's `__all__`, of which `import *` imports the modules."""
        module = self.finder.find(package)
        if module is None or not (module.folders and module.is_source) or in_site_folder(module.file):
            return ()
        try:
            return normal_form(module.read()).exports
        except OSError:
            return ()


def _is_platform(name: str) -> bool:
    top, *below = name.split(".", 2)
    return top == "contrasweep" and (not below or below[0] not in METHODS)


def _absolute(imported: Import, package: str) -> str:
    """Return the dotted name of the module of a `from` import; empty where a relative import leaves its package."""
    if not imported.level:
        return imported.module
    parts = package.split(".") if package else []
    if imported.level > len(parts):
        return ""
    base = parts[: len(parts) - imported.level + 1]
    return ".".join([*base, imported.module] if imported.module else base)


def _file_of(module: Module) -> str:
    """Return the path of a module in a snapshot: the one that it has below its import folder."""
    parts = module.name.replace(".", "/")
    suffix = "".join(Path(module.file).suffixes[-1:]) or ".py"
    return f"{parts}/__init__{suffix}" if module.folders else f"{parts}{suffix}"


def _version(walk: _Walk, main: str) -> CodeVersion:
    modules = {name: source.digest for name, source in sorted(walk.sources.items())}
    own = walk.sources.get(main) or next((s for n, s in walk.sources.items() if n.startswith(FILE)), None)
    checkout = Checkout()
    if own is not None and own.path:
        files = {source.path: source.data for source in walk.sources.values() if source.path}
        checkout = checkout_of(own.path, files)
    return CodeVersion(
        digest=digest_of(modules),
        modules=modules,
        distributions=dict(sorted(walk.distributions.items())),
        commit=checkout.commit,
        dirty=checkout.dirty,
    )


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Pause garbage collection, which doubles the time to build syntax trees and finds no cycles in them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
