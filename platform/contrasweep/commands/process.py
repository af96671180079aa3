"""The process of a command: its output is passed on as it comes, and it ends when its trial does."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

LAST_LINES = 30
GRACE_S = 30.0
"""How long a command may take to end after SIGTERM, before SIGKILL."""
_PR_SET_PDEATHSIG = 1


class CommandFailed(RuntimeError):
    """A command ended with another status than 0; the message ends with what it printed last."""


class Process:
    """A command in a process group of its own, which gets SIGTERM when this process dies (on Linux)."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.words = list(words)
        self.tail: deque[str] = deque(maxlen=LAST_LINES)
        self.child = subprocess.Popen(
            self.words,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def ended(self, wait_s: float) -> bool:
        """Whether it has ended, now or within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(wait_s)
        return self.child.poll() is not None

    def check(self) -> None:
        """`CommandFailed` where it ended with another status than 0."""
        status = self.child.returncode
        if status:
            self._reader.join(5.0)  # a grandchild may keep the pipe open
            how = f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
            printed = "".join(f"\n{line}" for line in self.tail) or "\nnothing"
            raise CommandFailed(
                f"the command {' '.join(self.words[:3])} ... ended with {how}; it printed last:{printed}"
            )

    def stop(self) -> None:
        """SIGTERM to the command and its children, SIGKILL to those that are there after `GRACE_S`."""
        self._signal(signal.SIGTERM)
        self.ended(GRACE_S)
        self._signal(signal.SIGKILL)
        self.ended(5.0)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, number)

    def _pass_on(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.tail.append(line.rstrip("\n"))
            print(line, end="", flush=True)


def _end_with_parent() -> None:
    """In the child: SIGTERM when the parent dies, however it does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
