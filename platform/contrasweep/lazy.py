"""Names of a package that are imported when they are first used: a plan must not wait for Ray, SciPy or torch."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def importer(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a function `__getattr__` for `package`, which imports a name of the package when it is first used.

    `modules` is name -> the module of the package that defines it. If the module has the same name, the name means the
    module itself; so a module cannot define an object of its own name here.
    """

    def get(name: str) -> Any:
        """Return what the name stands for, imported now; `AttributeError` for a name that is not in `modules`."""
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{modules[name]}")
        value = module if modules[name] == name else getattr(module, name)
        # From now on the package has it, and Python does not ask here again.
        setattr(sys.modules[package], name, value)
        return value

    return get
