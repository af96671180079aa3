"""Any file system that fsspec knows as a storage, such as `memory://` or `sftp://host/folder`.

Each write replaces a whole object. A write with `if_absent` looks first whether there is an object. Two writers at once
may both find none and write, so a study must have one driver.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from contrasweep.errors import StorageError
from contrasweep.storage.listed_store import ListedStore
from contrasweep.storage.names import MAX_READ, is_key, too_large

T = TypeVar("T")
TAGS = (
    "etag",
    "ETag",
    "md5Hash",
    "content_md5",
    "generation",
    "mtime",
    "created",
    "LastModified",
    "last_modified",
)
"""Fields, of one file system or another, that change when an object is replaced."""


class FsspecStore(ListedStore):
    """The objects below an address; no listing is cached."""

    def __init__(self, uri: str) -> None:
        """Open the storage at `uri`; `StorageError` where it cannot be opened, or needs a package that is missing."""
        import fsspec

        self.uri = uri.rstrip("/")
        try:
            self.fs, root = fsspec.core.url_to_fs(self.uri, use_listings_cache=False)
        except ImportError as error:
            raise StorageError(f"{uri}: this storage needs a package ({error})") from None
        except ValueError as error:
            raise StorageError(
                f"{uri}: storage must be a folder, an s3:// address, or one that fsspec knows ({error})"
            ) from None
        except Exception as error:  # file systems raise anything, such as for missing credentials
            raise StorageError(f"{uri}: the storage cannot be opened ({_line(error)})") from None
        self.root = root.rstrip("/")

    def __reduce__(self) -> tuple[Any, ...]:
        # A store that is pickled to another process opens its file system there.
        return FsspecStore, (self.uri,)

    def read(self, key: str, limit: int = MAX_READ) -> bytes:
        """Return the object's bytes; `BrokenFileError` where they are more than `limit`."""
        # The size is asked first, so that a large object is not fetched.
        size = self._do("read", key, lambda: self.fs.size(self._path(key)))
        if size > limit:
            raise too_large(self.uri, key, size, limit)
        data: bytes = self._do("read", key, lambda: self.fs.cat_file(self._path(key)))
        return data

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write one object and return whether it was written; with `if_absent` only where the key has no object.

        Of two writers with `if_absent` at once, both may write.
        """
        if if_absent and self.exists(key):
            return False
        self._do("write", key, lambda: self.fs.pipe_file(self._with_folders(key), data))
        return True

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        is_file: bool = self._do("look up", key, lambda: self.fs.isfile(self._path(key)))
        return is_file

    def entries(self, prefix: str) -> Iterator[tuple[str, str, int]]:
        """Yield key, tag and bytes of each object whose key begins with `prefix`, sorted.

        The tag is a text that changes with the content: the size, and those fields of `TAGS` that the file system has.
        """
        # A prefix may end within a name: its whole folder is listed, and the other keys are left out below.
        where = f"{self.root}/{prefix.rpartition('/')[0]}".rstrip("/")
        try:
            # Path -> what the file system says about the object, by fields that differ between file systems.
            below: dict[str, dict[str, object]] = self._do(
                "list", prefix, functools.partial(self.fs.find, where, detail=True)
            )
        except FileNotFoundError:
            return
        for path, info in sorted(below.items()):
            key = path.removeprefix(f"{self.root}/")
            is_below_root = key != path
            if is_below_root and key.startswith(prefix) and is_key(key):
                tags = (str(info[tag]) for tag in ("size", *TAGS) if info.get(tag) is not None)
                yield key, "-".join(tags), int(str(info.get("size") or 0))

    def delete(self, key: str) -> None:
        """Delete the object, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            self._do("delete", key, lambda: self.fs.rm_file(self._path(key)))

    def copy(self, key: str, to: str) -> None:
        """Copy the object `key` to `to` on the server."""
        self._do("copy", key, lambda: self.fs.cp_file(self._path(key), self._with_folders(to)))

    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a local file."""
        self._do("write", key, lambda: self.fs.put_file(str(path), self._with_folders(key)))

    def get_file(self, key: str, path: Path) -> None:
        """Write the object's content to the local file `path`."""
        self._do("read", key, lambda: self.fs.get_file(self._path(key), str(path)))

    def has_conditional_writes(self) -> bool:
        """Return False: no file system of fsspec promises that only one of two writers succeeds."""
        return False

    def _path(self, key: str) -> str:
        """Return the path by which the file system knows an object."""
        return f"{self.root}/{key}"

    def _with_folders(self, key: str) -> str:
        """Return the path of an object, after making the folders that it lies in."""
        path = self._path(key)
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        return path

    def _do(self, what: str, key: str, call: Callable[[], T]) -> T:
        """Return what `call()` returns; its errors become a `StorageError`, except `FileNotFoundError`.

        `what` is a verb and `key` the object for the message: `storage memory://s: cannot read grid/study.json (...)`.
        """
        try:
            return call()
        except FileNotFoundError:
            raise
        except Exception as error:  # file systems raise what their client libraries raise
            raise StorageError(
                f"storage {self.uri}: cannot {what} {key} ({_line(error)})"
            ) from None


def _line(error: BaseException) -> str:
    """Return an error as one line of at most 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
