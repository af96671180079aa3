"""Checks of names and sizes that come from a storage, a trainable or a user."""

import functools
import re
from pathlib import Path
from typing import Annotated

import pydantic

from contrasweep.errors import BrokenFileError, SpecError

MAX_NAME = 200
"""The most characters of a label, and of one level of a key or path."""
MAX_FILE_NAME = 500
"""The most characters of a file's name with the folders before it."""
MAX_LEVELS = 20
"""The most levels of such a name."""
MAX_KEY = 1024
"""The most characters of a key, which has the names of study, trial and checkpoint before that of a file."""
MAX_KEY_LEVELS = 100
MAX_READ = 4 * 2**30
"""The most bytes of an object that is read at once: a forged one may have any size."""


def check_name(name: str) -> str:
    """Return `name` if it can be one level of a key or path; else raise ValueError with the reason.

    It has 1 to `MAX_NAME` printable characters, no slash or backslash, is neither `.` nor
    `..`, and does not begin with `.tmp-`.
    """
    if not name or name in (".", "..") or len(name) > MAX_NAME:
        raise ValueError(f"{_quoted(name)} is no name of a file or folder")
    if "/" in name or "\\" in name or not name.isprintable():
        raise ValueError(
            f"the name {_quoted(name)} has a slash, a backslash or a control character"
        )
    if name.startswith(".tmp-"):
        raise ValueError(f"the name {_quoted(name)} is kept for files that are being written")
    name.encode()  # UnicodeEncodeError, a ValueError, for a name that no bucket can have
    return name


def check_file_name(name: str) -> str:
    """Return `name` if it is a relative path inside its folder, such as `net/weights.pt`; else raise ValueError.

    Each level passes `check_name`, and the path has at most `MAX_FILE_NAME` characters and `MAX_LEVELS` levels.
    """
    parts = name.split("/")
    if len(name) > MAX_FILE_NAME or len(parts) > MAX_LEVELS:
        raise ValueError(
            f"the file name {_quoted(name)} is longer or deeper than {MAX_FILE_NAME} and {MAX_LEVELS}"
        )
    if ".." in parts or parts[0] == "":
        raise ValueError(f"the file name {_quoted(name)} points outside its folder")
    for part in parts:
        check_name(part)
    return name


def is_key(key: str) -> bool:
    """Return whether this software can have written an object with this key; stores list no other objects.

    Others who may write to a bucket can give objects any key.
    """
    if len(key) > MAX_KEY or key.count("/") >= MAX_KEY_LEVELS:
        return False
    try:
        for part in key.split("/"):
            check_name(part)
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=4096)  # thousands of records have the same names
def check_label(text: str) -> str:
    """Return `text` if it is a line of at most `MAX_NAME` printable characters (also ""); else raise ValueError."""
    if len(text) > MAX_NAME or not text.isprintable():
        raise ValueError(f"{_quoted(text)} is no line of at most {MAX_NAME} printable characters")
    return text


def as_line(text: str) -> str:
    """Return `text` as it is if it is printable; else with all that is not printable ASCII escaped as in Python."""
    return text if text.isprintable() else ascii(text)[1:-1]


def as_label(text: str) -> str:
    """Return `text` as a valid label, with control characters escaped, and cut to `MAX_NAME` characters."""
    line = as_line(text)
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 3]}..."


def local_path(text: str | Path, place: str = "storage") -> Path:
    """Return the path `text` with `~` replaced by the home folder; the path need not exist.

    Raises `SpecError` for a path that this machine cannot have, also "", and for an address with one slash; the error
    names `place` as where the path was given.
    """
    # `Path` would take "", as of a variable that is not set, for the current folder.
    if not str(text):
        raise SpecError("a path is not empty", place=place, hint="`.` is the current folder")
    check_slashes(str(text), place)
    try:
        path = Path(text).expanduser()
        path.resolve()
    # RuntimeError: there is no such user, or links go in a circle. ValueError: a null character.
    except (RuntimeError, ValueError) as error:
        hint = str(error).rstrip(".").lower()
        if str(text).startswith("~"):
            hint += "; ./~NAME is a folder in the current one"
        raise SpecError(
            "this machine can have no such path", place=place, value=str(text), hint=hint
        ) from None
    return path


def check_slashes(text: str, place: str) -> None:
    """Raise `SpecError` for an address such as `s3:/bucket`, which would be taken for a folder of that name."""
    found = re.match(r"([a-z][a-z0-9+]+):/(?!/)(.*)", text)
    if found:
        kind, rest = found.groups()
        # A folder of this machine follows a third slash: file:///runs.
        slashes = "///" if kind in ("file", "sqlite") else "//"
        rule = "one slash behind a colon makes no address"
        raise SpecError(rule, place=place, value=text, hint=f"{kind}:{slashes}{rest}")


def too_large(uri: str, key: str, size: int, limit: int) -> BrokenFileError:
    """Return the error for an object of `size` bytes, of which at most `limit` are read."""
    problem = f"it has {size:,} bytes, and {limit:,} are read"
    return BrokenFileError(f"{uri}/{key}", problem, "nothing here writes such a one; delete it")


Name = Annotated[str, pydantic.AfterValidator(check_name)]
FileName = Annotated[str, pydantic.AfterValidator(check_file_name)]
Label = Annotated[str, pydantic.AfterValidator(check_label)]


def _quoted(name: str) -> str:
    """Return a name for a message: in quotes, in ASCII with other characters escaped, and cut to 60 characters."""
    return ascii(name if len(name) <= 60 else f"{name[:57]}...")
