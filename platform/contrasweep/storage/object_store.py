"""`Store`: what every kind of storage does."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from contrasweep.storage.names import MAX_READ


class Store(ABC):
    """An object store. `write` and `put_file` are atomic: a reader sees the old object, the new, or none.

    Every call may raise `StorageError`, with what to do, where the storage fails.
    """

    uri: str

    @abstractmethod
    def read(self, key: str, limit: int = MAX_READ) -> bytes:
        """Return the object's bytes.

        `FileNotFoundError` if there is none, `BrokenFileError` if it has more than `limit` bytes.
        """

    @abstractmethod
    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object, in place of one that is there; with `if_absent` only where the key has none.

        Returns:
            Whether it was written: False only with `if_absent`, where there was one.
        """

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""

    @abstractmethod
    def entries(self, prefix: str) -> Iterator[tuple[str, str, int]]:
        """Yield key, entity tag and size in bytes of each object whose key begins with `prefix`, sorted by key.

        The tag is a text that changes with the content. Keys that this software cannot have written (`names.is_key`)
        are left out.
        """

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with `prefix`, which may end within a name, sorted; all keys where it is ""."""
        yield from (key for key, _, _ in self.entries(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return key -> size in bytes of each object whose key begins with `prefix`."""
        return {key: size for key, _, size in self.entries(prefix)}

    def etags(self, folder: str, name: str) -> dict[str, str]:
        """Return key -> entity tag of each object `<folder><any>/<name>`, where `<any>` is one level.

        `folder` ends with a slash, or is "" for the root.
        """
        return {
            key: tag
            for key, tag, _ in self.entries(folder)
            if key.endswith(f"/{name}") and key.count("/") == folder.count("/") + 1
        }

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object; no error if there is none."""

    @abstractmethod
    def copy(self, key: str, to: str) -> None:
        """Copy the object `key` to the key `to`, in place of an object there.

        `FileNotFoundError` if there is no object `key`.
        """

    @abstractmethod
    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a local file; `OSError` where that cannot be read."""

    @abstractmethod
    def get_file(self, key: str, path: Path) -> None:
        """Write an object's content to the local file `path`, whose folder exists.

        `FileNotFoundError` if there is no such object.
        """

    def check_writable(self) -> None:
        """Raise `StorageError` with the reason where nothing can be written here. Leaves nothing behind."""
        key = f".contrasweep-write-check-{uuid.uuid4().hex}"
        self.write(key, b"")
        self.delete(key)

    @abstractmethod
    def has_conditional_writes(self) -> bool:
        """Return whether only one of two writers with `if_absent` succeeds on the same key. Leaves nothing behind."""
