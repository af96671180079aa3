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
STUCK_S = 4.0
"""How long the main thread may stay in compiled code after a signal; then the process is ended without it."""
UNDO_S = 20.0
"""How long the main thread may take to end what runs; Slurm and Kubernetes kill a process 30 s after their signal."""
SAME_S = 0.5
"""Signals so soon after the first are part of it: some supervisors send two."""


@dataclass
class Interruption:
    """State of an interruption by a signal, and how the process is to end.

    `ends_process`: this is the command line's process, and may be ended where the main thread cannot be interrupted.
    `at_once`: nothing is to be undone, so that a signal ends the process directly; an exception could be lost in an
    import. `requested`: a signal has come.
    """

    reason: str = "interrupted"
    ends_process: bool = False
    at_once: bool = False
    requested: bool = False

    def __str__(self) -> str:
        return f"{self.reason}; the same command goes on from here"

    def check(self) -> None:
        """Raise `KeyboardInterrupt` where a signal has come, as the exception of its handler may have been lost."""
        if self.requested:
            raise KeyboardInterrupt

    def end_process(self) -> NoReturn:
        """Print the line and end at once: threads of Ray and MLflow may hang on a half-closed connection.

        The exit status is `INTERRUPTED`. No `finally` and no `atexit` runs.
        """
        # A display that was drawn on the terminal had hidden the cursor: it is shown again, on a line below.
        below = "\x1b[?25h\n" if os.isatty(2) else ""
        with contextlib.suppress(OSError):
            os.write(2, f"{below}contrasweep: {self}\n".encode())
        os._exit(INTERRUPTED)


interruption = Interruption()


def attend() -> None:
    """Install signal handlers of the command line: a first signal interrupts the process, a second ends it at once.

    Until `Interruption.at_once` is cleared, the first one ends it too.
    """
    interruption.ends_process = interruption.at_once = True
    # Blocked while the thread is started, which inherits that: signals come to the main thread alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # Python itself writes the number of each signal to this pipe, whatever the main thread does: `_attend` reads it.
    told, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_leave_to_parent)
    _handle()
    sys.unraisablehook = _end_where_swallowed
    threading.Thread(target=_attend, args=(told,), name="signals", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def interruptible() -> Iterator[None]:
    """While open, SIGTERM and SIGHUP raise KeyboardInterrupt as SIGINT does.

    SIGHUP does not where it is ignored, as under `nohup`. Nothing changes in a thread other than the main one, which
    cannot set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _handle()
    try:
        yield
    finally:
        # In a user's own process the next run is not interrupted by this signal; the command line's process ends by it.
        interruption.requested &= interruption.ends_process
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle() -> dict[int, Any]:
    """Set the handlers, and return the previous ones by signal; SIGHUP is left alone where it is ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return {n: signal.signal(n, _interrupt) for n in SIGNALS if n != signal.SIGHUP or not ignored}


def _interrupt(number: int, frame: Any) -> None:
    """Handle a signal: raise KeyboardInterrupt in the main thread, or end the process where nothing is to be undone.

    SIGHUP says that the terminal is gone.
    """
    if number == signal.SIGHUP:
        _leave_terminal()
    again = interruption.requested
    interruption.requested = True
    if interruption.at_once:
        interruption.end_process()
    # A second signal does not disturb what is being undone: `_attend` ends the command line's process.
    if not (again and interruption.ends_process):
        raise KeyboardInterrupt


def _attend(told: int) -> None:
    """Read the number of each signal as it comes.

    End the process at a second one, where the main thread does not come to its handler within `STUCK_S`, and where it
    needs longer than `UNDO_S` to end. `told` is the descriptor that the numbers come from.
    """
    first = 0.0  # when the first signal came; 0: none has
    while True:
        # `requested` is set by the handler: from then on the main thread has the longer time. Without a signal this
        # waits for ever.
        until = first + (UNDO_S if interruption.requested else STUCK_S)
        wait_s = max(0.0, until - time.monotonic()) if first else None
        readable, _, _ = select.select([told], [], [], wait_s)
        # The time is over, unless the handler has run meanwhile and the main thread has the longer one.
        if not readable:
            if time.monotonic() >= first + (UNDO_S if interruption.requested else STUCK_S):
                break
            continue
        # Other signals write their numbers too, and a user's own handler is not ours to end the process for.
        come = [n for n in os.read(told, 64) if n in SIGNALS and signal.getsignal(n) is _interrupt]
        now = time.monotonic()
        if come and first and now - first > SAME_S:
            break
        if come and not first:
            first = now
    interruption.end_process()


def _end_where_swallowed(lost: Any) -> None:
    """End the process where an interrupt was swallowed.

    Python prints an exception of a destructor or a callback, as its import locks have, and goes on.
    """
    if interruption.requested and issubclass(lost.exc_type, KeyboardInterrupt):
        interruption.end_process()
    sys.__unraisablehook__(lost)


def _leave_to_parent() -> None:
    """Reset the handlers of signals in a forked child, whose signals are no matter of this process."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        if signal.getsignal(number) is _interrupt:
            signal.signal(
                number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )


def _leave_terminal() -> None:
    """Redirect output to nothing where the terminal is gone: each line would raise an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            os.dup2(nowhere, stream.fileno())


class Termination:
    """While open: `requested` tells whether this process was told to end. The handler that was set before still runs.

    Ray answers SIGTERM with `SystemExit` in the main thread, submitit does so to SIGUSR2. Where that lands inside an
    import or other compiled code it comes out as another exception, or as none, and would be taken for a failure of the
    trial that was running.
    """

    def __init__(self) -> None:
        self.requested = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGUSR2):
            before = signal.getsignal(number)
            # Only a handler in Python can be swallowed, and only the main thread may set one.
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
