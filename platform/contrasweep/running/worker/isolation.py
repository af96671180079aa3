"""A trial never changes the result of another, though one process trains many, one after the other.

What a process has only one of is put back before each trial, and its random states are set by the trial's id. What a
trial leaves behind that cannot be put back is said, and its process takes no further trial. Knows nothing of Ray, and
imports no library for this: one that a trial is the first to import is looked at as its import ends.
"""

import contextlib
import decimal
import functools
import gc
import locale
import logging
import multiprocessing
import operator
import os
import pickle
import random
import signal
import sys
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from contrasweep.cluster.usage import children
from contrasweep.code.version import in_site_folder, in_standard_library

GRACE_S = 2.0
"""Seconds that threads and processes of a trial have to end after it."""
DIGEST_BYTES = 2**20
"""Of a larger value in a module, only another object under its name is noticed."""
LIBRARIES = ("builtins", "time", "random", "os", "sys", "math", "numpy", "numpy.random")
TORCH = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init")
HELPERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "compile_worker",
    "loky",
)
"""Words in the commands of processes that libraries keep for later use."""
LOGGERS = "the loggers"
ATOMS = (int, float, str, bytes, bool, type(None), complex)
SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


Values = dict[str, Any]
"""By the name of a state, a logger or an attribute: its value."""


class State(NamedTuple):
    """A global state of the process, with the functions that read and set it; messages have its `name`.

    It is read or set only once `library` has been imported. "sys" stands for none.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    library: str = "sys"


def _calls(name: str, library: str, read: str, write: str) -> State:
    """Return the state that two functions of a library, `read` and `write` by their names, get and set."""
    return State(
        name,
        lambda: getattr(sys.modules[library], read)(),
        lambda v: getattr(sys.modules[library], write)(v),
        library,
    )


def _attributes(name: str, library: str, *paths: str) -> State:
    """Return the state that attributes of a library are together, each by its dotted path below the library."""

    def holder(path: str) -> Any:
        """Return the object that has the last part of `path` as an attribute."""
        return functools.reduce(getattr, path.split(".")[:-1], sys.modules[library])

    def write(values: Iterable[Any]) -> None:
        for path, value in zip(paths, values, strict=True):
            setattr(holder(path), path.rpartition(".")[2], value)

    return State(
        name,
        lambda: [getattr(holder(path), path.rpartition(".")[2]) for path in paths],
        write,
        library,
    )


def _set_environment(value: Mapping[str, str]) -> None:
    for name in os.environ.keys() - value.keys():
        del os.environ[name]
    os.environ.update({name: text for name, text in value.items() if os.environ.get(name) != text})


def _umask() -> int:
    """Return the umask, which can be read only by setting another one for an instant."""
    now = os.umask(0o077)
    os.umask(now)
    return now


def _set_handlers(value: Mapping[int, Any]) -> None:
    for number, handler in value.items():
        # None: it was not set from Python
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _set_gc(value: tuple[bool, tuple[int, int, int]]) -> None:
    (gc.enable if value[0] else gc.disable)()
    gc.set_threshold(*value[1])


NEW_LOGGER: tuple[Any, ...] = (0, True, False, [], [])
"""Level, propagate, disabled, handlers and filters of a logger as Python makes it."""


def _loggers() -> Values:
    """Return the values of each logger that are not those of `NEW_LOGGER`, by its name; "root" for the topmost."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    read = {
        logger.name: (
            logger.level,
            logger.propagate,
            logger.disabled,
            logger.handlers[:],
            logger.filters[:],
        )
        for logger in loggers
        if isinstance(logger, logging.Logger)
    }
    return {name: values for name, values in read.items() if values != NEW_LOGGER}


def _set_loggers(value: Values) -> None:
    """Put back level, handlers and filters of each logger; one that is not in `value` gets Python's defaults."""
    for name in {*_loggers(), *value}:
        logger = logging.root if name == "root" else logging.getLogger(name)
        level, logger.propagate, logger.disabled, handlers, filters = value.get(name, NEW_LOGGER)
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.filters[:] = filters


def _matmul_precision() -> str:
    """Return torch's precision of float32 products; "mixed" where torch refuses to tell.

    It refuses once the precision was set by its newer names, which are states of their own (`PRECISIONS`).
    """
    with contextlib.suppress(RuntimeError):
        return str(sys.modules["torch"].get_float32_matmul_precision())
    return "mixed"


def _set_device(device: Any) -> None:
    sys.modules["torch"].set_default_device(None if device.type == "cpu" else device)


def _folder() -> str:
    """Return the working directory; "" where it was removed."""
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return ""


PRECISIONS = (
    "",
    "cuda.matmul.",
    "cudnn.conv.",
    "cudnn.rnn.",
    "mkldnn.matmul.",
    "mkldnn.conv.",
    "mkldnn.rnn.",
)
STATES = (
    State("os.environ", lambda: dict(os.environ), _set_environment),
    _attributes("the standard streams", "sys", "stdin", "stdout", "stderr"),
    State("the umask", _umask, os.umask),
    State(
        "the handlers of signals", lambda: {n: signal.getsignal(n) for n in SIGNALS}, _set_handlers
    ),
    State(
        "sys.path",
        lambda: list(sys.path),
        lambda value: operator.setitem(sys.path, slice(None), value),
    ),
    _calls("the recursion limit", "sys", "getrecursionlimit", "setrecursionlimit"),
    State("the garbage collector", lambda: (gc.isenabled(), gc.get_threshold()), _set_gc),
    State(LOGGERS, _loggers, _set_loggers),
    State("logging.disable", lambda: logging.root.manager.disable, logging.disable),
    State(
        "the locale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda value: locale.setlocale(locale.LC_ALL, value),
    ),
    State(
        "decimal's context",
        lambda: decimal.getcontext().__reduce__()[1],  # type: ignore[index]
        lambda value: decimal.setcontext(decimal.Context(*value)),
    ),
    _calls("the timeout of sockets", "socket", "getdefaulttimeout", "setdefaulttimeout"),
    State(
        "multiprocessing's start method",
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda value: multiprocessing.set_start_method(value, force=True),
    ),
    State("numpy's handling of errors", np.geterr, lambda value: np.seterr(**value)),
    State("numpy's print options", np.get_printoptions, lambda value: np.set_printoptions(**value)),
    _calls("the default dtype of torch", "torch", "get_default_dtype", "set_default_dtype"),
    State(
        "the default device of torch",
        lambda: sys.modules["torch"].get_default_device(),
        _set_device,
        "torch",
    ),
    _calls("torch's grad mode", "torch", "is_grad_enabled", "set_grad_enabled"),
    _calls("torch's anomaly mode", "torch", "is_anomaly_enabled", "set_anomaly_enabled"),
    _calls(
        "torch's determinism",
        "torch",
        "get_deterministic_debug_mode",
        "set_deterministic_debug_mode",
    ),
    _attributes(
        "torch's deterministic memory", "torch", "utils.deterministic.fill_uninitialized_memory"
    ),
    _attributes(
        "cuDNN's flags",
        "torch",
        *(f"backends.cudnn.{n}" for n in ("enabled", "benchmark", "deterministic")),
    ),
    State(
        "torch's matmul precision",
        _matmul_precision,
        lambda value: value == "mixed" or sys.modules["torch"].set_float32_matmul_precision(value),
        "torch",
    ),
    _attributes(
        "torch's float32 precision", "torch", *(f"backends.{of}fp32_precision" for of in PRECISIONS)
    ),
    State(
        "torch's handling of denormals",  # which torch sets and does not tell
        lambda: float("5e-324") * 1.0 == 0.0,
        lambda value: sys.modules["torch"].set_flush_denormal(value),
        "torch",
    ),
    _calls("torch's threads", "torch", "get_num_threads", "set_num_threads"),
    # It can be set once at most.
    _calls(
        "torch's interop threads", "torch", "get_num_interop_threads", "set_num_interop_threads"
    ),
    State(
        "matplotlib's rcParams",
        # rcParams' own access would choose a backend.
        lambda: dict(dict.items(sys.modules["matplotlib"].rcParams)),
        lambda value: dict.update(sys.modules["matplotlib"].rcParams, value),
        "matplotlib",
    ),
)
FOLDER = State("the working directory", _folder, os.chdir)
"""Each trial is given one by Ray Tune; put back is what the import of its trainable chose."""


class Isolation:
    """Keeps the trials of one process apart: `begin` before each trial, `end` after it.

    Each trial finds the process as it was when this object was made.
    """

    def __init__(self) -> None:
        self._reference = _read()  # the states before any trial
        # by a trainable's module, the states that its import changed
        self._imports: dict[str, Values] = {}
        self._set_by_import = ""  # the first state that any of these imports has changed
        self._expected: Values = {}  # the states that the present trial began with; empty before the first one
        self._own: dict[str, Values] = {}  # by the user's module, what is in it: see `_contents`
        self._installed: dict[str, Values] = {}  # by a library's module or class, its attributes
        self._seen: set[str] = set()  # modules that were there when the present trial began
        self._threads: set[threading.Thread] = set()  # the user's threads at that time
        self._children: set[int] = set()  # the process ids of children at that time
        self._seed = 0  # of the present trial
        sys.meta_path.insert(0, _Importing({"torch", "matplotlib"}, self._imported))  # type: ignore[arg-type]
        _watch_threads()

    def begin(
        self, trial_id: str, trainable: str, load: Callable[[], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """Put the process into the state that each trial of this module finds, and return the trainable from `load`.

        That is the state before the first trial, with what the import of the trainable's module changes. `trainable`
        is its dotted path. Python, NumPy and torch are seeded by the trial's id, a hexadecimal number.
        """
        _write(self._reference)
        module = trainable.partition(":")[0]
        # The import itself may change states. What it changes is noted, because it runs once and counts for each trial.
        if module not in self._imports:
            folder = FOLDER.read()
            self._set_seed(0)  # a module that draws numbers draws the same ones in every process
            function = load()
            now = _read()
            # Loggers that an import has made stay: they make no difference to a result.
            self._reference[LOGGERS] = now[LOGGERS]
            self._imports[module] = {name: now[name] for name in _changed(self._reference, now)}
            if FOLDER.read() != folder:
                self._imports[module][FOLDER.name] = FOLDER.read()
            self._set_by_import = self._set_by_import or next(iter(self._imports[module]), "")
        else:
            function = load()
        self._expected = self._reference | self._imports[module]
        _write(self._expected)
        if FOLDER.name in self._expected:
            FOLDER.write(self._expected[FOLDER.name])
        self._set_seed(int(trial_id, 16))
        # What `end` compares with: modules, threads and processes as the trial finds them.
        for name in sys.modules.keys() - self._seen:
            if _is_users(name):
                self._own[name] = _contents(sys.modules[name])
        self._seen = set(sys.modules)
        self._installed = {name: dict(content) for name, content in _library_contents()}
        self._threads = set(_of_users)
        self._children = set(children(os.getpid()))
        return function

    def end(self, following: str = "") -> str:
        """Put back what can be, and say what cannot: why this process must not train the trainable `following`.

        `following` is a dotted path. "" where it may, and before the first trial. Otherwise a predicate such as
        `left a thread behind`, of the trial that ended.
        """
        if not self._expected:
            return ""
        _write(self._expected)
        gone = _changed(self._expected, _read())
        rest = (
            self._left()
            or (f"changed {gone[0]} for good" if gone else "")
            or self._changed_modules()
        )
        _write(self._reference)
        if not rest and self._set_by_import and following.partition(":")[0] not in self._imports:
            # A module that both trainables import may have made this change. It is imported already, so it would not
            # make it again for `following`, as it does in a fresh process.
            return f"changed {self._set_by_import} by an import; other arms must start without this change"
        return rest

    def _left(self) -> str:
        """Return what the trial closed, or that it left threads or processes behind; "" where nothing is left.

        These have `GRACE_S` seconds to end. Those that were there before the trial do not count.
        """
        until = time.monotonic() + GRACE_S
        for attempt in range(1000):  # more turns than there is time for
            threads = {thread for thread in set(_of_users) - self._threads if thread.is_alive()}
            children_left = {
                child
                for child in {*children(os.getpid())} - self._children
                if not _is_helper(child)
            }
            if not (threads or children_left) or time.monotonic() > until:
                break
            # Iterators of data loaders that refer to each other hold workers until they are collected.
            if not attempt:
                gc.collect()
            time.sleep(0.01)
        if any(getattr(stream, "closed", False) for stream in (sys.stdout, sys.stderr)):
            return "closed a standard stream"
        if threads:
            return "left a thread behind"
        if children_left:
            return "left a process behind"
        return ""

    def _changed_modules(self) -> str:
        """Return what the trial patched in a library or changed in a module of the user's own; "" if nothing.

        Such as `changed cache in the module mythesis.data`.
        """
        for name, now in _library_contents():
            before = self._installed.get(name)
            attribute = "" if before is None else _patched(name, before, now)
            if attribute:
                return f"changed {name}.{attribute}"
        for name, before in self._own.items():
            contents = _contents(sys.modules[name]) if name in sys.modules else {}
            for attribute in before | contents:
                pair = before.get(attribute), contents.get(attribute)
                # None: the trial has added or removed it.
                if None in pair or not _same(*pair):
                    return f"changed {attribute} in the module {name}"
        return ""

    def _set_seed(self, seed: int) -> None:
        """Seed Python, NumPy and, where it is imported, torch for the next trial."""
        self._seed = seed
        random.seed(seed)
        # NumPy takes words of 32 bits. Both generators are of one kind: the 1 gives other numbers than `random` has.
        np.random.seed([seed & 0xFFFFFFFF, seed >> 32, 1])
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)

    def _imported(self, library: str) -> None:
        """Take the state of a library that has just been imported as the state that each later trial finds."""
        self._reference |= _read(library)
        self._expected |= _read(library)
        if library == "torch":
            sys.modules["torch"].manual_seed(self._seed)


def _read(library: str = "") -> Values:
    """Return all states of the imported libraries, or of one library."""
    return {
        s.name: s.read() for s in STATES if s.library in sys.modules and library in ("", s.library)
    }


def _changed(before: Values, now: Values) -> list[str]:
    return [name for name, value in now.items() if name in before and before[name] != value]


def _write(expected: Values) -> None:
    """Put back the process's global states that differ from `expected`; states that it lacks stay.

    Handlers of signals can be set by the main thread alone, so another one leaves them.
    """
    main = threading.current_thread() is threading.main_thread()
    for state in STATES:
        is_usable = (
            state.library in sys.modules
            and state.name in expected
            and (main or state.write is not _set_handlers)
        )
        if is_usable and state.read() != expected[state.name]:
            with contextlib.suppress(Exception):  # a state that cannot be put back is found changed
                state.write(expected[state.name])


class _Importing:
    """A finder of modules that calls `say` when a module in `names` has been imported."""

    def __init__(self, names: set[str], say: Callable[[str], None]) -> None:
        self.names = names
        self.say = say

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what the other finders return, with a loader that calls `say` after the import.

        None where they find nothing.
        """
        if name not in self.names:
            return None
        others = (
            finder.find_spec(name, path, target)
            for finder in sys.meta_path
            if not isinstance(finder, _Importing)
        )
        spec = next((spec for spec in others if spec is not None), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_say(module: ModuleType) -> None:
                run(module)
                self.say(name)

            spec.loader.exec_module = run_and_say  # type: ignore[method-assign]
        return spec


_of_users: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@functools.cache
def _watch_threads() -> None:
    """Note each thread that the user's code starts from now on; threads of libraries are not noted."""
    start = threading.Thread.start

    @functools.wraps(start)
    def noting(thread: threading.Thread) -> None:
        if _called_by_users():
            _of_users.add(thread)
        start(thread)

    threading.Thread.start = noting  # type: ignore[method-assign, assignment]


def _called_by_users() -> bool:
    """Whether the innermost caller that is no part of Python is code of the user."""
    frame: Any = sys._getframe(2)  # beyond this function and the one that asks
    while frame is not None and _owner(frame.f_code.co_filename) == "python":
        frame = frame.f_back
    return frame is not None and _owner(frame.f_code.co_filename) == "user"


@functools.cache
def _owner(file: str) -> str:
    """Whose a source file is: `python`, `library` or `user`."""
    if in_standard_library(file) or file.startswith("<frozen"):
        return "python"
    platform = Path(sys.modules["contrasweep"].__file__ or "").parent
    return "library" if in_site_folder(file) or file.startswith(f"{platform}/") else "user"


def _is_users(name: str) -> bool:
    """Whether an imported module is the user's own, by the file of its topmost package.

    A package without a file, a namespace, leaves it to the module's own. The script that runs is none of them.
    """
    root = name.partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None) or getattr(
        sys.modules.get(name), "__file__", None
    )
    return bool(file) and root not in ("__main__", "__mp_main__") and _owner(str(file)) == "user"


def _is_helper(child: int) -> bool:
    """Whether the child of this process id is one that a library keeps (`HELPERS`), or has ended."""
    process = Path(f"/proc/{child}")
    with contextlib.suppress(OSError):
        command = (process / "cmdline").read_bytes().decode(errors="replace")
        # The state stands after the name in brackets; Z is a zombie, which has ended and was not waited for.
        ended = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return ended or any(word in command for word in HELPERS)
    return True


def _library_contents() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield names and attributes of the modules and classes that users patch."""
    for name in (*LIBRARIES, *TORCH):
        if name in sys.modules:
            yield name, vars(sys.modules[name])
    if "torch.nn" in sys.modules and "torch" in sys.modules:
        yield "torch.Tensor", vars(sys.modules["torch"].Tensor)
        for name, value in list(vars(sys.modules["torch.nn"]).items()):
            if isinstance(value, type):
                yield f"torch.nn.{name}", vars(value)


def _patched(library: str, before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return an attribute of a library that was replaced, removed, or added by other code; "" where there is none.

    `before` and `now` are the library's attributes. Counted are replaced functions and classes, and of NumPy all public
    names; not what libraries do by themselves: add private names, own ones or modules.
    """
    # The usual case: the same objects under the same names.
    if len(before) == len(now) and all(map(operator.is_, before.values(), now.values())):
        return ""
    root = library.partition(".")[0]
    for name, value in now.items():
        if name not in before:
            # The library's own, by the module in which the value was defined.
            theirs = str(getattr(value, "__module__", None) or "").partition(".")[0] == root
            if not (
                theirs or isinstance(value, ModuleType) or name.startswith("_") or root == "sys"
            ):
                return name
        elif value is not before[name] and (
            callable(before[name]) or (root == "numpy" and not name.startswith("_"))
        ):
            # The file of the code that replaces it: torch's compiler wraps some of torch itself.
            by = getattr(getattr(value, "__code__", None), "co_filename", "")
            if "/torch/_" not in by:
                return name
    return next((name for name in before if name not in now and root != "sys"), "")


def _contents(module: ModuleType) -> Values:
    """Return the values in a module and in its own classes, each with a digest of its mutable content.

    By name, such as `cache` and `Model.cache`. Imported modules and names with two underscores are left out.
    """
    contents = {}
    # A deprecated attribute may warn as it is looked at.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in list(vars(module).items()):
            if not isinstance(value, ModuleType) and not name.startswith("__"):
                contents[name] = value, _digest(value, module)
                if isinstance(value, type) and value.__module__ == module.__name__:
                    for attribute, inner in list(vars(value).items()):
                        # An Enum of flags adds combinations here as they are asked for, which changes nothing.
                        if attribute == "_value2member_map_":
                            continue
                        if not attribute.startswith("__") or isinstance(inner, FunctionType):
                            contents[f"{name}.{attribute}"] = inner, _digest(inner, module)
    return contents


def _same(before: Any, now: Any) -> bool:
    """Whether a value and its digest, as `_contents` has them, are as before: the same object, or an equal atom."""
    same = before[0] is now[0] or (
        type(now[0]) in ATOMS and type(before[0]) is type(now[0]) and before[0] == now[0]
    )
    return same and before[1] == now[1]


def _digest(value: Any, module: ModuleType) -> int | None:
    """Return a digest of the mutable content of a value in a module; None where it has none or it cannot be read."""
    # Of a function: its mutable defaults, and its attributes.
    if isinstance(value, FunctionType):
        # One of another module is left out: the user's Enums hold Enum's methods, to which torch adds marks.
        if value.__module__ != module.__name__:
            return None
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        value = [default for default in defaults if type(default) not in ATOMS], value.__dict__
        if not any(value):
            return None
    elif type(value) in ATOMS or isinstance(value, type):
        return None
    sum_ = _Sum()
    try:
        _Pickler(sum_, protocol=5).dump(value)
    except Exception:  # it is too large, or cannot be pickled
        return None
    return sum_.value


class _Sum:
    """A file that keeps a checksum of what is written."""

    def __init__(self) -> None:
        self.value = self.size = 0

    def write(self, data: Any) -> int:
        """Add more data and return its bytes; `OverflowError`, which ends the pickling, beyond `DIGEST_BYTES`."""
        size = memoryview(data).nbytes
        self.size += size
        if self.size > DIGEST_BYTES:
            raise OverflowError
        self.value = zlib.crc32(data, self.value)
        return size


class _Pickler(pickle.Pickler):
    """Writes a value so that its digest tells whether it has changed, without the content of large arrays."""

    def reducer_override(self, value: Any) -> Any:
        """Pickle a tensor as its version number and a large array as its identity, so that neither is copied.

        Torch counts the version up with each change in place. All else is pickled as usual (NotImplemented).
        """
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return tuple, ((id(value), value._version),)
        if isinstance(value, np.ndarray) and value.nbytes > DIGEST_BYTES:
            return tuple, ((id(value),),)
        return NotImplemented
