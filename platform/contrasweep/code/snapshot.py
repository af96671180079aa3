"""Sources in one zip file, once per digest: what made a trial can be read when the file has changed since.

A snapshot holds the sources of the modules that count and nothing else: no data, no extension modules, and no file with
passwords by its name, which a command may be given.
"""

import io
import os
import zipfile
import zlib
from pathlib import Path

from contrasweep.cluster.package import is_secret
from contrasweep.code.version import Code
from contrasweep.errors import StorageError

MAX_BYTES = 20 * 2**20  # of sources; code of a person's is a hundredth of it
MAX_MODULES = 20_000
KEPT_SUFFIXES = (".py", ".sh", ".bash", ".R", ".r", ".jl", ".lua", ".js", ".yaml", ".yml", ".toml")
"""Endings of the files that are kept: modules, and what a command runs."""
UNPACKED_IN_PARTS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Ways of packing that `zipfile` unpacks piece by piece.

With any other it unpacks a whole member at once, and a hundred bytes of bzip2 may become a hundred megabytes.
"""
_DATE = (1980, 1, 1, 0, 0, 0)  # of every member, so that one content gives one file


class TooLarge(StorageError):
    """The sources are larger than a snapshot may be."""


def pack(code: Code) -> bytes:
    """Return the sources of `code` as a zip file; raise `TooLarge` with the size if that is over `MAX_BYTES`.

    Files with other suffixes than `KEPT_SUFFIXES` are left out. So are files whose name, or the name of the file that
    they link to, says that they hold passwords. The same sources give the same bytes on any machine.
    """
    files = {}
    for source in code.sources.values():
        # A source without a path was put together here, and is no file that could hold passwords.
        paths = (source.file, os.path.realpath(source.path)) if source.path else ()
        if source.file.endswith(KEPT_SUFFIXES) and not any(
            is_secret(Path(path).name) for path in paths
        ):
            files[source.file] = source.data
    size = sum(map(len, files.values()))
    if size > MAX_BYTES or len(files) > MAX_MODULES:
        largest = max(files, key=lambda name: len(files[name]))
        raise TooLarge(
            f"the code has {size / 2**20:.1f} MiB of sources in {len(files)} modules, and {MAX_BYTES / 2**20:.0f} MiB "
            f"in {MAX_MODULES} are kept (largest: {largest}); its digest is recorded, its text is not"
        )
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return sink.getvalue()


def unpack(data: bytes) -> dict[str, str]:
    """Return file name -> text from the bytes of `pack`; nothing is written to a folder.

    Names and sizes are checked before anything is read. `StorageError` for bytes that `pack` cannot have written. Text
    that is not UTF-8 gets replacement characters.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_MODULES or sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise StorageError(
                    "this code snapshot is larger than any that contrasweep writes, so it is not read"
                )
            if any(entry.compress_type not in UNPACKED_IN_PARTS for entry in entries):
                raise StorageError(
                    "this code snapshot is packed as none that contrasweep writes, so it is not read"
                )
            for entry in entries:
                _check_name(entry.filename)
            return {
                entry.filename: archive.open(entry).read(entry.file_size).decode("utf-8", "replace")
                for entry in entries
            }
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
    ) as error:
        raise StorageError(f"a code snapshot cannot be read ({error})") from None


def _check_name(name: str) -> None:
    """Raise `StorageError` for a name in a snapshot that is no relative path below the folder where it is put."""
    parts = name.split("/")  # "" is the first part of an absolute path
    leaves_folder = any(part in ("", ".", "..") for part in parts) or any(
        character in name for character in "\\:\0"
    )
    if leaves_folder or not name.endswith(KEPT_SUFFIXES):
        raise StorageError(
            f"a code snapshot holds a file of the name {name!r}, which is no module's"
        )
