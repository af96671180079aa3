"""The code of a trial: a digest of the user's modules that it reaches, found by their imports without running them.

What counts how:
- a module of the user's (in a checkout, an editable install, on PYTHONPATH): by its text as `ast.unparse` writes it,
  without docstrings. Comments and layout change nothing. Another minor version of Python may write another text;
- an extension module of the user's, a file that is not Python: by its bytes;
- what is installed (site-packages) or comes with Python: by the distribution's version, which is kept beside the digest
  and is no part of it. Neither are the distributions' names: what is imported stands in the modules, and an optional
  package that is installed later makes no other code;
- the platform (`contrasweep`, but for its methods): by its version, in a checkout too;
- of a command: the files that its words name, the scripts and configurations that its Python scripts name, and what its
  `code` names;
- other files that modules read and modules whose names are computed at run time: not at all.

A module counts without what changes no trial: a study that it declares and does not read (all that a study says stands
in the settings of its trials), and the body of `if __name__ == "__main__":`.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import pkgutil
import platform
import pprint
import re
import subprocess
import sys
import sysconfig
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from contrasweep import canonical
from contrasweep.cluster.git import git
from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import SITE_FOLDERS, project_file, project_files


def checkout_of(file: str, files: Mapping[str, bytes]) -> tuple[str, bool]:
    """Return the commit of the checkout that holds `file`, and whether `files` differ from it.

    Of `files` (path -> content) those in the checkout are compared; a file that the commit lacks differs. The commit is
    "" without a checkout, without a commit, or where git does not answer.
    """
    try:
        folder = Path(file).resolve().parent
        top, commit = git(folder, "rev-parse", "--show-toplevel", "HEAD").decode().splitlines()
        # Path below the checkout's top -> content.
        contents = {}
        for path, data in files.items():
            real = Path(path).resolve()
            if real.is_relative_to(top):
                contents[real.relative_to(top).as_posix()] = data
        committed = _blobs(top, commit, frozenset(name.partition("/")[0] for name in contents))
    except (OSError, ValueError, subprocess.SubprocessError):
        return "", False
    return commit, any(
        not _is_blob(committed.get(name, ""), data) for name, data in contents.items()
    )


@functools.lru_cache(maxsize=8)
def _blobs(top: str, commit: str, names: frozenset[str]) -> Mapping[str, str]:
    """Return path -> git's object id for files of a commit in the checkout whose top folder is `top`.

    Only files at or below the `names` are listed, which are names of files and folders in `top`. Since a commit never
    changes, the answer is cached.
    """
    if not names:
        return {}
    listed = git(
        Path(top), "--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", commit, "--", *names
    )
    # An entry is `MODE TYPE OBJECT`, a tabulator, and the path.
    entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
    return {os.fsdecode(path): about.split()[2].decode() for about, _, path in entries}


def _is_blob(object_id: str, data: bytes) -> bool:
    """Whether a file with the content `data` is the one that the commit has; `object_id` is git's id of that one.

    Line ends may differ, as git may have changed them for this system. Git names a file by the hash of `blob SIZE`, a
    zero byte and its content; `object_id` "" is the id of no file.
    """
    algorithm = hashlib.sha256 if len(object_id) == 64 else hashlib.sha1
    texts = (data, data.replace(b"\r\n", b"\n"))
    return any(
        algorithm(b"blob %d\0" % len(text) + text).hexdigest() == object_id for text in texts
    )


PACKAGES = (
    "contrasweep",
    "torch",
    "torchvision",
    "numpy",
    "ray",
    "optuna",
    "mlflow",
    "pyarrow",
    "scipy",
    "scikit-learn",
)


@functools.cache
def versions() -> dict[str, str]:
    """Return name -> version of Python and of those of `PACKAGES` that are installed, and contrasweep's `commit`.

    The commit has `+` at its end where the checkout has uncommitted changes. There is none where contrasweep is
    installed and does not run from its checkout.
    """
    names = {"python": platform.python_version()}
    names |= {package: installed_version(package) for package in PACKAGES}
    names["commit"] = _commit()
    return {name: version for name, version in names.items() if version}


def _commit() -> str:
    """Return the commit of contrasweep's own checkout, with `+` for uncommitted changes; "" where it is installed."""
    folder = Path(__file__).resolve().parent
    try:
        top, commit = git(folder, "rev-parse", "--show-toplevel", "HEAD").decode().splitlines()
        # An installed copy may lie in the checkout of another project.
        if Path(top) / "platform" not in folder.parents:
            return ""
        changes = git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}+" if changes else commit


_DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def module_of(path: str) -> str:
    """Return the module of the dotted path `package.module:name`."""
    return path.partition(":")[0]


FILE_PREFIX = "file:"
"""Before the name of a file that a command runs."""


def dotted_paths(config: Any) -> Iterator[str]:
    """Yield every text `package.module:name` in a config, however deep.

    For a `command` in the config: `file:NAME` for each file of the project that its words name, and
    `MODULE:__main__` for the module after `-m`. For its option `code`: `file:NAME` for each file that is named, and for
    all files of a folder that is named.
    """
    if isinstance(config, str):
        if ":" in config and _DOTTED_PATH.fullmatch(config):
            yield config
    elif isinstance(config, list | tuple):
        for value in config:
            yield from dotted_paths(value)
    elif isinstance(config, Mapping):
        for key, value in config.items():
            if key == "command" and _is_words(value):
                yield from _paths_of_command(value)
            elif key == "command_options" and isinstance(value, Mapping):
                code: Any = value.get("code")
                if _is_words(code):
                    for name in code:
                        for file in project_files(name):
                            yield f"{FILE_PREFIX}{file}"
            else:
                yield from dotted_paths(value)


def _paths_of_command(words: Sequence[str]) -> Iterator[str]:
    """Yield `MODULE:__main__` for the module after `-m`, and `file:NAME` for each file of the project.

    A word with `{` names no file, because it is filled in for each trial.
    """
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m":
            yield f"{word}:__main__"
        elif "{" not in word and project_file(word) is not None:
            yield f"{FILE_PREFIX}{word}"


def _is_words(value: Any) -> bool:
    """Whether a value is a list of texts, as a command's words are."""
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


METHOD_PACKAGES = ("trainables", "search_spaces")
"""Packages of `contrasweep` whose modules count as the user's do. All others are the platform."""
DIGEST_DIGITS = 16
NAMED_SUFFIXES = (".py", ".sh", ".bash", ".yaml", ".yml", ".toml")
"""Ends of the texts in a script that are taken as files that it runs or reads, where there are such files."""
# Names of the classes of studies; kinds of nodes that may have a docstring; kinds of assignments.
_STUDY_CLASSES = {"AblationGrid", "Sweep"}
_WITH_DOCSTRING = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True)
class Source:
    """The source of one module, as it goes into the snapshot of the code.

    `module` is its name, `file` its place in the snapshot, `data` its bytes, and `digest` its digest without comments
    and docstrings. `path` is where the file lies on this machine; "" for code that was put together from a notebook's
    cells.
    """

    module: str
    file: str
    data: bytes
    digest: str
    path: str = ""


@dataclass(frozen=True)
class CodeVersion:
    """Which code a trial ran: digests of the user's modules, and versions of the distributions that they import.

    `modules` maps a module to the digest of its source, `distributions` a distribution to its version. `commit` is that
    of the checkout that holds the trainable's module, "" where there is none. `dirty` says that a module differs from
    the commit or is not in it.
    """

    digest: str
    modules: Mapping[str, str] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    dirty: bool = False


@dataclass(frozen=True)
class Code:
    """The code of a trainable: its digest and versions, and module -> source of all that the digest is made of."""

    version: CodeVersion
    sources: Mapping[str, Source]


def code_of(trainable: str | Callable[..., Any], paths: Iterable[str] = ()) -> Code:
    """Return the code that `trainable` (a dotted path or the function) and the dotted `paths` of its config reach.

    Modules are found, read and parsed, never run. A dotted path `file:NAME` is a file that a command runs. The commit
    of the code is that of the trainable's module; for a command, that of its first file.
    """
    walk = _Walk()
    if callable(trainable):
        walk.function(trainable)
    else:
        walk.module(module_of(trainable))
    for path in paths:
        if path.startswith(FILE_PREFIX):
            walk.file(path.removeprefix(FILE_PREFIX))
        else:
            walk.module(module_of(path))
    walk.follow()
    sources = dict(sorted(walk.sources.items()))
    modules = {name: source.digest for name, source in sources.items()}
    # The source whose checkout is asked for its commit.
    main = sources.get(trainable.__module__ if callable(trainable) else module_of(trainable))
    files = [source for name, source in sources.items() if name.startswith(FILE_PREFIX)]
    if main is None and files:
        main = files[0]
    commit, dirty = "", False
    if main is not None and main.path:
        contents = {source.path: source.data for source in sources.values() if source.path}
        commit, dirty = checkout_of(main.path, contents)
    distributions = dict(sorted(walk.distributions.items()))
    version = CodeVersion(digest_of(modules), modules, distributions, commit, dirty)
    return Code(version, sources)


class CurrentCode:
    """The code that trials would run now, found once for each trainable and each set of dotted paths in a config."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Keep the trainables that were given as functions, by their dotted path."""
        self.functions = functions
        self._known: dict[tuple[str, ...], Code] = {}

    def of(self, trainable: str, config: Config) -> Code:
        """Return the code of a trial with this trainable (a dotted path) and config."""
        key = (trainable, *sorted(set(dotted_paths(config))))
        if key not in self._known:
            self._known[key] = code_of(self.functions.get(trainable, trainable), key[1:])
        return self._known[key]


def digest_of(modules: Mapping[str, str]) -> str:
    """Return the digest of code from the digests of its modules, name -> digest: 16 hexadecimal digits."""
    return short_digest("\n".join(f"{name} {modules[name]}" for name in sorted(modules)).encode())


def short_digest(data: bytes) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of `data`, by which code is named."""
    return hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]


def differing_modules(modules: Mapping[str, str]) -> list[str]:
    """Return the names of those `modules` that have another digest on this machine, or cannot be found here.

    `modules` is name -> digest. Two kinds of names are left out, because they are sent along with the trial: the code
    of a notebook (`__main__`), and the values in a function's closure (`module:function`).
    """
    walk = _Walk()
    differing = []
    for name in sorted(modules):
        travels = name == "__main__" or (":" in name and not name.startswith(FILE_PREFIX))
        if not travels and walk.digest_here(name) != modules[name]:
            differing.append(name)
    return differing


def digest_of_module(name: str) -> str:
    """Return the digest of one module as it would be imported here; "" where it cannot be found."""
    return _Walk().digest_here(name)


class _Walk:
    """Follows imports from some modules to all modules that they reach, without running them.

    A new walk is made each time, so that it sees files that were added since.
    """

    def __init__(self) -> None:
        PathFinder.invalidate_caches()
        self.sources: dict[str, Source] = {}  # by module: what counts by its text
        self.distributions: dict[str, str] = {}  # name -> version: what counts by its version
        self.found: dict[str, _Module | None] = {}  # results of `find`
        self.seen: set[str] = set()  # modules that were queued
        self.queue: deque[str] = deque()  # modules to follow, packages before what is in them
        self.by_version: set[str] = set()  # packages that an installed distribution holds
        # module without a file -> name -> what was defined in it
        self.interactive: dict[str, dict[str, object]] = {}

    def module(self, name: str) -> None:
        """Put a module into the queue, and before it the packages that contain it, which importing it runs.

        Where there is no such module, `follow` passes over the name.
        """
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            prefix = ".".join(parts[:end])
            if prefix not in self.seen:
                self.seen.add(prefix)
                self.queue.append(prefix)

    def function(self, function: Callable[..., Any]) -> None:
        """Add the code of a function: the source that defines it, and its values that no source has, if there are any.

        Such values are in its closure, for example; `_values` lists them.
        """
        lines = self._values(function, {})
        # The values are kept as a source of their own, beside that of the function's module.
        if lines:
            label = f"{function.__module__}:{function.__qualname__}"
            file = re.sub(r"\W+", "_", label) + ".py"
            self._keep(label, file, "\n".join(lines).encode())

    def _values(self, value: Any, seen: dict[int, object]) -> list[str]:
        """Add the source of a function, a class or an object's class; return the values that it holds beside that.

        The values are lines `name = value`: of a function its closure and, where another function made it, its
        defaults; of a method its object; the arguments of a partial; the attributes of an object; and all values in
        these. `seen` has the values that were visited, by their ids, since functions may hold each other.
        """
        seen[id(value)] = value
        parts: Any = {}
        self._source(value if hasattr(value, "__qualname__") else type(value))
        if isinstance(value, functools.partial):
            parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
        elif isinstance(value, MethodType):
            parts = {"function": value.__func__, "self": value.__self__}
        elif isinstance(value, FunctionType):
            parts = inspect.getclosurevars(value).nonlocals
            # The defaults of any other function stand in its module.
            if "<locals>" in value.__qualname__:
                parts = {**parts, "defaults": [value.__defaults__, value.__kwdefaults__]}
        elif isinstance(value, Mapping):
            parts = value
        elif isinstance(value, list | tuple):
            parts = dict(enumerate(value))
        # An object that prints its address: its text does not say what it holds.
        elif " at 0x" in repr(value) and not isinstance(value, type):
            parts = getattr(value, "__dict__", {})
        lines = []
        for name, part in parts.items():
            text, is_plain = _plain(part)
            lines.append(f"{name} = {text!r}")
            if not is_plain and id(part) not in seen:
                lines += self._values(part, seen)
        return lines

    def _source(self, value: Any) -> None:
        """Add the source that defines a function or class: its module, the script that runs, or cells of a notebook."""
        name = getattr(value, "__module__", None) or ""
        script = _script_of(value)
        # A script that runs, a module, or else a notebook; what has no source at all counts by what it runs.
        if script is not None:
            self._keep(name, f"{name}.py", script.read_bytes(), path=str(script))
        elif name != "__main__" and self.find(name) is not None:
            self.module(name)
        elif isinstance(value, FunctionType | type) and name and not self._is_pythons(name):
            functions = self.interactive.setdefault(name, {})
            functions[value.__qualname__] = value
            # What the cells define of all these functions, else the bytecode of each.
            text = "".join(f"{_bytecode(function)!r}\n" for function in functions.values())
            self._keep(name, f"{name}.py", _cells_of(functions) or text.encode())

    def file(self, name: str) -> None:
        """Add a file that a command runs.

        For a script, the modules beside it that it imports are added too, and the files that it names. `name` is its
        path as it stands in the command. Nothing is added where the project has no such file.
        """
        path = project_file(name)
        source_name = f"{FILE_PREFIX}{name}"
        if path is None or source_name in self.sources:
            return
        data = path.read_bytes()
        imports = self._keep(source_name, name.removeprefix("./"), data, path=str(path))
        for imported in imports:
            # `import helpers` of a script means the file beside it, unless the name is found elsewhere.
            neighbour = Path(name).parent / f"{imported.replace('.', '/')}.py"
            if not imported.startswith(".") and self.find(imported) is None:
                self.file(str(neighbour))
        # Texts in a script may name files beside it or in the current folder, such as a config that it reads.
        texts = named_files(data) if path.suffix == ".py" else ()
        for text in texts:
            for folder in (Path(name).parent, Path()):
                for file in project_files(os.path.normpath(folder / text)):
                    self.file(file)

    def follow(self) -> None:
        """Add the source of each module in the queue, and queue what that imports, until the queue is empty."""
        while self.queue:
            name = self.queue.popleft()
            # The platform counts by its version, and is not looked into: all but the packages of methods in it.
            top, _, below = name.partition(".")
            if top == "contrasweep" and below.partition(".")[0] not in METHOD_PACKAGES:
                self.distributions["contrasweep"] = installed_version("contrasweep")
                continue
            # Nothing to follow: Python's own, an installed package's, a namespace without a file, or an attribute.
            module = None if top in self.by_version or self._is_pythons(top) else self.find(name)
            if module is None or not module.file:
                continue
            # An installed package counts by its distribution's version, where it has one.
            sites = [folder for folder in Path(module.file).parents if folder.name in SITE_FOLDERS]
            distribution = _distribution_of(name, str(sites[0])) if sites else None
            if distribution:
                self.by_version.add(name)
                self.distributions[distribution] = installed_version(distribution)
                continue
            try:
                data = module.read()
            except OSError:
                continue
            suffix = Path(module.file).suffix or ".py"
            place = name.replace(".", "/") + ("/__init__" if module.folders else "")
            self._keep(
                name,
                place + suffix,
                data,
                package=name if module.folders else name.rpartition(".")[0],
                path=module.file,
            )
            # A package that lists its own modules probably imports each of them by its name.
            if b"iter_modules" in data or b"walk_packages" in data:
                for part in pkgutil.iter_modules(module.folders):
                    self.module(f"{name}.{part.name}")

    def _keep(
        self, name: str, file: str, data: bytes, *, package: str = "", path: str = ""
    ) -> Sequence[str]:
        """Add a source to `sources`, and queue what it imports; return the imports as they are written.

        `name` is the name of the module, and `file` its place in the snapshot. Relative imports start from `package`
        ("": there are none). `path` is the file on this machine; "" for a source without one, such as a notebook's.
        """
        digest, imports = parsed(data, _kind_of(name, path or file))
        self.sources[name] = Source(name, file, data, digest, path)
        for imported in imports:
            try:
                self.module(importlib.util.resolve_name(imported, package))
            except ImportError:  # a relative import that leaves its package
                continue
        return imports

    def digest_here(self, name: str) -> str:
        """Return the digest of a module, or of the file that a command runs; "" where it cannot be found or read."""
        try:
            if name.startswith(FILE_PREFIX):
                path = project_file(name.removeprefix(FILE_PREFIX))
                if path is None:
                    return ""
                digest, _ = parsed(path.read_bytes(), _kind_of(name, str(path)))
                return digest
            module = self.find(name)
            if module is None or not module.file:
                return ""
            digest, _ = parsed(module.read(), _kind_of(name, module.file))
            return digest
        except OSError:
            return ""

    def find(self, name: str) -> "_Module | None":
        """Return the module with this dotted name; None where there is none: it may be the name of a function."""
        if name not in self.found:
            self.found[name] = self._find(name)
        return self.found[name]

    def _find(self, name: str) -> "_Module | None":
        """Look for a module as Python would import it, without running its package; None where there is none."""
        parent, _, last = name.rpartition(".")
        if not all(part.isidentifier() for part in name.split(".")):
            return None
        folders: Sequence[str] | None = None
        if parent:
            package = self.find(parent)
            if package is None or not package.folders:
                return None
            folders = package.folders
        # Only the last part is looked for, in the folders of the package. By its whole name, a namespace package inside
        # another one would need its parent in sys.modules.
        spec = PathFinder.find_spec(last, folders) or _of_other_finders(name, folders)
        if spec is not None:
            file = spec.origin if spec.has_location and spec.origin else ""
            inside = tuple(spec.submodule_search_locations or ())
            return _Module(file, inside, spec.loader) if file or inside else None
        # This process may have imported it in another way, such as by its file.
        loaded = sys.modules.get(name)
        file = getattr(loaded, "__file__", None) or ""
        return _Module(file, tuple(getattr(loaded, "__path__", ()))) if file else None

    def _is_pythons(self, name: str) -> bool:
        """Whether `import name` gives a module that comes with Python, and not a file of the user's with that name."""
        # A built-in one comes before every file.
        if name in sys.builtin_module_names:
            return True
        if name not in sys.stdlib_module_names:
            return False
        # The user may have a file of this name.
        loaded = sys.modules.get(name)
        if loaded is not None:
            return in_standard_library(getattr(loaded, "__file__", None) or "")
        module = self.find(name)
        return in_standard_library(module.file if module else "")


@dataclass(frozen=True)
class _Module:
    """A module that can be imported here: its `file`, and for a package the `folders` with its modules.

    `file` is "" for a namespace package; `folders` is () for a plain module. `loader` is that of the import system, if
    any.
    """

    file: str
    folders: tuple[str, ...]
    loader: object = None

    def read(self) -> bytes:
        """Return the bytes of its file; OSError if it cannot be read."""
        get_data = getattr(self.loader, "get_data", None)  # in a zip on the path, say
        return bytes(get_data(self.file)) if get_data else Path(self.file).read_bytes()


def _of_other_finders(name: str, folders: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of a module that only another finder knows, such as that of an editable install.

    `folders` are those of its package; None for a top-level name. None is returned where no finder knows the module.
    """
    for finder in sys.meta_path:
        kind = finder if isinstance(finder, type) else type(finder)
        # Python's own finders were asked by `PathFinder`, and that of pytest finds nothing else than they do.
        if kind.__module__.partition(".")[0] in (
            "_frozen_importlib",
            "_frozen_importlib_external",
            "_pytest",
        ):
            continue
        try:
            spec: ModuleSpec | None = finder.find_spec(name, folders)
        except Exception:  # someone else's finder
            continue
        if spec is not None:
            return spec
    return None


def _kind_of(name: str, file: str) -> str:
    """Return the kind of a source, which says how much of its text changes the digest.

    For a "command", a Python file that a command runs, all code counts. For a "module" all but the block `if __name__
    == "__main__":`; for a "script", the running program, also the assignments in that block. For "bytes", a file that
    is not Python, every byte counts.

    `name` is the name of the module, or `file:` and the name of a file that a command runs. `file` is its path.
    """
    if name.startswith(FILE_PREFIX):
        return "command" if file.endswith(".py") else "bytes"
    if file.endswith((*EXTENSION_SUFFIXES, *BYTECODE_SUFFIXES)):
        return "bytes"
    if name == "__main__":
        return "script"
    return "module"


UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What `ast.parse` raises for a text that is not Python; ValueError for null bytes."""


@functools.lru_cache(4096)
def parsed(source: bytes, kind: str = "module") -> tuple[str, tuple[str, ...]]:
    """Return the digest of a source, without the parts that change no trial, and its imports as they are written.

    An import may be relative: `..package.name`. Docstrings, comments and layout change no trial. `kind` (see
    `_kind_of`) says which further parts are left out by `_leave_out`; for a "command" none. For "bytes", and where the
    source is not Python of this version, all bytes count, and there are no imports.
    """
    if kind == "bytes":
        return short_digest(source), ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in the user's strings
            tree = ast.parse(source)
        if kind != "command":
            _leave_out(tree, kind)
        # Docstrings; comments and layout are in no tree.
        for node in ast.walk(tree):
            if (
                isinstance(node, _WITH_DOCSTRING)
                and ast.get_docstring(node, clean=False) is not None
            ):
                node.body = node.body[1:]
        text = ast.unparse(tree).encode("utf-8", "surrogatepass")
    except UNPARSABLE:
        return short_digest(source), ()
    return short_digest(text), tuple(_imports(tree))


@functools.lru_cache(4096)
def named_files(script: bytes) -> tuple[str, ...]:
    """Return the texts in a Python script that may name files, and the folder of its Hydra configuration.

    A text with one of `NAMED_SUFFIXES` may name a file; the value of `config_path=` in any call names the folder. ()
    for a script that is not Python.
    """
    try:
        tree = ast.parse(script)
    except UNPARSABLE:
        return ()
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text.endswith(NAMED_SUFFIXES) and len(text) < 200 and "\n" not in text:
                names.append(text)
        elif isinstance(node, ast.keyword) and node.arg == "config_path":
            folder = node.value
            if isinstance(folder, ast.Constant) and folder.value:
                names.append(str(folder.value))
    return tuple(dict.fromkeys(names))


def _leave_out(tree: ast.Module, kind: str) -> None:
    """Remove from a parsed module what changes no trial: the block that runs it as a script, and studies in it.

    The block is `if __name__ == "__main__":`, which does not run where a "module" is imported. In a "script", which
    does run, the block's assignments stay, because functions of the script may read them. A study is removed because
    all that its trials depend on is in their own configs; it stays where another statement at the top of the module
    reads it.
    """
    body: list[ast.stmt] = []
    for node in tree.body:
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"):
            body.append(node)
        elif kind == "script":
            body += [inner for inner in node.body if isinstance(inner, _ASSIGNMENTS)]
    read = set()
    for statement in body:
        if not _is_study(statement):
            read |= {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
    tree.body = [node for node in body if not _is_study(node) or _names_set(node) & read]


def _is_study(statement: ast.stmt) -> bool:
    """Whether a statement assigns a declared study to a name."""
    return (
        isinstance(statement, ast.Assign | ast.AnnAssign)
        and isinstance(statement.value, ast.Call)
        and ast.unparse(statement.value.func).rpartition(".")[2] in _STUDY_CLASSES
    )


def _names_set(node: ast.AST) -> set[str]:
    """Return the names to which a statement at the top of a module gives a value: `lr = 0.1` gives `lr` one.

    Attributes and items are named as they are written: `train.settings`, `options['lr']`. A function or a class is the
    only name that its definition sets, whatever the code in it sets.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    # The variable of a comprehension is known in the comprehension alone.
    if isinstance(node, ast.comprehension):
        return set()
    targets = (ast.Name, ast.Attribute, ast.Subscript)
    if isinstance(node, targets) and isinstance(node.ctx, ast.Store):
        return {ast.unparse(node)}
    # Any other statement, such as an `if`, sets what its parts set.
    return set[str]().union(*map(_names_set, ast.iter_child_nodes(node)))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield what a module's source imports, anywhere in it and as written: `package.name`, `..package`.

    `from package import name` gives both `package` and `package.name`, since the name may be a module or not. Calls of
    `import_module` and `__import__` with a literal name count too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            for alias in node.names:
                yield f"{base}.{alias.name}" if node.module else f"{base}{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            if function in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _script_of(value: Any) -> Path | None:
    """Return the file of the script that runs as `__main__`, if it defines `value`, a function or class; else None.

    There is none in a notebook: `__main__` has no file, or `value` was defined in a cell and not in that file.
    """
    script = getattr(sys.modules["__main__"], "__file__", None) or ""
    if getattr(value, "__module__", "") != "__main__" or not Path(script).is_file():
        return None
    defined = Path(value.__code__.co_filename if isinstance(value, FunctionType) else script)
    return Path(script).resolve() if defined.is_file() and defined.samefile(script) else None


def _cells_of(functions: Iterable[str]) -> bytes:
    """Return the source of these functions and classes in a notebook, with all definitions that they use.

    Each definition is the one that was run last. Empty outside a notebook.
    """
    defined = _defined_in_cells()
    texts: dict[str, str] = {}
    queue = [part for name in functions for part in name.split(".")]
    # From the functions on, all that is named by what was kept already.
    while queue:
        name = queue.pop()
        if name not in defined or name in texts:
            continue
        texts[name] = ast.unparse(defined[name])
        queue += [part.id for part in ast.walk(defined[name]) if isinstance(part, ast.Name)]
        # Attributes and items that were set, and what was added to it.
        queue += [
            other for other in defined if other.startswith((f"{name}.", f"{name}[", f"{name} "))
        ]
    return "".join(f"{texts[name]}\n" for name in sorted(texts)).encode()


def _defined_in_cells() -> dict[str, ast.stmt]:
    """Return name -> the statement in a notebook's cells that defines the name; empty outside a notebook.

    A statement that only changes a name, such as `options += [1]`, has its own text as the key.
    """
    defined: dict[str, ast.stmt] = {}
    # IPython's texts of all cells in the order in which they were run.
    for cell in getattr(sys.modules.get("__main__"), "_ih", ()):
        try:
            nodes = ast.parse(cell).body
            # Below `%%time`, IPython has the cell as the last argument of a call.
            for call in [node.value for node in nodes if "run_cell_magic" in ast.unparse(node)]:
                nodes += ast.parse(call.args[-1].value).body
        except (SyntaxError, ValueError):
            continue
        # A later cell replaces what an earlier one defined, unless it reads that, as `train = logged(train)` does.
        for node in nodes:
            read: list[str] = []
            if isinstance(node, ast.Assign):
                read = re.findall(r"\w+", ast.unparse(node.value))
            for name in _names_set(node):
                adds = isinstance(node, ast.AugAssign) or name in read
                defined[ast.unparse(node) if adds else name] = node
    return defined


def _bytecode(code: Any) -> Any:
    """Return plain values that say what a function without source runs: bytecode, names and constants.

    A function inside it is one of its constants, and is described in the same way. Other constants become texts. The
    values differ between versions of Python.
    """
    code = getattr(code, "__code__", code)
    if not isinstance(code, CodeType):
        text, _ = _plain(code)
        return text
    return [
        code.co_code.hex(),
        code.co_names,
        code.co_varnames,
        [_bytecode(const) for const in code.co_consts],
    ]


def _plain(value: Any) -> tuple[str, bool]:
    """Return a text for a value, and whether the text is the canonical JSON of the value.

    For a value that JSON cannot hold, the text is its name, or what Python prints without addresses in memory.
    """
    with suppress(SpecError, RecursionError):
        return canonical.dumps(value), True
    if isinstance(value, ModuleType):
        return value.__name__, False
    # `pformat` sorts the items of what is wider than a line. An address would differ in another process.
    printed = re.sub("( at 0x|with id=)[0-9a-fA-F]+", "", pprint.pformat(value, width=1))
    return str(getattr(value, "__qualname__", printed)), False


def in_standard_library(file: str) -> bool:
    """Whether a module's file is the standard library's; one without a file is built in."""
    return not file or (file.startswith(_standard_folders()) and not in_site_folder(file))


def in_site_folder(file: str) -> bool:
    """Whether a file lies where packages are installed."""
    return any(part in SITE_FOLDERS for part in Path(file).parts)


@functools.cache
def _standard_folders() -> tuple[str, ...]:
    """Return the folders of the standard library, also with links resolved, each with a slash at its end."""
    folders = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")}
    return tuple(
        f"{folder}/" for folder in folders | {str(Path(folder).resolve()) for folder in folders}
    )


@functools.cache
def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution; empty where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@functools.cache
def _distribution_of(package: str, site_folder: str) -> str | None:
    """Return the distribution whose version identifies `package`, a package or module in `site_folder`.

    None where none does: its files were put there by hand, or it was installed from a folder (`pip install .`), whose
    version stays the same while its code changes.
    """
    top = package.partition(".")[0].lower()
    infos = [*Path(site_folder).glob("*.dist-info"), *Path(site_folder).glob("*.egg-info")]
    # The likely one first (False sorts before True), since most distributions have the name of their package.
    for info in sorted(infos, key=lambda info: info.name.split("-")[0].lower() != top):
        if _lists(info, package):
            # A distribution that was installed from a folder says so in a file of its own.
            with suppress(OSError, ValueError):
                if "dir_info" in json.loads((info / "direct_url.json").read_bytes()):
                    return None
            return str(metadata.PathDistribution(info).metadata["Name"])
    return None


def _lists(info: Path, package: str) -> bool:
    """Return whether a distribution says that `package`, a package or module, is its own.

    `info` is its metadata folder. It says so in its list of files (`RECORD`) or of top-level names; the first of these
    lists that exists is read.
    """
    top = package.partition(".")[0].encode()
    path = package.replace(".", "/").encode()
    # A wheel lists its files, with lines `package/module.py,...`. Others list the names that can be imported.
    for listing, marks in (
        ("RECORD", (b"\n%b/" % path, b"\n%b." % path)),
        ("top_level.txt", (b"\n%b\n" % top,)),
    ):
        with suppress(OSError):
            text = b"\n" + (info / listing).read_bytes().replace(b"\r\n", b"\n") + b"\n"
            return any(mark in text for mark in marks)
    return False
