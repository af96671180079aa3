"""Reading files that others wrote, without running them."""

import io
import pickle
import zipfile
from pathlib import PurePosixPath
from typing import IO, Any

import numpy as np

from contrasweep.code.snapshot import UNPACKED_IN_PARTS
from contrasweep.errors import DataError

_NUMPY = {"_reconstruct", "scalar", "_frombuffer", "ndarray", "dtype"}
# What a pickle of arrays asks for: (module, name), of NumPy before and from version 2.
_ALLOWED = {
    (f"numpy.{module}", name)
    for module in ("core.multiarray", "_core.multiarray", "_core.numeric", "core.numeric")
    for name in _NUMPY
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class _Plain(pickle.Unpickler):
    """Builds arrays, numbers, bytes, text, lists and dicts. Whatever else a pickle asks for is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle calls `module.name`; `UnpicklingError` where that is not allowed."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        if module == "_codecs":
            return _latin1
        # NumPy 2 has these in `_core`.
        return super().find_class(module.replace("numpy.core.", "numpy._core."), name)


def _latin1(text: str, encoding: str) -> bytes:
    """Return the bytes that a pickle has as text of Latin-1, as Python 3 writes them under protocol 2.

    `UnpicklingError` for other codecs, which are no data.
    """
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec {encoding}")
    return text.encode("latin1")


def unpickle(data: bytes, name: str) -> Any:
    """Return the plain value pickled in `data`.

    `DataError`, with the `name` of the file, if it holds anything but arrays, numbers, bytes, text, lists and dicts, or
    is broken. Text of Python 2 is read as bytes.
    """
    try:
        value = _Plain(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise DataError(
            f"{name} is not a pickle of plain arrays and is not loaded ({error})"
        ) from None
    if _has_objects(value):
        raise DataError(f"{name} holds an array of Python objects and is not loaded")
    return value


def _has_objects(value: Any) -> bool:
    """Whether an array of Python objects is in `value`, however deep in lists and dicts."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.hasobject)
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(_has_objects(item) for item in value)


def check_member(name: str, archive: str) -> str:
    """Return a member's name with `/` between folders, if it stays below the folder that it is unpacked to.

    Otherwise `DataError` with `archive`, the name of the file that has it.
    """
    # Windows' separators count too, and so do its drives, such as `C:`.
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
        raise DataError(f"{archive}: member {name!r} points outside the archive; it is not read")
    return path.as_posix()


def open_member(archive: zipfile.ZipFile, name: str, limit: int) -> IO[bytes]:
    """Return the zip member `name` open to read, of at most `limit` bytes: one that expands further is a bomb.

    `DataError` for such a one, for a name that leads out of the archive, and for other packing than deflate. No more is
    ever read than the size that the archive states.
    """
    info = archive.getinfo(name)
    check_member(info.filename, str(archive.filename))
    # Other packings may be unpacked as a whole, however large, before a byte is read.
    if info.compress_type not in UNPACKED_IN_PARTS:
        raise DataError(
            f"{archive.filename}: member {name!r} is packed otherwise than by deflate; it is not read"
        )
    if info.file_size > limit:
        raise DataError(
            f"{archive.filename}: member {name!r} expands beyond {limit:,} bytes; it is not read"
        )
    return archive.open(info)


def read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return the bytes of a zip member, at most `limit`; `DataError` as `open_member`."""
    with open_member(archive, name, limit) as file:
        return file.read()
