"""Files that settings name: a file's content is part of what a trial is, so its digest stands behind its path."""

import functools
import hashlib
from pathlib import Path

from contrasweep.errors import DataError, SpecError
from contrasweep.storage.names import local_path

DIGITS = 16


def with_digest(path: str, place: str) -> str:
    """`path` as `path#digest`; one that has a digest is taken as it is. `SpecError` at `place` where there is no such
    file."""
    if "#" in path:
        return path
    file = local_path(path, place)
    if not file.is_file():
        raise SpecError("there is no such file", place=place, value=path)
    return f"{path}#{_digest(file)}"


def checked_file(text: str, place: str) -> Path:
    """The file of a `path#digest`, or of a plain path; `DataError` where its content is another than when the study was
    planned."""
    path, _, digest = text.partition("#")
    file = local_path(path, place)
    if not file.is_file():
        raise DataError(f"{place}: {path} is not on this host")
    if digest and (here := _digest(file)) != digest:
        raise DataError(
            f"{place}: {path} has digest {here} here and had {digest} when the study was planned: give every host the "
            f"same file, or plan again"
        )
    return file


def _digest(file: Path) -> str:
    stat = file.stat()
    return _digest_of(file, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(64)
def _digest_of(file: Path, mtime_ns: int, size: int) -> str:
    """Of a file as it is now; read once as long as it does not change."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:DIGITS]
