"""The one way in which JSON files of a storage are written and read: with a format version, a digest and a schema.

    {"format_version": 3, "digest": "<SHA-256 of all that follows this line>",
     "name": ...

What earlier releases wrote has no digest: its `format_version` stands among the other members. Nothing in a storage is
trusted, so size, depth, types and names are checked before a value is made of a file.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pydantic
import pydantic_core

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.store import Store

T = TypeVar("T")
Members = dict[str, Any]
"""The members of a JSON object as an earlier release wrote them, before the schema has checked them."""
MAX_BYTES = 64 * 2**20
SCHEMA = pydantic.ConfigDict(extra="forbid", strict=True)
"""How dataclasses that are read from a storage are checked: assign it to their `__pydantic_config__`."""
_HEADER = re.compile(rb'\{"format_version": (\d{1,6}), "digest": "([0-9a-f]{64})",\n')


@dataclass(frozen=True)
class JsonFile(Generic[T]):
    """A kind of JSON file. `schema` checks it, `version` is the newest that this release knows, `upgrade` turns what an
    earlier release wrote (its version, its members) into today's members, `remedy` says what to do about a broken one.
    """

    schema: pydantic.TypeAdapter[T]
    version: int
    remedy: str
    upgrade: Callable[[int, Members], Members] = field(default=lambda version, members: members)
    first_version: int = 1  # that a file without a version has; 0: each has one
    list_name: str = ""  # the member that was all of the file in an earlier release, a list

    def encode(self, members: Mapping[str, object]) -> bytes:
        """The content of such a file."""
        text = json.dumps(members, sort_keys=True, indent=1)
        body = text.removeprefix("{\n").encode() if members else b"}"
        return b'{"format_version": %d, "digest": "%s",\n' % (self.version, _digest(body).encode()) + body

    def decode(self, data: bytes | str, file: str, remedy: str = "") -> T:
        """The value in the content of `file`; `BrokenFileError` that names the file where it is none."""
        data = data.encode() if isinstance(data, str) else data
        return _checked(lambda: self._decode(data), self.version, file, remedy or self.remedy)

    def read(self, store: Store, key: str, remedy: str = "") -> T:
        """The value in the file `key`; `FileNotFoundError` where there is none."""
        return self.decode(store.read(key, MAX_BYTES), f"{store.uri}/{key}", remedy)

    def write(self, store: Store, key: str, members: Mapping[str, object]) -> None:
        """Write the file `key`."""
        store.write(key, self.encode(members))

    def _decode(self, data: bytes) -> T:
        _check_size(data)
        if header := _HEADER.match(data):
            _check_version(int(header[1]), self.version)
            body = data[header.end() :]
            if _digest(body) != header[2].decode():
                raise ValueError("its digest is not that of its content: it was damaged or edited")
            if int(header[1]) == self.version:
                return self.schema.validate_json(b"{" + body)
            data = b"{" + body
            members = pydantic_core.from_json(data)
            version = int(header[1])
        else:
            members = pydantic_core.from_json(data)
            if isinstance(members, list) and self.list_name:
                members = {self.list_name: members}
            if not isinstance(members, dict):
                raise ValueError("it holds no mapping")
            version = members.pop("format_version", self.first_version or None)
            if type(version) is not int or version < 1:
                raise ValueError("its format version is missing or no number")
            _check_version(version, self.version)
            if members.pop("digest", None) is not None:
                raise ValueError("its digest is not where it belongs: it was edited")
        return self.schema.validate_json(json.dumps(self.upgrade(version, members)))


def read_plain(
    schema: pydantic.TypeAdapter[T], data: bytes, version: Callable[[T], int], newest: int, file: str, remedy: str
) -> T:
    """The value in a JSON file that has no header because others than this software read it: with the same bounds and
    errors as a `JsonFile`. `version` finds its version, of which `newest` is known."""

    def read() -> T:
        _check_size(data)
        value = schema.validate_json(data)
        _check_version(version(value), newest)
        return value

    return _checked(read, newest, file, remedy)


def _checked(read: Callable[[], T], newest: int, file: str, remedy: str) -> T:
    """What `read` gives; what it raises as an error that names the file."""
    try:
        return read()
    except _NewerFormat as error:
        raise StorageError(
            f"{file} has format version {error}, and this release reads versions up to {newest}; use the release that "
            f"wrote it, or a newer one"
        ) from None
    except pydantic.ValidationError as error:
        raise BrokenFileError(file, _first(error), remedy) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenFileError(file, str(error), remedy) from None


def _check_size(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, and {MAX_BYTES:,} are read")


def _check_version(version: int, newest: int) -> None:
    if version > newest:
        raise _NewerFormat(version)


class _NewerFormat(Exception):
    """A later release wrote the file."""


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _first(error: pydantic.ValidationError) -> str:
    """The first of pydantic's findings: where, and what."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:100]
    message = first["msg"].removeprefix("Value error, ").removeprefix("Invalid JSON: ")
    return f"{place}: {message}" if place.isprintable() and place else message
