"""Stand-ins for packages of training that are not installed, so that a machine that only plans and submits can import a
trainable's module for its settings.

They are used where torch is not installed, for the modules that a trainable's module imports and that are nowhere, the
trainable's own package excepted. Whatever is read from a stand-in is a class that can be derived from, called, put into
an annotation or used as a decorator, which leaves a function as it is; nothing is ever computed with one. Sphinx reads
modules for their documentation in the same way.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, Protocol

from contrasweep.left_out import check_touch

TRAINING = "torch"
"""The package whose absence says that nothing is trained here."""
OWN_OPTIONAL = ("pandas", "scipy", "ray", "mlflow", "optuna", "matplotlib", "sklearn")
"""What the platform itself looks for: a stand-in for one of these is there for the import of a trainable alone."""


class _Kind(type(Protocol)):  # type: ignore[misc]
    """The type of stand-in classes; one may be derived from together with a protocol or an abstract class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _touched()
        return _stand_in(f"{cls.__name__}.{name}")

    def __call__(cls, *args: Any, **options: Any) -> Any:
        _touched()
        if _decorates(args, options):
            return args[0]
        if "_stands_for" in vars(cls):
            return super().__call__()
        return super().__call__(*args, **options)  # a class derived from one

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


class _StandIn(metaclass=_Kind):
    """What stands for a class, a function or a value."""

    _is_protocol = False  # asked by isinstance

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _touched()
        return _stand_in(name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        _touched()
        return args[0] if _decorates(args, options) else self

    def __enter__(self) -> Any:
        _touched()
        return self

    def __exit__(self, *raised: object) -> None:
        pass


class _Module(ModuleType):
    """A package of stand-ins."""

    __path__ = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__.partition(".")[0] in _STRICT:
            _touched()
        return _stand_in(name)


class _Finder:
    """Finds, after all other finders, the modules of the packages in `names`; it is their loader too."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name.partition(".")[0] in _STRICT:
            _touched()
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in self.names else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `importlib.abc.Loader`."""
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""


_FINDER = _Finder()
_STRICT: set[str] = set()
"""Packages that are installed and left out of a command that starts anew where it needs them."""


def import_with_stand_ins(name: str) -> ModuleType:
    """The module `name`, with stand-ins for absent packages where torch is absent; raises as `import_module` does."""
    own = name.partition(".")[0]
    with _scoped():
        while True:
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                missing = (error.name or own).partition(".")[0]
                if missing in _FINDER.names or missing == own or is_installed(TRAINING) or is_installed(missing):
                    raise
                _FINDER.names.add(missing)


def leave_out(package: str = TRAINING, *, strict: bool = False) -> None:
    """From now on have stand-ins for `package` though it is installed; nothing where it is imported already. For a
    process that reads names and docstrings of trainables' modules and ends: importing PyTorch takes five times as long
    as all the rest of that. `strict` for one that goes on: see `left_out`."""
    if strict and not is_installed(package):
        return
    if package not in sys.modules and package not in _FINDER.names:
        _FINDER.names.add(package)
        _STRICT.update({package} if strict else ())
        sys.meta_path.insert(0, _FINDER)


def absent() -> tuple[str, ...]:
    """The packages that stand-ins stand for in this process because they are not installed."""
    return tuple(sorted(_FINDER.names - _STRICT))


@contextmanager
def _scoped() -> Iterator[None]:
    """The finder is asked, last of all; what the platform looks for itself is taken back in the end."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)
    try:
        yield
    finally:
        # Other threads import meanwhile. A list of the items is no safe copy: each pair that it makes may start the
        # garbage collector, whose finalizers let those threads run.
        for name, module in sys.modules.copy().items():
            if isinstance(module, _Module) and name.partition(".")[0] in OWN_OPTIONAL:
                sys.modules.pop(name, None)
        _FINDER.names -= set(OWN_OPTIONAL)


def is_installed(name: str) -> bool:
    """Whether there is such a package, a stand-in excepted."""
    if name in _STRICT:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and not isinstance(spec.loader, _Finder)


def _touched() -> None:
    if _STRICT:
        check_touch()


def _decorates(args: Sequence[Any], options: Any) -> bool:
    return len(args) == 1 and not options and isinstance(args[0], FunctionType)


def _stand_in(name: str) -> Any:
    return _Kind(name, (_StandIn,), {"_stands_for": name, "__module__": __name__})
