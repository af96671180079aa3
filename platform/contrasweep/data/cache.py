"""The node's cache: one decoded copy of each split per node, memory-mapped and so shared by all trials there.

An entry is a folder of files that any tool opens: `<column>.npy` for arrays, `rows.arrow` for the other columns. It is
built in a hidden folder, renamed to its place and never changed. It is opened under a file lock of its own, which the
kernel releases when a process dies. So `kill -9` leaves at most a hidden folder, which the next user deletes.
"""

import contextlib
import errno
import json
import logging
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import filelock

from contrasweep.canonical import file_digest
from contrasweep.errors import DataError, StorageError
from contrasweep.storage.names import is_key, local_path
from contrasweep.storage.store import LocalStore

log = logging.getLogger(__name__)
ENTRY = "entry.json"
"""The file of an entry with name -> size and digest of each other file. Its time is when the entry was last used."""
SEAL = "verified.json"
"""The file of an entry that says when digests were last checked, and what `_identity` returned for each file then."""
ENTRY_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    StorageError,
)
"""Errors that reading a damaged or forged entry may raise."""
REVERIFY_S = 24 * 3600
"""Seconds after which digests are checked again, although no file has changed."""
DEFAULT_LIMIT_GIB = 64.0


def cache_folder() -> Path:
    """Return the node's cache: CONTRASWEEP_CACHE, or ~/.cache/contrasweep."""
    return local_path(
        os.environ.get("CONTRASWEEP_CACHE") or "~/.cache/contrasweep", "CONTRASWEEP_CACHE"
    )


def limit_bytes() -> int:
    """Return the cache's size limit in bytes: CONTRASWEEP_CACHE_GIB, or 64 GiB."""
    return _bytes("CONTRASWEEP_CACHE_GIB", DEFAULT_LIMIT_GIB)


def decoded_limit_bytes() -> int:
    """Return the most bytes that a split's images may take decoded; images that would take more stay encoded.

    It is CONTRASWEEP_DECODED_GIB, or a quarter of the cache's limit.
    """
    return _bytes("CONTRASWEEP_DECODED_GIB", limit_bytes() / 4 / 2**30)


def _bytes(variable: str, default_gib: float) -> int:
    """Return the size that an environment variable gives in GiB, in bytes; `default_gib` GiB where it is not set.

    `variable` is the name of the environment variable. `DataError` where its value is not a number.
    """
    text = os.environ.get(variable, str(default_gib))
    try:
        return int(float(text) * 2**30)
    except (ValueError, OverflowError):
        raise DataError(f"{variable} must be a number of GiB, got {text!r}") from None


@contextlib.contextmanager
def locked(name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock `name` of this node in a `with` block, and yield whether the lock is held.

    With `wait`, this waits until another process releases the lock, and always yields True. Without `wait`, it yields
    False at once where another process holds the lock.
    """
    folder = cache_folder() / "locks"
    _make(folder)
    lock = filelock.FileLock(folder / f"{name}.lock")
    # The first try does not wait, so that a wait is logged before it begins.
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        if not wait:
            yield False
            return
        log.info("waiting for another process that prepares %s", name)
        lock.acquire()
    try:
        yield True
    finally:
        lock.release()


@contextlib.contextmanager
def entry(key: str, what: str, build: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the folder of the entry `key`, which `build(folder)` fills if it is absent or damaged.

    Files that are opened in the block stay readable even if the entry is evicted later. `what` names the data in
    messages. After the block, other entries are evicted until the cache is within its limit. `DataError` where the
    cache cannot be written or has no space.
    """
    folder = cache_folder() / "splits" / key
    with locked(key):
        if not _is_intact(folder, what):
            _build(folder, what, build)
        os.utime(folder / ENTRY)  # its time is that of the last use
        yield folder
    evict(limit_bytes(), keep=key)


def _build(folder: Path, what: str, build: Callable[[Path], None]) -> None:
    """Build an entry with `build` in a hidden folder, and then rename this to `folder`.

    So no other process ever sees an incomplete entry. The caller holds the entry's lock; `what` names the data in
    errors. Where the disk is full, all other entries that are not in use are evicted, and the entry is built once more.
    `DataError` where the second attempt fails too.
    """
    _remove(folder)
    _make(folder.parent)
    for attempt in (1, 2):
        # The name is always the same, so that what a killed process has left is deleted here.
        scratch = folder.parent / f".building-{folder.name}"
        discard(scratch)
        try:
            scratch.mkdir()
            build(scratch)
            _seal(scratch)
            scratch.rename(folder)
            return
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Nothing could be evicted, or the space is still too small.
            if attempt == 2 or not evict(0, keep=folder.name):
                free = shutil.disk_usage(folder.parent).free / 2**30
                raise DataError(
                    f"no space for {what} in the node's cache {cache_folder()} ({free:.1f} GiB free): "
                    "free some, or point CONTRASWEEP_CACHE at a larger disk"
                ) from None
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


def _seal(folder: Path) -> None:
    """Make the files of a new entry read-only, and write the size and SHA-256 of each to the file `ENTRY` in `folder`.

    It also stamps the files: see `_stamp`.
    """
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": file_digest(file)}
        for file in sorted(folder.iterdir())
    }
    # Read-only, because all processes of the node share these files.
    for name in files:
        (folder / name).chmod(0o444)
    (folder / ENTRY).write_text(json.dumps(files, indent=1))
    _stamp(folder, files)


def _stamp(folder: Path, names: Iterable[str]) -> None:
    """Write to the file `SEAL` in `folder` that the digests of the files `names` were right just now.

    `SEAL` has the time and, for each file, its `_identity`, which shows later whether the file has changed since.
    """
    seal = {"time": time.time(), "files": {name: _identity(folder / name) for name in names}}
    scratch = folder / f".{SEAL}-{uuid.uuid4().hex}"
    scratch.write_text(json.dumps(seal))
    # Replaced at once, so that no reader sees half of it.
    scratch.replace(folder / SEAL)


def _identity(file: Path) -> list[int]:
    """Return the file's size, times of modification and change (ns), and inode: at least one changes when its bytes do.

    A program can set the time of modification (mtime) back, but not the time of the inode's change (ctime).
    """
    at = file.stat()
    return [at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino]


def _is_intact(folder: Path, what: str) -> bool:
    """Return whether the entry exists and is whole; for a damaged one a warning with `what` is logged.

    Digests are computed again where a file has changed since they were last checked, and once a day. `SEAL` says when
    that was, and which sizes, times and inodes the files had then (see `_stamp`).
    """
    if not folder.is_dir():
        return False
    try:
        # A store reads plain files only: no links, and no pipes, which never end.
        store = LocalStore(folder)
        files = json.loads(store.read(ENTRY))
        # If the seal is broken, digests are computed again below.
        with contextlib.suppress(*ENTRY_ERRORS):
            seal = json.loads(store.read(SEAL))
            is_recent = 0 <= time.time() - seal["time"] < REVERIFY_S
            if is_recent and seal["files"] == {name: _identity(folder / name) for name in files}:
                return True
        for name, stated in files.items():
            # A forged name could lead out of the folder, and a link to another file.
            file = folder / name
            is_plain = is_key(name) and stat.S_ISREG(file.lstat().st_mode)
            if (
                not is_plain
                or file.stat().st_size != stated["bytes"]
                or file_digest(file) != stated["sha256"]
            ):
                raise ValueError(f"{name} has changed")
        _stamp(folder, files)
        return True
    except ENTRY_ERRORS as error:
        log.warning("the node's cached copy of %s is damaged (%s); building it again", what, error)
        return False


def evict(limit: int, keep: str = "") -> int:
    """Remove the least recently used entries until the cache is within `limit` bytes; return the bytes removed.

    The entry `keep` ("": none) and entries that a process is just opening are not removed, so that the cache may stay
    larger.
    """
    root = cache_folder() / "splits"
    folders = root.iterdir() if root.is_dir() else ()
    # Folders with hidden names are being built or removed at this moment.
    sizes = {folder: _size(folder) for folder in folders if not folder.name.startswith(".")}
    excess = sum(sizes.values()) - limit
    removed = 0
    for folder in sorted(sizes, key=_last_used):
        if removed >= excess:
            break
        if folder.name == keep:
            continue
        with locked(folder.name, wait=False) as held:
            if held:
                log.info("evicting %s from the node's cache", folder.name)
                _remove(folder)
                removed += sizes[folder]
    return removed


def _remove(folder: Path) -> None:
    """Delete an entry; do nothing where there is none.

    The entry is renamed first, so that no other process ever sees an entry with some of its files deleted.
    """
    if folder.exists():
        doomed = folder.parent / f".removed-{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(doomed)
        discard(doomed)


def discard(path: Path) -> None:
    """Delete a folder, or a file, link or pipe in its place."""
    # `shutil.rmtree` would open a named pipe and block.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _last_used(folder: Path) -> float:
    """Return the unix time at which an entry was last opened; 0 for one without `ENTRY`, which is evicted first."""
    with contextlib.suppress(OSError):
        return (folder / ENTRY).stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    """Return how many bytes an entry takes on the disk; 0 where it is being removed."""
    # `st_blocks` counts blocks of 512 bytes on every disk.
    with contextlib.suppress(OSError):
        return sum(file.stat().st_blocks * 512 for file in folder.iterdir())
    return 0


def _make(folder: Path) -> None:
    """Make a folder of the cache, with its parents, if it does not exist; `DataError` where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"the node's cache {cache_folder()} cannot be written ({error}): "
            "point CONTRASWEEP_CACHE at a folder that can"
        ) from None
