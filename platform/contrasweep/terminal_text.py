"""The one place where text goes to a terminal: control characters of names, logs and messages are shown, not obeyed.

What a trial printed and what a storage's files say is not trusted. A terminal obeys escape sequences: they move the
cursor over what was printed before, set the window's title and the clipboard, and on some terminals type commands.
Into a file or a pipe text goes as it is.
"""

import re
import sys
from pathlib import Path
from typing import Any, TextIO

from contrasweep.errors import StorageError

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return `text` without colours, and with each control character but newline and tab as its escape (`\x1b`).

    Signs that turn the direction of writing count as control characters. A carriage return becomes a new line, so that
    nothing is printed over.
    """
    text = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class PrintableStream:
    """Wraps the stream of a terminal: it writes `printable` text, and passes all other calls on to the stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write `text`, and return how many characters it has, as a stream's `write` does."""
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each text."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guarded(stream: TextIO) -> TextIO:
    """Return the stream of a terminal as one that writes `printable` text, any other `stream` as it is."""
    if isinstance(stream, PrintableStream) or not stream.isatty():
        return stream
    return PrintableStream(stream)  # type: ignore[return-value]  # it is one by its methods


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream that `guarded` was given, for code that draws by escape sequences of its own."""
    return stream.stream if isinstance(stream, PrintableStream) else stream


def write(content: bytes, output: Path | None) -> None:
    """Write `content` to the file `output`, whose folders are created, or to standard output."""
    if output is None and sys.stdout.isatty():  # which is a `PrintableStream`
        sys.stdout.write(content.decode("utf-8", "replace"))
        return
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(content)
    except OSError as error:
        raise StorageError(
            f"{output} cannot be written ({error.strerror}); choose another --output"
        ) from None
