"""Keeps a trial from changing the result of another, although one process trains many, one after the other.

Global states of the process are restored before each trial, and random states are seeded by the trial's id. A trial may
leave behind what cannot be restored. Then a message says so, and the process takes no further trial. This module
knows nothing of Ray and imports no library: if a trial is the first to import one, its states are read after the
import.
"""

import contextlib
import decimal
import functools
import gc
import itertools
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
from dataclasses import dataclass
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
"""Largest value whose content is compared; of a larger value only its replacement by another object is noticed."""
LIBRARIES = ("builtins", "time", "random", "os", "sys", "math", "numpy", "numpy.random")
TORCH = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init")
"""Modules of libraries that are checked for patches by a trial; TORCH only once torch is imported."""
HELPER_COMMANDS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "compile_worker",
    "loky",
)
"""Words in the commands of processes that libraries keep for later use."""
LOGGERS = "the loggers"
"""The name of the state that has all loggers."""
ATOMS = (int, float, str, bytes, bool, type(None), complex)
"""Types of values without mutable content."""
SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


Values = dict[str, Any]
"""The name of a state, a logger or an attribute -> its value."""


class State(NamedTuple):
    """A global state of the process that a trial may change, such as the number of threads of a library.

    `read()` returns its value, and `write(value)` sets it. `name` names it in messages. It is read and set only once
    `library` has been imported; "sys", which always is, stands for no library.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    library: str = "sys"


def _state_of_calls(name: str, library: str, read: str, write: str) -> State:
    """Return the state that the function `read` of a library returns, and its function `write` sets.

    For example `torch.get_num_threads` and `torch.set_num_threads`. `name` is the state's name in messages; `read` and
    `write` are names of functions.
    """
    return State(
        name,
        lambda: getattr(sys.modules[library], read)(),
        lambda v: getattr(sys.modules[library], write)(v),
        library,
    )


def _state_of_attributes(name: str, library: str, *paths: str) -> State:
    """Return the state that consists of some attributes of a library: its value is the list of their values.

    `paths` are the dotted paths of the attributes within `library`. `name` is the state's name in messages.
    """

    def read() -> list[Any]:
        """Return the values of the attributes, in the order of `paths`."""
        return [operator.attrgetter(path)(sys.modules[library]) for path in paths]

    def write(values: Iterable[Any]) -> None:
        """Set the attributes, in the order of `paths`."""
        for path, value in zip(paths, values, strict=True):
            # Of `backends.cudnn.enabled`, `backends.cudnn` is the object that has the attribute `enabled`.
            *parents, attribute = path.split(".")
            setattr(functools.reduce(getattr, parents, sys.modules[library]), attribute, value)

    return State(name, read, write, library)


def _set_environment(value: Mapping[str, str]) -> None:
    """Make the environment variables those of `value`."""
    for name in os.environ.keys() - value.keys():
        del os.environ[name]
    os.environ.update({name: text for name, text in value.items() if os.environ.get(name) != text})


def _umask() -> int:
    """Return the umask, which can be read only by setting another one for an instant."""
    now = os.umask(0o077)
    os.umask(now)
    return now


def _set_handlers(value: Mapping[int, Any]) -> None:
    """Set the signal handlers in `value`, number of the signal -> handler."""
    for number, handler in value.items():
        # A handler that was not set from Python is None, and cannot be set again.
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _set_gc(value: tuple[bool, tuple[int, int, int]]) -> None:
    """Set whether the garbage collector is enabled, and its thresholds."""
    enabled, thresholds = value
    if enabled:
        gc.enable()
    else:
        gc.disable()
    gc.set_threshold(*thresholds)


NEW_LOGGER: tuple[Any, ...] = (0, True, False, [], [])
"""Level, propagate, disabled, handlers and filters of a logger as Python makes it."""


def _loggers() -> Values:
    """Return logger name -> its values, in the order of `NEW_LOGGER`, of each logger that differs from `NEW_LOGGER`.

    The topmost logger has the name "root".
    """
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
    """Give each logger its values in `value` (see `_loggers`); a logger that is not there gets `NEW_LOGGER`."""
    for name in {*_loggers(), *value}:
        logger = logging.root if name == "root" else logging.getLogger(name)
        level, logger.propagate, logger.disabled, handlers, filters = value.get(name, NEW_LOGGER)
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.filters[:] = filters


def _matmul_precision() -> str:
    """Return torch's precision for matrix multiplications of float32, such as "high"; "mixed" where torch refuses.

    Torch refuses to tell it once it was set by the newer attributes, which are states of their own (`PRECISIONS`).
    """
    with contextlib.suppress(RuntimeError):
        return str(sys.modules["torch"].get_float32_matmul_precision())
    return "mixed"


def _set_matmul_precision(value: str) -> None:
    """Set what `_matmul_precision` returned; for "mixed" nothing, since the newer attributes are set by themselves."""
    if value != "mixed":
        sys.modules["torch"].set_float32_matmul_precision(value)


def _set_device(device: Any) -> None:
    """Set torch's default device; for the CPU, which torch takes without a setting, the setting is removed."""
    sys.modules["torch"].set_default_device(None if device.type == "cpu" else device)


def _folder() -> str:
    """Return the working directory; "" where it was removed."""
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return ""


# Parts of torch.backends with a precision of their own; "" is torch.backends itself.
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
    _state_of_attributes("the standard streams", "sys", "stdin", "stdout", "stderr"),
    State("the umask", _umask, os.umask),
    State(
        "the handlers of signals", lambda: {n: signal.getsignal(n) for n in SIGNALS}, _set_handlers
    ),
    State(
        "sys.path",
        lambda: list(sys.path),
        lambda value: operator.setitem(sys.path, slice(None), value),
    ),
    _state_of_calls("the recursion limit", "sys", "getrecursionlimit", "setrecursionlimit"),
    State("the garbage collector", lambda: (gc.isenabled(), gc.get_threshold()), _set_gc),
    State(LOGGERS, _loggers, _set_loggers),
    State("logging.disable", lambda: logging.root.manager.disable, logging.disable),
    State(
        "the locale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda value: locale.setlocale(locale.LC_ALL, value),
    ),
    State(
        "decimal's context",  # as the arguments with which pickle would make it again
        lambda: decimal.getcontext().__reduce__()[1],  # type: ignore[index]
        lambda value: decimal.setcontext(decimal.Context(*value)),
    ),
    _state_of_calls("the timeout of sockets", "socket", "getdefaulttimeout", "setdefaulttimeout"),
    State(
        "multiprocessing's start method",
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda value: multiprocessing.set_start_method(value, force=True),
    ),
    State("numpy's handling of errors", np.geterr, lambda value: np.seterr(**value)),
    State("numpy's print options", np.get_printoptions, lambda value: np.set_printoptions(**value)),
    _state_of_calls(
        "the default dtype of torch", "torch", "get_default_dtype", "set_default_dtype"
    ),
    State(
        "the default device of torch",
        lambda: sys.modules["torch"].get_default_device(),
        _set_device,
        "torch",
    ),
    _state_of_calls("torch's grad mode", "torch", "is_grad_enabled", "set_grad_enabled"),
    _state_of_calls("torch's anomaly mode", "torch", "is_anomaly_enabled", "set_anomaly_enabled"),
    _state_of_calls(
        "torch's determinism",
        "torch",
        "get_deterministic_debug_mode",
        "set_deterministic_debug_mode",
    ),
    _state_of_attributes(
        "torch's deterministic memory", "torch", "utils.deterministic.fill_uninitialized_memory"
    ),
    _state_of_attributes(
        "cuDNN's flags",
        "torch",
        *(f"backends.cudnn.{n}" for n in ("enabled", "benchmark", "deterministic")),
    ),
    State(
        "torch's matmul precision",
        _matmul_precision,
        _set_matmul_precision,
        "torch",
    ),
    _state_of_attributes(
        "torch's float32 precision", "torch", *(f"backends.{of}fp32_precision" for of in PRECISIONS)
    ),
    State(
        "torch's handling of denormals",  # which torch can set and not return
        lambda: float("5e-324") * 1.0 == 0.0,
        lambda value: sys.modules["torch"].set_flush_denormal(value),
        "torch",
    ),
    _state_of_calls("torch's threads", "torch", "get_num_threads", "set_num_threads"),
    # This number can be set once at most.
    _state_of_calls(
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
WORKING_DIRECTORY = State("the working directory", _folder, os.chdir)
"""Ray Tune sets one for each trial. Only a directory that the import of the trainable has set is restored."""


class Isolation:
    """Keeps the trials of one process apart: `begin` before each trial, `end` after it.

    Each trial finds the process as it was when this object was made.
    """

    def __init__(self) -> None:
        self._reference = _read_states()  # the states before any trial
        # module of a trainable -> states that its import has changed
        self._imports: dict[str, Values] = {}
        self._changed_by_import = ""  # the first state that any of these imports has changed
        # The present trial: the states that it began with (empty before the first trial), and its seed.
        self._expected: Values = {}
        self._seed = 0
        # What was there when the present trial began.
        self._user_modules: dict[str, Values] = {}  # name -> contents (`_module_contents`)
        self._installed: dict[str, Values] = {}  # modules and classes of libraries -> attributes
        self._seen: set[str] = set()  # names of all modules
        self._threads: set[threading.Thread] = set()  # the user's threads
        self._children: set[int] = set()  # ids of child processes
        sys.meta_path.insert(0, _Importing({"torch", "matplotlib"}, self._imported))  # type: ignore[arg-type]
        _watch_threads()

    def begin(
        self, trial_id: str, trainable: str, load: Callable[[], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """Set the states of the process for a trial, and return the trainable that `load` imports.

        The states are those before the first trial, with the changes that the import of the trainable's module makes.
        Python, NumPy and torch are seeded by the trial's id, a hexadecimal number. `trainable` is a dotted path.
        """
        _write_states(self._reference)
        module = trainable.partition(":")[0]
        # The import of a module may change states. It runs only once, so its changes are noted for later trials. The
        # seed is the same in every process, in case the module draws random numbers.
        if module not in self._imports:
            folder = WORKING_DIRECTORY.read()
            self._set_seed(0)
            function = load()
            now = _read_states()
            # Changes of loggers by an import stay for all trials, because no result depends on them.
            self._reference[LOGGERS] = now[LOGGERS]
            self._imports[module] = {
                name: now[name] for name in _changed_states(self._reference, now)
            }
            if WORKING_DIRECTORY.read() != folder:
                self._imports[module][WORKING_DIRECTORY.name] = WORKING_DIRECTORY.read()
            if not self._changed_by_import:
                self._changed_by_import = next(iter(self._imports[module]), "")
        else:
            function = load()
        # The states with which each trial of this module begins.
        self._expected = self._reference | self._imports[module]
        _write_states(self._expected)
        if WORKING_DIRECTORY.name in self._expected:
            WORKING_DIRECTORY.write(self._expected[WORKING_DIRECTORY.name])
        self._set_seed(int(trial_id, 16))
        # What `end` compares with: modules, threads and processes as the trial finds them.
        for name in sys.modules.keys() - self._seen:
            if _is_user_module(name):
                self._user_modules[name] = _module_contents(sys.modules[name])
        self._seen = set(sys.modules)
        self._installed = {name: dict(content) for name, content in _library_contents()}
        self._threads = set(_user_threads)
        self._children = set(children(os.getpid()))
        return function

    def end(self, following: str = "") -> str:
        """Restore the global states after a trial; return why this process must not train `following` next, or "".

        `following` is the dotted path of the next trial's trainable. The reason says what the trial has done, without a
        subject: `left a thread behind`. Before the first trial the result is "".
        """
        if not self._expected:
            return ""
        # The trial may have removed its working directory. From there Ray Tune cannot change to that of the next trial:
        # it calls os.getcwd() first, which fails.
        if not WORKING_DIRECTORY.read():
            WORKING_DIRECTORY.write("/")
        _write_states(self._expected)
        changed_for_good = _changed_states(self._expected, _read_states())
        reason = self._left_behind()
        if not reason and changed_for_good:
            reason = f"changed {changed_for_good[0]} for good"
        if not reason:
            reason = self._changed_modules()
        _write_states(self._reference)
        # The import of an earlier module has changed a state, and `_reference` is without this change. The module of
        # `following` may import the earlier one too. In a fresh process that would make the change; here the earlier
        # module does not run again.
        if (
            not reason
            and self._changed_by_import
            and following.partition(":")[0] not in self._imports
        ):
            return f"changed {self._changed_by_import} by an import; other arms must start without this change"
        return reason

    def _left_behind(self) -> str:
        """Return what the trial closed or left running, such as `left a thread behind`; "" where it did neither.

        A trial may close standard output or error, or leave threads or processes that do not end within `GRACE_S`
        seconds. Those that were there before the trial do not count.
        """
        deadline = time.monotonic() + GRACE_S
        for turn in itertools.count():
            threads = {thread for thread in set(_user_threads) - self._threads if thread.is_alive()}
            children_left = {
                child
                for child in {*children(os.getpid())} - self._children
                if not _is_helper(child)
            }
            if not (threads or children_left) or time.monotonic() > deadline:
                break
            # Data loaders in reference cycles keep their workers until the garbage collector frees them.
            if turn == 0:
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
        """Return what the trial has changed in a library or in a module of the user; "" where it changed nothing.

        The text lacks its subject, the trial: `changed cache in the module mythesis.data`.
        """
        for name, now in _library_contents():
            before = self._installed.get(name)
            attribute = "" if before is None else _patched(name, before, now)
            if attribute:
                return f"changed {name}.{attribute}"
        for name, before in self._user_modules.items():
            contents = _module_contents(sys.modules[name]) if name in sys.modules else {}
            for attribute in before | contents:
                # None: the trial has added or removed the attribute.
                old, new = before.get(attribute), contents.get(attribute)
                if old is None or new is None or not _same_entry(old, new):
                    return f"changed {attribute} in the module {name}"
        return ""

    def _set_seed(self, seed: int) -> None:
        """Seed Python, NumPy and, where it is imported, torch for the next trial."""
        self._seed = seed
        random.seed(seed)
        # NumPy takes words of 32 bits. Its generator is of the same kind as that of `random`; the 1 makes its numbers
        # differ.
        np.random.seed([seed & 0xFFFFFFFF, seed >> 32, 1])
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)

    def _imported(self, library: str) -> None:
        """Note the states of a library right after its import. `begin` and `end` restore them for later trials.

        They also count as expected for the present trial, and torch is seeded for it.
        """
        self._reference |= _read_states(library)
        self._expected |= _read_states(library)
        if library == "torch":
            sys.modules["torch"].manual_seed(self._seed)


def _read_states(library: str = "") -> Values:
    """Return the values of all states whose libraries are imported; with `library`, of that library alone."""
    return {
        state.name: state.read()
        for state in STATES
        if state.library in sys.modules and library in ("", state.library)
    }


def _changed_states(before: Values, now: Values) -> list[str]:
    """Return the names of the states whose values in `before` and `now` differ.

    A state that is missing in `before` does not count, because its library was not imported then.
    """
    return [name for name, value in now.items() if name in before and before[name] != value]


def _write_states(expected: Values) -> None:
    """Set the global states of the process to the values in `expected`, where they differ.

    States that are missing in `expected` stay as they are. Outside of the main thread signal handlers stay too, because
    only that thread can set them.
    """
    is_main = threading.current_thread() is threading.main_thread()
    for state in STATES:
        is_usable = (
            state.library in sys.modules
            and state.name in expected
            and (is_main or state.write is not _set_handlers)
        )
        if is_usable and state.read() != expected[state.name]:
            # Where a state cannot be set, `Isolation.end` finds that it has changed.
            with contextlib.suppress(Exception):
                state.write(expected[state.name])


@dataclass
class _Importing:
    """An import hook, which stands in `sys.meta_path`.

    It calls `on_import(name)` after the import of each module in `names`.
    """

    names: set[str]
    on_import: Callable[[str], None]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the module's spec from the other finders, with a loader that calls `on_import` after the import.

        None for modules that are not in `names`, and where the other finders find nothing.
        """
        if name not in self.names:
            return None
        spec = None
        for finder in sys.meta_path:
            if spec is None and not isinstance(finder, _Importing):
                spec = finder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_tell(module: ModuleType) -> None:
                """Run the module's code, as its own loader does, then call `on_import`."""
                run(module)
                self.on_import(name)

            spec.loader.exec_module = run_and_tell  # type: ignore[method-assign]
        return spec


_user_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads that the user's code has started."""


@functools.cache
def _watch_threads() -> None:
    """Add each thread that the user's code starts from now on to `_user_threads`; threads of libraries are left out."""
    start = threading.Thread.start

    @functools.wraps(start)
    def noting(thread: threading.Thread) -> None:
        """Start a thread, and add it to `_user_threads` if the user's own code has started it, and not a library."""
        # The innermost caller outside of Python itself.
        frame: Any = sys._getframe(1)
        while frame is not None and _owner(frame.f_code.co_filename) == "python":
            frame = frame.f_back
        if frame is not None and _owner(frame.f_code.co_filename) == "user":
            _user_threads.add(thread)
        start(thread)

    threading.Thread.start = noting  # type: ignore[method-assign, assignment]


@functools.cache
def _owner(file: str) -> str:
    """Return to what the code of a source file belongs: `python`, `library` or `user`."""
    if in_standard_library(file) or file.startswith("<frozen"):
        return "python"
    platform = Path(sys.modules["contrasweep"].__file__ or "").parent
    return "library" if in_site_folder(file) or file.startswith(f"{platform}/") else "user"


def _is_user_module(name: str) -> bool:
    """Return whether an imported module is the user's own.

    The file of its topmost package decides, or the module's own file where that package is a namespace without a file.
    The running script is not counted.
    """
    root = name.partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None) or getattr(
        sys.modules.get(name), "__file__", None
    )
    return bool(file) and root not in ("__main__", "__mp_main__") and _owner(str(file)) == "user"


def _is_helper(child: int) -> bool:
    """Return whether the child process `child` need not end with the trial: a library keeps it, or it has ended."""
    process = Path(f"/proc/{child}")
    with contextlib.suppress(OSError):
        command = (process / "cmdline").read_bytes().decode(errors="replace")
        # The state follows the name, which is in brackets. Z is a zombie: it has ended, and nobody has waited for it.
        _, _, after_name = (process / "stat").read_text().rpartition(")")
        ended = after_name.split()[0] == "Z"
        return ended or any(word in command for word in HELPER_COMMANDS)
    return True


def _library_contents() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield (name, attributes by name) of each module and class in which a trial may replace attributes of a library.

    They are the modules of `LIBRARIES` and `TORCH` that are imported, `torch.Tensor`, and the classes of `torch.nn`.
    """
    for name in (*LIBRARIES, *TORCH):
        if name in sys.modules:
            yield name, vars(sys.modules[name])
    if "torch.nn" in sys.modules and "torch" in sys.modules:
        yield "torch.Tensor", vars(sys.modules["torch"].Tensor)
        for name, value in list(vars(sys.modules["torch.nn"]).items()):
            if isinstance(value, type):
                yield f"torch.nn.{name}", vars(value)


def _patched(library: str, before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return the name of an attribute of a library that a trial has replaced, removed or added; "" if there is none.

    `before` and `now` are all attributes of the library by name. Of replaced attributes, functions and classes count,
    and in NumPy all public names. What libraries add to themselves does not count: private names, modules, and values
    that the library itself defines.
    """
    # In most cases all names have the same objects as before.
    if len(before) == len(now) and all(map(operator.is_, before.values(), now.values())):
        return ""
    root = library.partition(".")[0]
    for name, value in now.items():
        is_private = name.startswith("_")
        if name not in before:
            # In `sys` names come and go, such as `last_value`.
            defined_by = str(getattr(value, "__module__", None) or "").partition(".")[0]
            if is_private or isinstance(value, ModuleType) or root in ("sys", defined_by):
                continue
            return name
        if value is before[name]:
            continue
        if callable(before[name]) or (root == "numpy" and not is_private):
            # Torch's compiler wraps some functions of torch itself: the code of these is in a private file of torch.
            file = getattr(getattr(value, "__code__", None), "co_filename", "")
            if "/torch/_" not in file:
                return name
    removed = [name for name in before if name not in now]
    return removed[0] if removed and root != "sys" else ""


def _module_contents(module: ModuleType) -> Values:
    """Return name -> (value, digest of its mutable content) of each value in a module and in the classes it defines.

    Names are such as `cache` and `Model.cache`. Imported modules are left out, and names that begin with two
    underscores, unless they are methods of a class, such as `Model.__init__`.
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
                        # An Enum of flags adds combinations of flags here when they are used, which changes no result.
                        if attribute == "_value2member_map_":
                            continue
                        if not attribute.startswith("__") or isinstance(inner, FunctionType):
                            contents[f"{name}.{attribute}"] = inner, _digest(inner, module)
    return contents


def _same_entry(before: Any, now: Any) -> bool:
    """Return whether two entries (value, digest) of `_module_contents` are the same.

    The values must be the same object, or equal atoms, and the digests of their contents must be equal.
    """
    value_before, digest_before = before
    value, digest = now
    same_value = value is value_before or (
        type(value) in ATOMS and type(value_before) is type(value) and value_before == value
    )
    return same_value and digest == digest_before


def _digest(value: Any, module: ModuleType) -> int | None:
    """Return a digest of the mutable content of a value in a module.

    None where the value has no such content, and where the content is too large or cannot be pickled.
    """
    # The mutable content of a function is its mutable defaults and its attributes.
    if isinstance(value, FunctionType):
        # A function of another module is left out: Enums of the user hold Enum's methods, to which torch adds marks.
        if value.__module__ != module.__name__:
            return None
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        mutable_defaults = [default for default in defaults if type(default) not in ATOMS]
        if not (mutable_defaults or value.__dict__):
            return None
        value = mutable_defaults, value.__dict__
    elif type(value) in ATOMS or isinstance(value, type):
        return None
    checksum = _Checksum()
    try:
        _Pickler(checksum, protocol=5).dump(value)
    except Exception:
        return None
    return checksum.value


class _Checksum:
    """A file that keeps only a checksum of what is written to it."""

    def __init__(self) -> None:
        self.value = self.size = 0

    def write(self, data: Any) -> int:
        """Add `data`, which pickle writes, to the checksum, and return the number of its bytes.

        Raises `OverflowError` after more than `DIGEST_BYTES` bytes in all, which ends the pickling.
        """
        size = memoryview(data).nbytes
        self.size += size
        if self.size > DIGEST_BYTES:
            raise OverflowError
        self.value = zlib.crc32(data, self.value)
        return size


class _Pickler(pickle.Pickler):
    """Pickles a value for a digest of its content, without the content of tensors and large arrays."""

    def reducer_override(self, value: Any) -> Any:
        """Pickle a tensor as its identity and version, and a large array as its identity, so that neither is copied.

        Torch counts up the version at each change in place. For any other value NotImplemented is returned, so that it
        is pickled as usual.
        """
        # What is returned is a function and the tuple of its arguments, here one: pickle then writes `tuple(argument)`.
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return tuple, ((id(value), value._version),)
        if isinstance(value, np.ndarray) and value.nbytes > DIGEST_BYTES:
            return tuple, ((id(value),),)
        return NotImplemented
