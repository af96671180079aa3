"""PyTorch left out of a command that may do without, though it is installed: what such a command may touch of it.

A plan whose counts of memory are kept reads settings, names and signatures alone, for which importing PyTorch takes
longer than all the rest. It is planned with stand-ins (see `stand_ins`), which only modules of `trainables` may touch,
and only while they are imported: deriving classes, annotating, decorating. Whatever else would be done with a
stand-in, by anyone, raises `TrainingNeeded`, and the command starts anew with PyTorch itself. So nothing is ever
decided by a stand-in, and nothing that PyTorch would check goes unchecked.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from contrasweep.study.study import Study

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


def may_leave_out(study: "Study", kept: bool) -> bool:
    """Whether a plan of `study` is likely to need no PyTorch: all that it names is ours, counts are `kept`, and the
    command was not started anew."""
    ours = all(isinstance(arm.trainable, str) and arm.trainable.startswith(f"{OWN}.") for arm in study.arms.values())
    named = (vars(study).get("axes"), *((arm.config, arm.space) for arm in study.arms.values()))
    return kept and ours and WITH_TRAINING not in os.environ and not any(":" in text for text in _texts(named))


def start_anew() -> NoReturn:
    """Replace this process by one of the same words that imports PyTorch."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, WITH_TRAINING: "1"})


def _passes_on(module: str) -> bool:
    return module in (__name__, "contrasweep.stand_ins") or module.startswith(("importlib.", "_frozen_importlib"))


def _texts(value: object) -> Iterator[str]:
    """All text in nested values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif options := getattr(value, "options", None):
        yield from _texts(options)
