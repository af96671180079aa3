"""A SIGTERM to this process, remembered while a trial runs.

Ray answers one with `SystemExit` in the main thread. Where that lands inside an import or other compiled code it comes
out as another exception, or as none, and would be taken for a failure of the trial that was running.
"""

import signal
import threading
from types import TracebackType
from typing import Any, Self


class Termination:
    """While open: `asked` tells whether the process was told to end. What answers the signal otherwise still does."""

    def __init__(self) -> None:
        self.asked = False
        self.before: Any = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGTERM)
        # Only an answer in Python can be swallowed, and only the main thread may set one.
        if callable(before) and threading.current_thread() is threading.main_thread():
            self.before = before
            signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if signal.getsignal(signal.SIGTERM) == self._note:
            signal.signal(signal.SIGTERM, self.before)

    def _note(self, number: int, frame: Any) -> None:
        self.asked = True
        self.before(number, frame)
