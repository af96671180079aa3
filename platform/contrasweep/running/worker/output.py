"""The log of a trial: all that the trial prints while it runs.

That is standard output and error of this process, with the output of subprocesses and compiled code.

The log is a file, so that a trial which is killed leaves what it has printed. In a local storage it is the stored file
itself. Elsewhere it is a file of this machine, which is sent to the storage every few seconds and at the trial's end.
All writers append to it, so that it can be shortened while they write.
"""

import contextlib
import datetime
import os
import re
import shutil
import socket
import sys
import threading
import time
import warnings
from typing import NoReturn, Self

from contrasweep.errors import StorageError
from contrasweep.processes import scratch_folder
from contrasweep.storage.records import LOG, StudyRecords
from contrasweep.storage.store import LocalStore

LIMIT = 4 * 2**20
"""Bytes of a log, at most; a longer one is shortened."""
HEAD = 2**18
"""Bytes at the beginning of a longer log that are kept."""
TAIL = 2**20
"""Bytes at the end of a longer log that are kept."""
CHECK_S = 0.25
"""How often the length of a log is checked."""
UPLOAD_EVERY_S = 5.0
"""Seconds between two uploads of a log, at least."""
EXIT_CALLED = "os._exit was called"
"""How the last line of a log begins where the trial has called `os._exit`."""
WARNS = re.compile(rb"^.*(\bwarn(ing|ings)?\b|Warning:).*(\n  .*)?", re.IGNORECASE | re.MULTILINE)
"""Matches a line of a log that warns, as Python, its logging and most programs write it; with the indented line below,
where Python shows the code that warned."""
UPLOAD_SHARE = 0.01
"""The part of the time that uploads of a log may take."""


class Output:
    """Collects what this process prints from `open` to `close`, for one trial."""

    def __init__(self, records: StudyRecords, trial_id: str) -> None:
        """Make the log of a trial."""
        self.store = records.store
        self.key = records.key(trial_id, LOG)
        # the stored file itself; None in an object store
        self.local = self.store.root / self.key if isinstance(self.store, LocalStore) else None
        self.path = self.local or scratch_folder("log") / LOG
        self.left_out = 0  # bytes of the middle that were cut out so far
        self.warnings = 0  # lines of the log that warn, once it is closed
        self.sent = 0  # bytes of the log when it was sent last
        self.due = time.monotonic() + UPLOAD_EVERY_S  # when it may be sent next
        # copies of the descriptors 1 and 2 as they were before `open`; None while the log is not open
        self._saved: tuple[int, int] | None = None
        self._abandoned = False  # see `abandon`
        self._open = contextlib.ExitStack()  # restores what `open` changes beside the descriptors
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trial-log", daemon=True)

    def open(self) -> Self:
        """Redirect standard output and standard error of this process to the trial's log; return this object.

        The log of an earlier attempt is continued, after a line with this host and the time. Raises `StorageError`
        where the file cannot be written.
        """
        # Fetch the log of an earlier attempt. In a local storage it is in its place already.
        if self.local is None:
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
        # The descriptors 1 and 2 are redirected, because subprocesses and compiled code do not use `sys.stdout`.
        self._saved = os.dup(1), os.dup(2)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        # A trial that calls `os._exit` ends the whole worker without an exception. A line in the log tells the driver
        # that the trial did it, and that the worker was not killed. `close` restores `os._exit`.
        leave = os._exit
        self._open.callback(setattr, os, "_exit", leave)
        process = os.getpid()

        def write_and_leave(status: int) -> NoReturn:
            """End the process by `os._exit`, after a line to the trial's log which says so.

            In a forked child the line is not written: children usually end in this way.
            """
            if os.getpid() == process:
                with contextlib.suppress(OSError):
                    os.write(2, f"{EXIT_CALLED} with {status}\n".encode())
            leave(status)

        os._exit = write_and_leave
        # Python shows a warning once for each process; with fresh filters it is shown again for this trial.
        self._open.enter_context(warnings.catch_warnings())
        self._thread.start()
        return self

    def abandon(self) -> None:
        """Send no more of this log to the storage, because a later attempt of the trial writes its own log there."""
        self._abandoned = True

    def close(self) -> None:
        """Restore standard output and error, store the log if it is not empty, and set `warnings`.

        Does nothing where the log is not open. A log that cannot be stored is no error.
        """
        if self._saved is None:
            return
        self._stopping.set()
        self._thread.join()
        _flush()
        self._open.close()  # restores `os._exit` and the filters of warnings
        # 1 and 2 are the descriptors of standard output and error.
        for number, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, number)
            os.close(saved)
        self._saved = None
        # A trial must not fail because of its log.
        with contextlib.suppress(OSError):
            self._shorten()
            self.warnings = len(WARNS.findall(self.path.read_bytes()))
            if self.path.stat().st_size == 0:
                self.path.unlink()
            elif self.local is None:
                self._send()
        if self.local is None:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def _run(self) -> None:
        """Shorten the log, and send it to the storage if it has changed, again and again until the log closes.

        After an error both are tried again. In a local storage the log is the stored file itself and is not sent.
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
        """Send the log to the storage, and set the time of the next upload; do nothing after `abandon`.

        The longer an upload takes, the later the next one is.
        """
        if self._abandoned:
            return
        began = time.monotonic()
        try:
            self.sent = self.path.stat().st_size
            self.store.put_file(self.key, self.path)
        # Writing the records fails too then, which is reported.
        except StorageError:
            pass
        took_s = time.monotonic() - began
        # So uploads take no larger part of the time than `UPLOAD_SHARE`.
        self.due = time.monotonic() + max(UPLOAD_EVERY_S, took_s / UPLOAD_SHARE)

    def _shorten(self) -> None:
        """Remove the middle of a log of more than `LIMIT` bytes, within its file.

        The first `HEAD` bytes stay, then follows a line with how many bytes were removed so far, and then the last
        `TAIL` bytes. What is written in the instant between the copy of the end and the cut is lost.
        """
        size = self.path.stat().st_size
        if size <= LIMIT:
            return
        self.left_out += size - HEAD - TAIL
        line = f"\n--- {self.left_out:,} bytes are left out here\n".encode()
        with self.path.open("r+b", buffering=0) as file:
            # More than `TAIL` bytes are read, so that what was written since `size` was read is kept too.
            end = line + os.pread(file.fileno(), LIMIT - TAIL, size - TAIL)
            written = os.pwrite(file.fileno(), end, HEAD)
            file.truncate(HEAD + written)


def _flush() -> None:
    """Write the buffered output of this process."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
