"""The one way in which JSON files of a storage are written and read: with a format version, a digest and a schema.

    {"format_version": 3, "digest": "<SHA-256 of all that follows this line>",
     "name": ...

Only the format version that this release writes is read. Nothing in a storage is trusted, so size, depth, types and
names are checked before a value is made of a file.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar, dataclass_transform

import pydantic

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.store import Store

T = TypeVar("T")
MAX_BYTES = 64 * 2**20
"""The most bytes of a JSON file that is read."""
SCHEMA = pydantic.ConfigDict(extra="forbid", strict=True)
"""How classes that are read from a storage are checked; `stored` gives it to a dataclass."""
_HEADER = re.compile(rb'\{"format_version": (\d{1,6}), "digest": "([0-9a-f]{64})",\n')
"""The first line of a file, with its version and its digest."""
_VERSION = re.compile(rb'^[{ ]"format_version": (\d{1,6})\b', re.MULTILINE)
"""The version in a file without this header, as releases wrote before files had a digest."""


@dataclass_transform(frozen_default=True)
def stored(cls: type | None = None, *, slots: bool = False) -> Any:
    """Make `cls` a frozen dataclass for what is read from a storage.

    A file is refused that has another field, or a value that is not of exactly its field's type. This is checked where
    a file is read, not where an object is made. `@stored(slots=True)` is for a class with many objects: an object with
    slots takes a third of the memory, and has no `vars`.
    """
    if cls is None:
        return functools.partial(stored, slots=slots)
    cls.__pydantic_config__ = SCHEMA  # type: ignore[attr-defined]
    return dataclass(frozen=True, slots=slots)(cls)


@dataclass(frozen=True)
class JsonFile(Generic[T]):
    """A kind of JSON file in a storage, such as record.json: its dataclass, its format version and its remedy.

    A file that is not valid raises `BrokenFileError`, with the file's name and the remedy, which says what to do. A
    file that another release wrote in another format raises `StorageError`. Methods that read have an argument
    `remedy`, which takes the place of the usual one unless it is "".
    """

    content: type[T]
    version: int  # of the format
    remedy: str  # what to do about a broken file of this kind

    @functools.cached_property
    def schema(self) -> pydantic.TypeAdapter[T]:
        """The check of the content, made when the first file is read."""
        return pydantic.TypeAdapter(self.content)

    def encode(self, content: T | Mapping[str, object]) -> bytes:
        """Return the bytes of a file with this content, behind the header with format version and digest.

        `content` is an object of the file's dataclass, or a mapping of its fields as plain JSON. Whether a mapping has
        the right fields is not checked.
        """
        members = content if isinstance(content, Mapping) else asdict(content)  # type: ignore[call-overload]
        # The header is in place of the opening brace, and has the digest of all that follows it.
        text = json.dumps(members, sort_keys=True, indent=1)
        body = text.removeprefix("{\n").encode() if members else b"}"
        return (
            b'{"format_version": %d, "digest": "%s",\n' % (self.version, _digest(body).encode())
            + body
        )

    def decode(self, data: bytes, file: str, remedy: str = "") -> T:
        """Return the value in `data`, the content of the file with the name `file`.

        `BrokenFileError` where it is not valid, `StorageError` where it has another format.
        """
        return _checked(lambda: self._decode(data), file, remedy or self.remedy)

    def read(self, store: Store, key: str, remedy: str = "") -> T:
        """Return the value in the file `key`; `FileNotFoundError` where there is none, else errors as for `decode`."""
        return self.decode(store.read(key, MAX_BYTES), f"{store.uri}/{key}", remedy)

    def find(self, store: Store, key: str, remedy: str = "") -> T | None:
        """Return the value in the file `key`; None where there is none. Errors are as for `decode`."""
        try:
            return self.read(store, key, remedy)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, store: Store, key: str, content: T | Mapping[str, object]) -> None:
        """Write what `encode` returns to the file `key`, in place of what is there."""
        store.write(key, self.encode(content))

    def _decode(self, data: bytes) -> T:
        """Return the value in `data`; `ValueError` where version, digest or types are not as they should be."""
        _check_size(data)
        header = _HEADER.match(data)
        # The version is checked first, so that a file of another release is not called damaged. Files of the oldest
        # releases have a version and no header.
        stated = header or _VERSION.search(data)
        if stated:
            _check_version(int(stated[1]), self.version)
        if header is None:
            raise ValueError("it does not begin with a format version and a digest")
        body = data[header.end() :]
        if _digest(body) != header[2].decode():
            raise ValueError("its digest is not that of its content: it was damaged or edited")
        return self.schema.validate_json(b"{" + body)


def read_plain(
    schema: pydantic.TypeAdapter[Any], data: bytes, version: int, file: str, remedy: str
) -> Any:
    """Return the value in a JSON file without a header, which other software reads too.

    Args:
        schema: The check of its content, whose value has the attribute `schema_version`.
        data: The content.
        version: What `schema_version` has to be.
        file: Its name, for errors.
        remedy: What to do about a broken file, for errors.

    Raises:
        BrokenFileError: The content is not valid or too large.
        StorageError: Another release wrote the file in another format.
    """

    def read() -> Any:
        """Return the value of the whole content; raise an error that `_checked` turns into a `ContrasweepError`."""
        _check_size(data)
        value = schema.validate_json(data)
        _check_version(value.schema_version, version)
        return value

    return _checked(read, file, remedy)


def _checked(read: Callable[[], T], file: str, remedy: str) -> T:
    """Return what `read()` returns; errors of it mean a broken file, and become a `BrokenFileError`.

    The error has the `file`'s name and the `remedy`. Where another release wrote the file in another format it is not
    broken: that is a `StorageError`.
    """
    try:
        return read()
    except _OtherFormat as error:
        raise StorageError(
            f"{file} has {error}; use the release that wrote it, or choose another storage or another name"
        ) from None
    except pydantic.ValidationError as error:
        raise BrokenFileError(file, _first_problem(error), remedy) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenFileError(file, str(error), remedy) from None


def _check_size(data: bytes) -> None:
    """Raise `ValueError` for a file of more than `MAX_BYTES`, before it is parsed."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, and {MAX_BYTES:,} are read")


def _check_version(stated: int, version: int) -> None:
    """Raise `_OtherFormat` where a file states another format version than the one that is read."""
    if stated != version:
        raise _OtherFormat(
            f"format version {stated}, and this release reads and writes version {version}"
        )


class _OtherFormat(Exception):
    """Another release wrote the file."""


def _digest(body: bytes) -> str:
    """Return the SHA-256, in hexadecimal digits, of `body`: all bytes of a file that follow its header."""
    return hashlib.sha256(body).hexdigest()


def _first_problem(error: pydantic.ValidationError) -> str:
    """Return the first problem that pydantic has found, with its place, as a line: `arms.0: Input should be ...`.

    A place with control characters, which a forged file may have, is left out.
    """
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:100]
    message = first["msg"].removeprefix("Value error, ").removeprefix("Invalid JSON: ")
    return f"{place}: {message}" if place.isprintable() and place else message
