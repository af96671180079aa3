"""What stands at a dotted path: how a trainable, a loss or any other component of someone else's package is named."""

import importlib
import sys
from pathlib import Path
from typing import Any

from contrasweep.errors import SpecError, choose_from


def import_from_here() -> None:
    """Make the current folder one to import from, as it is for a script that lies in it."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def import_path(path: str, place: str = "", kind: str = "trainable", extra: str = "") -> Any:
    """The class or function at `package.module:name`; `SpecError` at `place` when the path leads nowhere.

    `kind` says what it should be, and `extra` what to install where its package is missing.
    """
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        hint = f"{error}; {extra}" if extra else str(error)
        raise SpecError(f"the {kind}'s module cannot be imported", place=place, value=path, hint=hint) from None
    target = getattr(module, name, None)
    if not callable(target):
        public = {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")}
        own = [n for n, v in public.items() if getattr(v, "__module__", "") == module_name]
        raise SpecError(
            f"the {kind}'s module has no such function or class",
            place=place,
            value=path,
            hint=choose_from("names", own or list(public), name),
        )
    return target
