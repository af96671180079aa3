"""Where studies and datasets lie: a local folder, or `s3://bucket/prefix`. One protocol, keys with slashes."""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from contrasweep.errors import StorageError


class Store(Protocol):
    """An object store. `write` and `put_file` are atomic: a reader sees the old object, the new, or none."""

    uri: str

    def read(self, key: str) -> bytes:
        """The object's bytes; `FileNotFoundError` if there is none."""

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object; with `if_absent` only where there is none. Whether it was written."""

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""

    def list(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix`, sorted."""

    def etags(self, folder: str, name: str) -> dict[str, str]:
        """Of each `<folder><any>/<name>`, by key, a text that changes with its content."""

    def delete(self, key: str) -> None:
        """Delete an object; no error if there is none."""

    def copy(self, key: str, to: str) -> None:
        """Copy one object; what is at `to` is replaced."""

    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a local file."""

    def get_file(self, key: str, path: Path) -> None:
        """Write an object's content to the local file `path`; `FileNotFoundError` if there is none."""

    def check_writable(self) -> None:
        """`StorageError` that says why nothing can be written here; leaves nothing behind."""


def open_store(uri: str) -> Store:
    """The store at `uri`: `s3://bucket/prefix`, `file:///folder`, or a folder's path."""
    if uri.startswith("s3://"):
        from contrasweep.storage.s3 import S3Store

        return S3Store(uri)
    if "://" in uri and not uri.startswith("file://"):
        raise StorageError(f"{uri}: storage must be a folder or an s3:// address")
    return LocalStore(Path(uri.removeprefix("file://")).expanduser().resolve())


class LocalStore:
    """A folder. Objects are written beside their place under a hidden name and renamed into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = str(root)

    def read(self, key: str) -> bytes:
        """The file's content."""
        return (self.root / key).read_bytes()

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write and flush a hidden file, then rename it into place."""

        def fill(temporary: Path) -> None:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

        return self._place(key, fill, if_absent)

    def put_file(self, key: str, path: Path) -> None:
        """Copy the file beside its place, then rename it."""
        self._place(key, lambda temporary: shutil.copyfile(path, temporary), if_absent=False)

    def get_file(self, key: str, path: Path) -> None:
        """Copy the file to `path`."""
        shutil.copyfile(self.root / key, path)

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""
        return (self.root / key).is_file()

    def list(self, prefix: str = "") -> Iterator[str]:
        """Keys of the files whose keys begin with `prefix`, sorted, without unfinished ones."""
        top = (self.root / f"{prefix}_").parent  # what lies in a folder `a` and in `ab` both begins with `a`
        keys = (
            (Path(folder) / name).relative_to(self.root).as_posix()
            for folder, _, files in os.walk(top)
            for name in files
            if not name.startswith(".tmp-")
        )
        yield from sorted(key for key in keys if key.startswith(prefix))

    def etags(self, folder: str, name: str) -> dict[str, str]:
        """Inode, modification time and size of each file, by key."""
        etags = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    at = os.stat(f"{entry.path}/{name}")  # a file is replaced by another inode, never written in place
                    etags[f"{folder}{entry.name}/{name}"] = f"{at.st_ino}-{at.st_mtime_ns}-{at.st_size}"
        return etags

    def delete(self, key: str) -> None:
        """Unlink the file, if there is one."""
        (self.root / key).unlink(missing_ok=True)

    def copy(self, key: str, to: str) -> None:
        """Give the file a second name where the file system can, else copy it."""

        def link(temporary: Path) -> None:
            try:  # objects are replaced and never written in place, so two names may share one
                os.link(self.root / key, temporary)
            except OSError:
                shutil.copyfile(self.root / key, temporary)

        self._place(to, link, if_absent=False)

    def check_writable(self) -> None:
        """Create and remove a folder in the root, or in its nearest parent that exists."""
        nearest = next(p for p in (self.root, *self.root.parents) if p.exists())
        try:  # permissions alone do not tell: root may write anywhere but to /proc and read-only mounts
            os.rmdir(tempfile.mkdtemp(prefix=".tmp-", dir=nearest))
        except OSError as error:
            raise StorageError(f"storage {self.uri} cannot be written ({error.strerror} in {nearest})") from None

    def _place(self, key: str, fill: object, if_absent: bool) -> bool:
        target = self.root / key
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.parent / f".tmp-{uuid.uuid4().hex}"
            try:
                fill(temporary)  # type: ignore[operator]
                if if_absent:
                    try:
                        os.link(temporary, target)
                    except FileExistsError:
                        return False
                else:
                    temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"storage {self.uri}: {key} cannot be written ({error})") from error
        return True
