"""PyTorch left out of a command that may do without, though it is installed: what such a command may touch of it.

A plan whose counts of memory are kept reads settings, names and signatures alone, for which importing PyTorch takes
longer than all the rest. It is planned with stand-ins (see `stand_ins`), which only modules of `trainables` may touch,
and only while they are imported: deriving classes, annotating, decorating. Whatever else would be done with a
stand-in, by anyone, raises `TrainingNeeded`, and the command starts anew with PyTorch itself. So nothing is ever
decided by a stand-in, and nothing that PyTorch would check goes unchecked.
"""

import os
import sys
from typing import NoReturn

OWN = "trainables"
"""The package whose modules may touch stand-ins while they are imported."""
WITH_TRAINING = "CONTRASWEEP_WITH_TRAINING"
"""Environment variable of a command that was started anew."""


class TrainingNeeded(BaseException):
    """Something is to be done with PyTorch itself. No `Exception`: code that goes on without whatever a user's
    trainable raises must not go on without this."""


def check_touch() -> None:
    """`TrainingNeeded` unless a module of ours is being imported and touches a stand-in itself."""
    frame = sys._getframe(1)
    while frame.f_back and _passes_on(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    name, spec = frame.f_globals.get("__name__", ""), frame.f_globals.get("__spec__")
    if name.partition(".")[0] != OWN or not getattr(spec, "_initializing", False):
        raise TrainingNeeded(name)


def start_anew() -> NoReturn:
    """Replace this process by one of the same words that imports PyTorch."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, WITH_TRAINING: "1"})


def _passes_on(module: str) -> bool:
    return module in (__name__, "contrasweep.stand_ins") or module.startswith(("importlib.", "_frozen_importlib"))
