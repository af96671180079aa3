"""SIGINT, SIGTERM and SIGHUP: a driver is interrupted by each, and a worker remembers that it was told to end."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Self

INTERRUPTED = 130
"""The exit status of a command that was interrupted."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that interrupt a run."""
STUCK_S = 4.0
"""How long the main thread may stay in compiled code after a signal; then the process is ended without it."""
UNDO_S = 20.0
"""How long the main thread may take to end what runs; Slurm and Kubernetes kill a process 30 s after their signal."""
SAME_S = 0.5
"""Signals so soon after the first are part of it: some supervisors send two."""


@dataclass
class Interruption:
    """State of an interruption by a signal, and how the process is to end.

    Attributes:
        reason: Why the process ends, for its last line.
        then: What follows, for the same line.
        ends_process: This is the command line's process, which may be ended where the main thread cannot be
            interrupted.
        at_once: Nothing must be undone yet, so a signal ends the process directly. An exception could be lost in an
            import.
        requested: A signal has come.
    """

    reason: str = "interrupted"
    then: str = "the same command goes on from here"
    ends_process: bool = False
    at_once: bool = False
    requested: bool = False

    def __str__(self) -> str:
        return f"{self.reason}; {self.then}"

    def check(self) -> None:
        """Raise `KeyboardInterrupt` where a signal has come, as the exception of its handler may have been lost."""
        if self.requested:
            raise KeyboardInterrupt

    def end_process(self) -> NoReturn:
        """Print the reason and end the process at once, with the exit status `INTERRUPTED`.

        No `finally` and no `atexit` runs, because threads of Ray and MLflow may hang on a half-closed connection.
        """
        # A display that was drawn on the terminal had hidden the cursor: it is shown again, on a line below.
        below = "\x1b[?25h\n" if os.isatty(2) else ""
        with contextlib.suppress(OSError):
            os.write(2, f"{below}contrasweep: {self}\n".encode())
        os._exit(INTERRUPTED)


interruption = Interruption()


def attend() -> None:
    """Install the signal handlers of the command line: a first signal interrupts the process, a second ends it at once.

    While `Interruption.at_once` is true, a first signal ends the process at once too.
    """
    interruption.ends_process = interruption.at_once = True
    # The signals are blocked while the thread starts. It inherits that, so that only the main thread receives signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # Python itself writes the number of each signal to this pipe, even while the main thread is in compiled code.
    # `_attend` reads the numbers.
    numbers, written_by_python = os.pipe()
    os.set_blocking(written_by_python, False)
    signal.set_wakeup_fd(written_by_python, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_leave_to_parent)
    _set_handlers()
    sys.unraisablehook = _end_where_swallowed
    threading.Thread(target=_attend, args=(numbers,), name="signals", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does, within the `with` block.

    SIGHUP does not where it is ignored, as under `nohup`. Outside of the main thread nothing changes, because no other
    thread can set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _set_handlers()
    try:
        yield
    finally:
        # In a user's own process the signal is forgotten, so that it does not interrupt the next run. The command
        # line's process ends by it.
        if not interruption.ends_process:
            interruption.requested = False
        for number, handler in before.items():
            signal.signal(number, handler)


def _set_handlers() -> dict[int, Any]:
    """Make `_interrupt` the handler of each of `SIGNALS`; return number of the signal -> the handler before.

    SIGHUP is left out where it was ignored before, as under `nohup`: it stays ignored.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return {n: signal.signal(n, _interrupt) for n in SIGNALS if n != signal.SIGHUP or not ignored}


def _interrupt(number: int, frame: Any) -> None:
    """Handle a signal: raise KeyboardInterrupt in the main thread, so that the run is undone in good order.

    With `Interruption.at_once` the process is ended here instead. A second signal raises nothing in the process of the
    command line, which `_attend` ends.
    """
    # SIGHUP says that the terminal is gone.
    if number == signal.SIGHUP:
        _leave_terminal()
    is_second = interruption.requested
    interruption.requested = True
    if interruption.at_once:
        interruption.end_process()
    # A second signal must not disturb the undoing after the first one: `_attend` ends the command line's process.
    if not (is_second and interruption.ends_process):
        raise KeyboardInterrupt


def _attend(numbers: int) -> None:
    """Wait for signals, and end the process where the main thread does not.

    There are three such cases: a second signal comes; the main thread does not run its handler within `STUCK_S` of the
    first signal; or it has not ended the process within `UNDO_S`. `numbers` is the file descriptor from which the
    numbers of signals are read.
    """
    first = 0.0  # when the first signal came; 0: none has come

    def seconds_left() -> float:
        """Return how long the main thread has left. Its handler sets `requested`, which gives it more time."""
        return first + (UNDO_S if interruption.requested else STUCK_S) - time.monotonic()

    while True:
        # Without a signal this waits for ever.
        wait_s = max(0.0, seconds_left()) if first else None
        readable, _, _ = select.select([numbers], [], [], wait_s)
        # The wait is over. Where the handler has run meanwhile, more time is left.
        if not readable:
            if seconds_left() <= 0:
                break
            continue
        # Only signals with the handler of this module count: Python writes the numbers of all others too.
        ours = [
            n for n in os.read(numbers, 64) if n in SIGNALS and signal.getsignal(n) is _interrupt
        ]
        now = time.monotonic()
        # A second signal, and not the first one that was sent twice.
        if ours and first and now - first > SAME_S:
            break
        if ours and not first:
            first = now
    interruption.end_process()


def _end_where_swallowed(lost: Any) -> None:
    """End the process where Python would only print the KeyboardInterrupt of a signal and go on.

    Python does so with an exception that leaves a destructor or a callback, such as those of import locks. This is the
    process's `sys.unraisablehook`; `lost` has the exception. Other exceptions are printed as usual.
    """
    if interruption.requested and issubclass(lost.exc_type, KeyboardInterrupt):
        interruption.end_process()
    sys.__unraisablehook__(lost)


def _leave_to_parent() -> None:
    """Reset the signal handlers in a forked child to the default ones: interrupting the run is left to its parent."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        if signal.getsignal(number) is _interrupt:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


def _leave_terminal() -> None:
    """Redirect the output for the terminal to nothing: it is gone, and each line would raise an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            os.dup2(nowhere, stream.fileno())


class Termination:
    """Within the `with` block, `requested` says whether this process was told to end. Earlier handlers run as before.

    Ray answers SIGTERM by raising `SystemExit` in the main thread, submitit does the same at SIGUSR2, and Python raises
    `KeyboardInterrupt` at SIGINT. Within an import or compiled code the exception may turn into another one, or vanish.
    Without `requested`, this would look like a failure of the trial that was running.
    """

    def __init__(self) -> None:
        self.requested = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            before = signal.getsignal(number)
            # Only a handler in Python raises an exception, and only the main thread may set another handler.
            if callable(before) and threading.current_thread() is threading.main_thread():
                self.before[number] = before
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, before in self.before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)

    def _handle(self, number: int, frame: Any) -> None:
        self.requested = True
        self.before[number](number, frame)
