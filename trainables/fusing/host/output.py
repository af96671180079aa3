"""What the process of a cohort prints, read back so that each member's log can have its part."""

import contextlib
import os
import sys
import tempfile
import warnings

LIMIT = 2**16
"""Bytes that are kept of what is printed between two readings."""


class CapturedOutput:
    """Takes standard output and error of this process, with what compiled code writes there, until it is closed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process prints
        self._saved = (os.dup(1), os.dup(2))
        _flush()
        for number in (1, 2):
            os.dup2(self._file.fileno(), number)

    def read(self) -> str:
        """What was printed since the last reading; of much its beginning."""
        _flush()
        size = os.fstat(self._file.fileno()).st_size
        if not size:
            return ""
        text = os.pread(self._file.fileno(), LIMIT, 0).decode(errors="replace")
        os.ftruncate(self._file.fileno(), 0)
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        return text if size <= LIMIT else f"{text}\n--- {size - LIMIT:,} bytes are left out here\n"

    def show_warnings_again(self) -> None:
        """A warning that an earlier member caused is shown again for the next."""
        with warnings.catch_warnings():  # leaving it makes Python forget which it has shown
            pass

    def close(self) -> None:
        """Give standard output and error back."""
        _flush()
        for number, before in zip((1, 2), self._saved, strict=True):
            os.dup2(before, number)
            os.close(before)
        self._file.close()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
