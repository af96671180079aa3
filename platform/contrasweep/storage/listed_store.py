"""The methods that object stores with entity tags have in common."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator


class ListedStore(ABC):
    """Base class of a `Store` whose objects have entity tags, such as a bucket of S3.

    It has the methods that follow from `entries`, `write` and `delete`. A subclass must have these three, and all other
    methods of `Store`.
    """

    @abstractmethod
    def entries(self, prefix: str) -> Iterator[tuple[str, str, int]]:
        """Yield key, entity tag and size in bytes of each object whose key begins with `prefix`, sorted by key.

        The tag changes with the content. Objects that this software cannot have written (`names.is_key`) are left out.
        """

    @abstractmethod
    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object as `Store.write` says; return whether it was written."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object; no error if there is none."""

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with `prefix`, sorted."""
        yield from (key for key, _, _ in self.entries(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return key -> size in bytes of each object whose key begins with `prefix`."""
        return {key: size for key, _, size in self.entries(prefix)}

    def etags(self, folder: str, name: str) -> dict[str, str]:
        """Return key -> entity tag of each object `<folder><any>/<name>`, where `<any>` is one level."""
        return {
            key: tag
            for key, tag, _ in self.entries(folder)
            if key.endswith(f"/{name}") and key.count("/") == folder.count("/") + 1
        }

    def check_writable(self) -> None:
        """Write an empty object under a random name and delete it; `StorageError` where that fails."""
        key = f".contrasweep-write-check-{uuid.uuid4().hex}"
        self.write(key, b"")
        self.delete(key)
