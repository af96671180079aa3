"""Reading files that others wrote, without running them."""

import io
import pickle
import re
import zipfile
from pathlib import PurePosixPath
from typing import IO, Any

import numpy as np

from contrasweep.code.snapshot import UNPACKED_IN_PARTS
from contrasweep.errors import DataError

_NUMPY = {"_reconstruct", "scalar", "_frombuffer", "ndarray", "dtype"}
# (module, name) that a pickle of arrays asks for, written by NumPy 1 or 2.
_ALLOWED = {
    (f"numpy.{module}", name)
    for module in ("core.multiarray", "_core.multiarray", "_core.numeric", "core.numeric")
    for name in _NUMPY
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class _PlainUnpickler(pickle.Unpickler):
    """Builds arrays, numbers, bytes, text, lists and dicts. Anything else that a pickle asks for is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the object `module.name` that a pickle asks for; `UnpicklingError` where that is not allowed."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        # A pickle calls the entry `_codecs.encode` for bytes that are written as text.
        if module == "_codecs":
            return _latin1
        # A pickle of NumPy 1 names modules that are in `_core` from NumPy 2 on.
        return super().find_class(module.replace("numpy.core.", "numpy._core."), name)


def _latin1(text: str, encoding: str) -> bytes:
    """Return `text` as bytes, one for each character (Latin-1).

    A pickle of protocol 2 that Python 3 has written holds bytes as such a text. It names this function's counterpart in
    Python with the `encoding`; `UnpicklingError` where that is not `latin1`.
    """
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec {encoding}")
    return text.encode("latin1")


def unpickle(data: bytes, name: str) -> Any:
    """Return the plain value in the pickle `data`. Text that Python 2 wrote is returned as bytes.

    `DataError`, with the `name` of the file, if the pickle is broken, or has anything but arrays, numbers, bytes, text,
    lists and dicts.
    """
    try:
        value = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise any error
        raise DataError(
            f"{name} is not a pickle of plain arrays and is not loaded ({error})"
        ) from None
    if _has_objects(value):
        raise DataError(f"{name} holds an array of Python objects and is not loaded")
    return value


def _has_objects(value: Any) -> bool:
    """Return whether an array of Python objects is in `value`, at any depth of lists and dicts."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.hasobject)
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(_has_objects(item) for item in value)


def check_member(name: str, archive: str) -> str:
    """Return the name of a file in an archive, with `/` between folders; `DataError` if it leads out of the archive.

    `../x`, `/x` and `C:x` do so. `archive` is the archive's name, for the error.
    """
    # A name may have the separators of Windows, or its drives, such as `C:`. `12:30.png` has none.
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", name):
        raise DataError(f"{archive}: {name!r} points outside its folder; it is not read")
    return path.as_posix()


def open_member(archive: zipfile.ZipFile, name: str, limit: int) -> IO[bytes]:
    """Open the zip member `name` for reading; it must have at most `limit` bytes unpacked.

    `DataError` for a larger one, for a name that leads out of the archive, and for other compression than deflate. No
    more bytes are ever read than the archive states.
    """
    info = archive.getinfo(name)
    check_member(info.filename, str(archive.filename))
    # With other compression a member may be unpacked as a whole, however large it is, before a byte is read.
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
    """Return the bytes of the zip member `name`, at most `limit`; `DataError` where `open_member` raises it."""
    with open_member(archive, name, limit) as file:
        return file.read()
