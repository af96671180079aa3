"""SIGINT and SIGTERM: a driver is interrupted by either, and a worker remembers that it was told to end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self


@contextmanager
def interruptible() -> Iterator[None]:
    """While open, SIGTERM raises KeyboardInterrupt as SIGINT does. To be opened after Ray is connected, which sets
    handlers of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
