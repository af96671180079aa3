"""The log of a trial, which receives what the trial prints while it runs.

That is standard output and error of this process, with what subprocesses and compiled code write there.

The log is a file: a trial that dies without a word leaves what it printed. On a local storage it is the object itself,
elsewhere a file of this machine that is sent to the storage every few seconds and when the trial ends. It is opened to
be appended to, so that it can be shortened while it is written.
"""

import contextlib
import datetime
import os
import re
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Self

from contrasweep.errors import StorageError
from contrasweep.storage.records import LOG, StudyRecords
from contrasweep.storage.store import LocalStore

LIMIT = 4 * 2**20
"""Bytes of a log."""
HEAD = 2**18
"""Bytes of the beginning that is kept of a longer log."""
TAIL = 2**20
"""Bytes of the end that is kept of a longer log."""
ROUNDS = 20
"""How often a log is shortened at a newer end, where what is written outruns the copy."""
CHECK_S = 0.25
SEND_S = 5.0
EXIT_CALLED = "os._exit was called"
WARNS = re.compile(rb"\bwarn(ing|ings)?\b|Warning:", re.IGNORECASE)
"""What stands in a line of a log that warns, as Python, its logging and most programs write it."""
SHARE = 0.01  # of the time that may go into sending a log


class Output:
    """Takes what this process prints from `open` to `close`, for one trial."""

    def __init__(
        self, records: StudyRecords, trial_id: str, *, no_prior_state: bool = False
    ) -> None:
        """`no_prior_state`: the storage has no log of an earlier attempt."""
        self.store = records.store
        self.key = records.key(trial_id, LOG)
        self.local = self.store.root / self.key if isinstance(self.store, LocalStore) else None
        self.path = (
            self.local or Path(tempfile.gettempdir()) / f"contrasweep-{os.getpid()}-{trial_id}.log"
        )
        self.left_out = 0  # bytes of the middle that were cut out so far
        self.no_prior_state = no_prior_state
        self.warnings = 0  # lines of the log that warn, once it is closed
        self.sent = 0  # bytes of the log when it was sent last
        self.due = time.monotonic() + SEND_S  # when it may be sent next
        # copies of the descriptors 1 and 2 as they were before `open`; None while the log is not open
        self._saved: tuple[int, int] | None = None
        self._abandoned = False
        self._open = contextlib.ExitStack()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trial-log", daemon=True)

    def open(self) -> Self:
        """Redirect standard output and standard error of this process to the trial's log; return this object.

        The log of an earlier attempt is continued, after a line with this host and the time. `StorageError` where the
        file cannot be written.
        """
        # The log of an earlier attempt; a local storage has it in place.
        if self.local is None and not self.no_prior_state:
            with contextlib.suppress(FileNotFoundError):
                self.store.get_file(self.key, self.path)
        _flush()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:  # no fault of the trial
            raise StorageError(f"the log of a trial cannot be written ({error})") from error
        if os.fstat(file).st_size:
            now = datetime.datetime.now(datetime.UTC)
            os.write(
                file, f"--- again on {socket.gethostname()}, {now:%Y-%m-%d %H:%M:%S} UTC\n".encode()
            )
        # By descriptor, since subprocesses and compiled code write to 1 and 2 and know nothing of `sys.stdout`.
        self._saved = os.dup(1), os.dup(2)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        # A trial that calls `os._exit` ends the whole worker without an exception: a line in the log says so, by which
        # the driver tells the trial's own fault from a worker that was killed. `close` puts `os._exit` back.
        self._open.callback(setattr, os, "_exit", os._exit)
        os._exit = _logged_exit(os._exit, os.getpid())  # type: ignore[assignment]
        # A warning that an earlier trial of this process caused is shown again.
        self._open.enter_context(warnings.catch_warnings())
        self._thread.start()
        return self

    def abandon(self) -> None:
        """Stop writing: the log belongs to a later attempt."""
        self._abandoned = True

    def close(self) -> None:
        """Restore standard output and error, and keep the log if it is not empty; sets `warnings`.

        Does nothing where the log is not open. A log that cannot be kept is no error.
        """
        if self._saved is None:
            return
        self._stopping.set()
        self._thread.join()
        _flush()
        self._open.close()  # puts back `os._exit` and the filters of warnings
        for number, before in zip((1, 2), self._saved, strict=True):
            os.dup2(before, number)
            os.close(before)
        self._saved = None
        with contextlib.suppress(OSError):  # a trial is worth more than its log
            self._shorten()
            self.warnings = sum(
                WARNS.search(line) is not None for line in self.path.read_bytes().splitlines()
            )
            if self.path.stat().st_size == 0:
                self.path.unlink()
            elif self.local is None:
                self._send()
                self.path.unlink()

    def _run(self) -> None:
        """Shorten the log, and send it to the storage from time to time, until the log closes.

        What fails is tried again. A local storage needs no sending.
        """
        while not self._stopping.wait(CHECK_S):
            with contextlib.suppress(OSError):
                self._shorten()
                if (
                    self.local is None
                    and time.monotonic() >= self.due
                    and self.path.stat().st_size != self.sent
                ):
                    self._send()

    def _send(self) -> None:
        """Send the log, and set when it is sent next: the slower the storage, the later.

        Sends nothing once a later attempt owns the log (`abandon`).
        """
        if self._abandoned:
            return
        began = time.monotonic()
        try:
            self.sent = self.path.stat().st_size
            self.store.put_file(self.key, self.path)
        except StorageError:  # said by the records, which are written there too
            pass
        self.due = time.monotonic() + max(SEND_S, (time.monotonic() - began) / SHARE)

    def _shorten(self) -> None:
        """Leave out the middle of a log of more than `LIMIT` bytes, within its file.

        What stays is the first `HEAD` bytes, a line with how much was left out so far, and the last `TAIL` bytes. What
        is written meanwhile is kept too, but for the instant between the last look at the end and the cut.
        """
        size = self.path.stat().st_size
        if size <= LIMIT:
            return
        with self.path.open("r+b", buffering=0) as file:
            for _ in range(ROUNDS):
                # Over the middle go the line and then all from `source` on, up to the end of the file: `part` is
                # empty there.
                left_out = self.left_out + size - HEAD - TAIL
                source = size - TAIL
                target = HEAD
                part = f"\n--- {left_out:,} bytes are left out here\n".encode()
                while part and target <= LIMIT - TAIL:
                    target += os.pwrite(file.fileno(), part, target)
                    part = os.pread(file.fileno(), TAIL, source)
                    source += len(part)
                if not part:
                    break
                # So much was written meanwhile that the copy itself grew too long: again, from the newer end.
                size = self.path.stat().st_size
            file.truncate(target)
        self.left_out = left_out


def _logged_exit(leave: Callable[[int], NoReturn], process: int) -> Callable[[int], NoReturn]:
    """Return a function that writes `os._exit was called with STATUS` to standard error and then calls `leave`.

    No other process sees why this one ended. Only the process of this id writes the line: its forked children end by
    `os._exit` as a rule.
    """

    def write_and_leave(status: int) -> NoReturn:
        if os.getpid() == process:
            with contextlib.suppress(OSError):
                os.write(2, f"{EXIT_CALLED} with {status}\n".encode())
        leave(status)

    return write_and_leave


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
