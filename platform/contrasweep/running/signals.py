"""SIGINT, SIGTERM and SIGHUP: a driver is interrupted by each, and a worker remembers that it was told to end."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self


@dataclass
class Interruption:
    """What a run that was interrupted says of it. `ends_process`: the process is the command line's, so that it may be
    ended where the main thread cannot be interrupted."""

    reason: str = "interrupted"
    ends_process: bool = False

    def __str__(self) -> str:
        return f"{self.reason}; the same command goes on from here"


interruption = Interruption()


@contextmanager
def interruptible() -> Iterator[None]:
    """While open, SIGTERM and SIGHUP raise KeyboardInterrupt as SIGINT does; SIGHUP not where it is ignored, as under
    `nohup`. To be opened after Ray is connected, which sets handlers of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def hang_up(*_: Any) -> None:
        _leave_terminal()
        raise KeyboardInterrupt

    handlers: dict[int, Any] = {signal.SIGINT: interrupt, signal.SIGTERM: interrupt}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = hang_up
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """Write nothing more to a terminal that is gone: each line would be an error of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            os.dup2(nowhere, stream.fileno())


class Termination:
    """While open: `requested` tells whether this process received SIGTERM. The handler that was set before still runs.

    Ray answers the signal with `SystemExit` in the main thread. Where that lands inside an import or other compiled
    code it comes out as another exception, or as none, and would be taken for a failure of the trial that was running.
    """

    def __init__(self) -> None:
        self.requested = False
        self.before: Any = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGTERM)
        # Only a handler in Python can be swallowed, and only the main thread may set one.
        if callable(before) and threading.current_thread() is threading.main_thread():
            self.before = before
            signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self.before)

    def _handle(self, number: int, frame: Any) -> None:
        self.requested = True
        self.before(number, frame)
