"""A store of studies and datasets: a local folder or `s3://bucket/prefix`. Keys are paths with slashes."""

import contextlib
import errno
import io
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from contrasweep.errors import SpecError, StorageError
from contrasweep.secrets import redacted
from contrasweep.storage.names import MAX_READ, is_key, local_path, too_large

COPY_BYTES = 2**20
"""How much of a file is copied at a time."""


class Store(Protocol):
    """An object store. `write` and `put_file` are atomic: a reader sees the old object, the new, or none.

    Every call may raise `StorageError`, with what to do, where the storage fails.
    """

    uri: str

    def read(self, key: str, limit: int = MAX_READ) -> bytes:
        """Return the object's bytes.

        `FileNotFoundError` if there is none, `BrokenFileError` if it has more than `limit` bytes.
        """

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object, in place of one that is there; with `if_absent` only where the key has none.

        Returns:
            Whether it was written: False only with `if_absent`, where there was one.
        """

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with `prefix`, which may end within a name, sorted; all keys where it is "".

        Keys that this software cannot have written (`names.is_key`) are left out.
        """

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return key -> size in bytes of each object whose key begins with `prefix`."""

    def etags(self, folder: str, name: str) -> dict[str, str]:
        """Return key -> a text that changes with the content, for each object `<folder><any>/<name>`.

        `folder` ends with a slash, or is "" for the root; `<any>` is one level.
        """

    def delete(self, key: str) -> None:
        """Delete an object; no error if there is none."""

    def copy(self, key: str, to: str) -> None:
        """Copy the object `key` to the key `to`, in place of an object there.

        `FileNotFoundError` if there is no object `key`.
        """

    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a local file; `OSError` where that cannot be read."""

    def get_file(self, key: str, path: Path) -> None:
        """Write an object's content to the local file `path`, whose folder exists.

        `FileNotFoundError` if there is no such object.
        """

    def check_writable(self) -> None:
        """Raise `StorageError` with the reason where nothing can be written here. Leaves nothing behind."""

    def has_conditional_writes(self) -> bool:
        """Return whether only one of two writers with `if_absent` succeeds on the same key. Leaves nothing behind."""


def open_store(uri: str, *, patient: bool = False, place: str = "storage") -> Store:
    """Return the store at `uri`.

    Args:
        uri: `s3://bucket/prefix`, another address that fsspec knows, `file:///folder`, or a folder.
        patient: The server of an s3:// address is known to be there, so that an outage is waited out from the first
            call on.
        place: Where the address was given, for errors.

    Raises:
        SpecError: This machine cannot have such a folder, or the address has a password in it. An address is stored and
            shown to others.
        StorageError: The address has no bucket, or fsspec cannot open it.
    """
    # `redacted` changes a text only where it finds a secret.
    if redacted(uri) != uri:
        hint = "leave it out; for s3:// set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for others their own variables"
        raise SpecError(
            "an address of a storage has no key or password in it",
            place=place,
            value=redacted(uri),
            hint=hint,
        )
    if uri.startswith("s3://"):
        from contrasweep.storage.s3 import S3Store

        return S3Store(uri, patient=patient)
    if "://" in uri and not uri.startswith("file://"):
        from contrasweep.storage.fsspec_store import FsspecStore

        return FsspecStore(uri)
    return LocalStore(local_path(uri.removeprefix("file://"), place).resolve())


class LocalStore:
    """A store in a local folder: an object is a file.

    Each file is written under a hidden name beside its place, and then renamed, so that readers see it whole or not at
    all.
    """

    def __init__(self, root: Path) -> None:
        """Take the folder `root`, which is made when something is first written."""
        self.root = root
        self.uri = str(root)

    def read(self, key: str, limit: int = MAX_READ) -> bytes:
        """Return the file's content; `StorageError` for what is no plain file, such as a link or a pipe."""
        with self._open(key) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise too_large(self.uri, key, size, limit)
            return file.read()

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write and flush a hidden file, then rename it to its place; return whether that was done (`Store.write`)."""
        return self._place(key, lambda temporary: _flushed(temporary, io.BytesIO(data)), if_absent)

    def put_file(self, key: str, path: Path) -> None:
        """Copy the file to a hidden file and flush that, then rename it to its place."""
        # Where the local file cannot be opened, the storage is not at fault.
        with path.open("rb") as file:
            self._place(key, lambda temporary: _flushed(temporary, file), if_absent=False)

    def get_file(self, key: str, path: Path) -> None:
        """Copy the file of this key to the local file `path`."""
        with self._open(key) as file, path.open("wb") as to:
            shutil.copyfileobj(file, to, COPY_BYTES)

    def exists(self, key: str) -> bool:
        """Return whether a file has this key."""
        with self._error_if_it_cannot("be looked up", key):
            return self._path(key).is_file()

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with `prefix`, sorted, without those of files that are still being written."""

        def failed(error: OSError) -> None:
            """Raise the error of a folder that cannot be read, unless it does not exist: then it has no files."""
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise error

        # The folder with all keys that begin with `prefix`: `grid` for `grid/tr`, `grid/trials` for `grid/trials/`. The
        # `_` gives a prefix that ends with a slash a last name too, and `.parent` takes the last name off.
        top = (self.root / f"{prefix}_").parent
        keys = (
            (Path(folder) / name).relative_to(self.root).as_posix()
            for folder, _, files in os.walk(top, onerror=failed)
            for name in files
            if not name.startswith(".tmp-")
        )
        with self._error_if_it_cannot("be listed", prefix):
            listed = sorted(key for key in keys if key.startswith(prefix) and is_key(key))
        yield from listed

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return key -> bytes of each file whose key begins with `prefix`."""
        with self._error_if_it_cannot("be listed", prefix):
            # `lstat` gives the size of a link itself, whose target may not exist.
            return {key: self._path(key).lstat().st_size for key in self.list(prefix)}

    def etags(self, folder: str, name: str) -> dict[str, str]:
        """Return key -> inode, modification time and size as a text, for each file `<folder><any>/<name>`."""
        etags = {}
        # A folder that does not exist, or vanishes while it is read, has no objects.
        absent = contextlib.suppress(FileNotFoundError)
        listing = self._error_if_it_cannot("be listed", folder)
        with absent, listing, os.scandir(self.root / folder) as entries:
            for entry in entries:
                if not is_key(entry.name):
                    continue
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    # A file that is replaced gets another inode, since no file is written in place.
                    status = os.stat(f"{entry.path}/{name}")
                    etag = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
                    etags[f"{folder}{entry.name}/{name}"] = etag
        return etags

    def delete(self, key: str) -> None:
        """Unlink the file, if there is one."""
        with self._error_if_it_cannot("be deleted", key):
            self._path(key).unlink(missing_ok=True)

    def copy(self, key: str, to: str) -> None:
        """Make `to` a second name of the file where the file system can do that, else copy the file.

        A link or a pipe, which nothing reads, gets a second name too. `StorageError` where that cannot be.
        """

        def link(temporary: Path) -> None:
            """Make `temporary` a hard link to the object's file, or a copy where the file system has no hard links."""
            # Two names may share a file, because a file is replaced and never written in place.
            try:
                # A link is not followed, as Python 3.15 and later do by default: else the file that it leads to would
                # get into the storage.
                os.link(self._path(key), temporary, follow_symlinks=False)
            except OSError:
                self.get_file(key, temporary)

        # Within `_place` a file that is not found is a failure of the write.
        with self._error_if_it_cannot("be looked up", key):
            self._path(key).lstat()
        self._place(to, link, if_absent=False)

    def check_writable(self) -> None:
        """Raise `StorageError` where no file can be written in the folder, or in its nearest parent that exists.

        To find out, a folder is made there and removed.
        """
        nearest = next(path for path in (self.root, *self.root.parents) if path.exists())
        # Permissions alone do not tell: a user with all permissions cannot write to /proc or to a read-only mount.
        try:
            os.rmdir(tempfile.mkdtemp(prefix=".tmp-", dir=nearest))
        except OSError as error:
            raise StorageError(
                f"storage {self.uri} cannot be written ({error.strerror} in {nearest})"
            ) from None

    def has_conditional_writes(self) -> bool:
        """Return True: only one of several processes can create a file, or a link, with a name."""
        return True

    def _place(self, key: str, fill: Callable[[Path], object], if_absent: bool) -> bool:
        """Let `fill(temporary)` write a hidden file, move that to `key`, and return whether it was moved.

        With `if_absent` it is not moved where `key` has a file. The hidden file is removed at the end, after an error
        too.
        """
        target = self._path(key)
        with self._error_if_it_cannot("be written", key):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.parent / f".tmp-{uuid.uuid4().hex}"
            try:
                fill(temporary)
                if if_absent:
                    return _create(target, temporary)
                temporary.replace(target)
            finally:
                # A hidden file that cannot be removed does no harm.
                with contextlib.suppress(OSError):
                    temporary.unlink()
        return True

    @contextlib.contextmanager
    def _error_if_it_cannot(self, what: str, key: str) -> Iterator[None]:
        """Turn an `OSError` in the block into a `StorageError` with the sentence `<key> cannot <what> (...)`.

        `what` is for example `be read`. `FileNotFoundError` passes unchanged, because a caller expects it, but not with
        `be written`.
        """
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and what != "be written":
                raise
            why = "it is a link" if error.errno == errno.ELOOP else error
            raise StorageError(f"storage {self.uri}: {key} cannot {what} ({why})") from error

    def _path(self, key: str) -> Path:
        """Return the path of an object; `StorageError` where its key would lead out of the folder."""
        if key.startswith("/") or "\0" in key or ".." in key.split("/"):
            raise StorageError(
                f"storage {self.uri}: the key {key[:200]!a} leads out of it; it is not used"
            )
        return self.root / key

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[BinaryIO]:
        """Open the plain file of this key for reading; `StorageError` where it is a link, a pipe or a folder.

        `FileNotFoundError` where there is no such file.
        """
        # O_NOFOLLOW refuses a link. With O_NONBLOCK a pipe is opened without waiting for its writer, and refused below.
        with self._error_if_it_cannot("be read", key), contextlib.ExitStack() as opened:
            try:
                number = os.open(
                    self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                )
            except NotADirectoryError as error:
                raise FileNotFoundError(str(error)) from None
            file = opened.enter_context(os.fdopen(number, "rb"))
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise StorageError(f"storage {self.uri}: {key} is no plain file; it is not read")
            yield file


def _flushed(path: Path, content: BinaryIO, mode: str = "wb") -> None:
    """Write `content` to a file and flush it to the disk, so that it is whole after a power cut too.

    With `mode` `xb`, raises `FileExistsError` where the file exists.
    """
    with path.open(mode) as file:
        shutil.copyfileobj(content, file, COPY_BYTES)
        file.flush()
        os.fsync(file.fileno())


def _create(target: Path, source: Path) -> bool:
    """Create the file `target` with the content of the file `source`; return whether it was created.

    A `target` that exists is left as it is, so that only one of several processes can create it. `source` stays.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        # NFS raises this error too where the link was made and the answer was lost.
        return source.samefile(target)
    except OSError:
        # FUSE, exFAT and SMB have no hard links. `target` is then created by one process only too, but others may see
        # it before it is whole.
        try:
            with source.open("rb") as file:
                _flushed(target, file, "xb")
        except FileExistsError:
            return False
    return True
