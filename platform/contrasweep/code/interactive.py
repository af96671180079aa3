"""The source of code without a file: functions of a notebook or a REPL, and values that a function closed over.

It is put together as the text of one module: the function, the functions and classes of the notebook that it refers
to, the plain values that it reads (`WIDTH = 16`), and an import for everything that comes from elsewhere.
"""

import ast
import builtins
import contextlib
import hashlib
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from contrasweep import canonical
from contrasweep.errors import SpecError


def script_of(function: Callable[..., Any]) -> Path | None:
    """Return the file of the script that runs as `__main__`, if it defines `function`."""
    if function.__module__ != "__main__" or not isinstance(function, FunctionType):
        return None
    file = getattr(sys.modules["__main__"], "__file__", None)
    if not file or not Path(file).is_file() or not Path(function.__code__.co_filename).is_file():
        return None
    return Path(file).resolve() if Path(file).samefile(function.__code__.co_filename) else None


def source_of(function: Callable[..., Any]) -> bytes:
    """Return the text of a module with `function` and everything in its module that it refers to."""
    return _Gathering(function).text()


def bound_values(function: Callable[..., Any]) -> bytes:
    """Return the values that `function` has closed over, as the text of a module; empty where there are none."""
    gathering = _Gathering(function, with_source=False)
    for name, value in _closed_over(function):
        gathering.add(name, value)
    return gathering.text()


class _Gathering:
    """Definitions, values and imports by name, from one function on."""

    def __init__(self, function: Callable[..., Any], *, with_source: bool = True) -> None:
        self.module = function.__module__
        self.parts: dict[str, str] = {}
        self.names: Mapping[str, object] = getattr(function, "__globals__", None) or vars(sys.modules[self.module])
        if with_source:
            self.define(function.__name__, function)

    def text(self) -> bytes:
        return "".join(f"{self.parts[name]}\n" for name in sorted(self.parts)).encode()

    def define(self, name: str, thing: Any) -> None:
        """Keep a function's or class's source, and all that it refers to."""
        if name in self.parts:
            return
        source = _source(thing)
        self.parts[name] = source
        closed = dict(_closed_over(thing))
        for used in _names_read(source):
            if used in closed:
                self.add(used, closed[used])
            elif used in self.names and self.names[used] is not getattr(builtins, used, None):
                self.add(used, self.names[used])
        for attribute, value in sorted(vars(thing).items()) if isinstance(thing, FunctionType) else ():
            self.add(f"{name}_{attribute}", value)  # train.settings

    def add(self, name: str, value: Any) -> None:
        """Keep the source of the value with this name."""
        if name in self.parts:
            return
        if isinstance(value, ModuleType):
            self.parts[name] = f"import {value.__name__} as {name}"
        elif isinstance(value, FunctionType | type) and value.__module__ == self.module:
            self.define(name, value)
        elif isinstance(value, FunctionType | type) or (
            hasattr(value, "__qualname__") and hasattr(value, "__module__")
        ):
            self.parts[name] = _import_of(name, value)
        else:
            self._value(name, value)

    def _value(self, name: str, value: Any) -> None:
        """Keep a value: a plain one as it is, any other as its class."""
        try:
            self.parts[name] = f"{name} = {canonical.canonical(value)!r}"
        except SpecError:
            kind = type(value)
            self.parts[name] = f"{name} = {kind.__qualname__!r}"
            self.add(kind.__name__, kind)


def _closed_over(thing: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a function's closure."""
    if isinstance(thing, FunctionType) and thing.__closure__:
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__, strict=True):
            with contextlib.suppress(ValueError):  # a cell that is empty yet
                yield name, cell.cell_contents


def _names_read(source: str) -> list[str]:
    """Names that a piece of source reads."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of a line
        return []
    return sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)})


def _import_of(name: str, value: Any) -> str:
    module, qualname = value.__module__ or "builtins", value.__qualname__
    if module == "builtins" or not qualname.isidentifier():
        return f"import {module} as {name}"
    return f"from {module} import {qualname} as {name}"


def _source(thing: Any) -> str:
    """Return the source of a function or class without indentation; its bytecode where there is no source."""
    for look in (inspect.getsource, _from_cells, _from_files):
        with contextlib.suppress(OSError, TypeError, LookupError, SyntaxError):
            return textwrap.dedent(look(thing))
    name = thing.__name__ if thing.__name__.isidentifier() else "function"
    return f"{name} = {_bytecode(thing)!r}"


def _from_cells(thing: Any) -> str:
    """Return the source of a notebook's class, from the newest cell that defines it."""
    for cell in reversed(vars(sys.modules["__main__"])["_ih"]):
        with contextlib.suppress(SyntaxError):
            if (definition := _definition(cell, thing.__name__)) is not None:
                return definition
    raise LookupError(thing.__name__)


def _from_files(thing: type) -> str:
    """Return the source of a class, from the file or cell of one of its methods."""
    for method in vars(thing).values():
        code = getattr(method, "__code__", None)
        lines = linecache.getlines(code.co_filename) if code is not None else []
        if lines and (definition := _definition("".join(lines), thing.__name__)) is not None:
            return definition
    raise LookupError(thing.__name__)


def _definition(text: str, name: str) -> str | None:
    """The text of the last function or class of this name at the top of `text`."""
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_source_segment(text, node)
    return None


def _bytecode(thing: Any) -> str:
    """A digest of a function's, or of all of a class's methods', bytecode. It differs between versions of Python."""
    if isinstance(thing, type):
        methods = {k: getattr(v, "__code__", None) for k, v in sorted(vars(thing).items())}
        parts = [f"{k} {_bytes_of(code) if code else _plain(vars(thing)[k])}" for k, code in methods.items()]
    else:
        parts = [_bytes_of(thing.__code__), _plain(thing.__defaults__), _plain(thing.__kwdefaults__)]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _bytes_of(code: CodeType) -> str:
    consts = [_bytes_of(c) if isinstance(c, CodeType) else _plain(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {consts}"


def _plain(value: Any) -> str:
    try:
        return canonical.dumps(value)
    except SpecError:
        return type(value).__qualname__
