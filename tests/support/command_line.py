"""The command line in this process, which has imported everything already, in a tenth of the time; and new Pythons."""

import contextlib
import importlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from contrasweep.cli import main
from contrasweep.running.signals import INTERRUPTED, Interruption, interruption


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def contrasweep(*words, folder, program=main):
    """`contrasweep *words`, or another program, in `folder`, whose modules are forgotten again."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
    )
    places = list(sys.path)
    status = 0
    importlib.invalidate_caches()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", ["contrasweep", *words])
                # Click names a program by its package where pytest was started as a module.
                patch.setattr(sys.modules["__main__"], "__package__", None)
                patch.setattr(Interruption, "end_process", _end)
                for name, value in vars(Interruption()).items():  # as in a new process
                    patch.setattr(interruption, name, value)
                program()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.path[:] = places
            for name, module in sys.modules.copy().items():
                if str(getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
                    del sys.modules[name]
    return Done(status, *(text.buffer.getvalue().decode() for text in (out, err)))


def _end(interruption):
    """In place of the end of this process."""
    print(f"contrasweep: {interruption}", file=sys.stderr)
    sys.exit(INTERRUPTED)


def printed(folder, *words):
    """What `contrasweep *words` prints, which ends well."""
    done = contrasweep(*words, folder=folder)
    assert done.returncode == 0, done
    return done.stdout


def shown_json(folder, *words):
    return json.loads(printed(folder, *words, "--json"))


def refusal(folder, *words):
    """The one line with which `contrasweep *words` is refused."""
    done = contrasweep(*words, folder=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr


def python(*words, **options):
    """What a process of its own prints: `python *words`, with options of `subprocess.run`."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)
