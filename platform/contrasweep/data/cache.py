"""One decoded copy of each split per node, memory-mapped and so shared by all trials there.

An entry is a folder of files that any tool opens: `<column>.npy` for arrays, `rows.arrow` for the rest. It is
built beside its place, renamed into it and never changed. Every use is under the entry's file lock, which the
kernel drops when a process dies, so `kill -9` leaves at most a folder that the next user sweeps away.
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
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from contrasweep.canonical import file_digest
from contrasweep.errors import DataError, StorageError
from contrasweep.storage.names import is_key, local_path
from contrasweep.storage.store import LocalStore

log = logging.getLogger(__name__)
ENTRY = "entry.json"
"""Of an entry: name -> size and digest of each of its files; its time is when the entry was last used."""
SEAL = "verified.json"
"""Of an entry: when its files' digests were last checked, and what `_identity` said of each file then."""
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, StorageError)
"""What reading a damaged or forged entry may raise."""
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
    """Return how many bytes a split's images may have decoded: CONTRASWEEP_DECODED_GIB, or a quarter of the cache.

    Images of a split that would take more stay encoded.
    """
    return _bytes("CONTRASWEEP_DECODED_GIB", limit_bytes() / 2**32)  # a quarter of the GiB


def _bytes(variable: str, default_gib: float) -> int:
    """Return the GiB that an environment variable says, or the default, in bytes; `DataError` where it is no number."""
    text = os.environ.get(variable, str(default_gib))
    try:
        return int(float(text) * 2**30)
    except ValueError:
        raise DataError(f"{variable} must be a number of GiB, got {text!r}") from None


@contextlib.contextmanager
def locked(name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the node-wide lock `name` inside the block. Yields whether it is held: always True if `wait`.

    Without `wait` a lock that another process holds gives False at once.
    """
    folder = cache_folder() / "locks"
    _make(folder)
    lock = filelock.FileLock(folder / f"{name}.lock")
    # First without waiting, so that a wait is said.
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
    """Yield the folder of entry `key`, built by `build(folder)` if it is absent or damaged.

    What is opened inside the block stays readable even if the entry is evicted later. `what` names the data in
    messages. `DataError` where the cache cannot be written or has no space; afterwards others are evicted down to the
    cache's limit.
    """
    folder = cache_folder() / "splits" / key
    with locked(key):
        if not _is_intact(folder, what):
            _build(folder, what, build)
        os.utime(folder / ENTRY)  # it was used now
        yield folder
    evict(limit_bytes(), keep=key)


def _build(folder: Path, what: str, build: Callable[[Path], None]) -> None:
    """Build an entry in a hidden folder and rename it into place, so that no reader sees half of it.

    Where the disk is full, evict all others that are not in use and try once more; `DataError` where that fails too.
    The entry's lock is held.
    """
    _remove(folder)
    _make(folder.parent)
    for attempt in (1, 2):
        # The name is always the same, so what a killed builder has left is swept away here.
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
    """Make the files of a new entry read-only, and write their sizes and digests to `ENTRY` beside them."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": file_digest(file)}
        for file in sorted(folder.iterdir())
    }
    # Read-only, because all processes of the node read these very files.
    for name in files:
        (folder / name).chmod(0o444)
    (folder / ENTRY).write_text(json.dumps(files, indent=1))
    _stamp(folder, files)


def _stamp(folder: Path, files: object) -> None:
    """Note that the files whose names `files` has were verified as they are now; `_identity` shows a change."""
    seal = {"time": time.time(), "files": {name: _identity(folder / name) for name in dict(files)}}  # type: ignore[call-overload]
    scratch = folder / f".{SEAL}-{uuid.uuid4().hex}"
    scratch.write_text(json.dumps(seal))
    scratch.replace(folder / SEAL)


def _identity(file: Path) -> list[int]:
    """Return size, times and inode: some of them change whenever a file's bytes do.

    A program can set the time of modification (mtime) back, never that of the inode's change (ctime).
    """
    at = file.stat()
    return [at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino]


def _is_intact(folder: Path, what: str) -> bool:
    """Return whether the entry is there and whole; of a damaged one a warning names the data, `what`.

    Digests are computed again when a file has changed since they were last verified, and once a day.
    """
    if not folder.is_dir():
        return False
    try:
        # A store reads plain files alone: no link, and no pipe, which would not end.
        store = LocalStore(folder)
        files = json.loads(store.read(ENTRY))
        # A broken seal only means that digests are computed again.
        with contextlib.suppress(*BROKEN):
            seal = json.loads(store.read(SEAL))
            fresh = 0 <= time.time() - seal["time"] < REVERIFY_S
            if fresh and seal["files"] == {name: _identity(folder / name) for name in files}:
                return True
        for name, stated in files.items():
            # A forged name could lead out of the folder, and a link to another file.
            plain = is_key(name) and stat.S_ISREG((folder / name).lstat().st_mode)
            if (
                not plain
                or _identity(folder / name)[0] != stated["bytes"]
                or file_digest(folder / name) != stated["sha256"]
            ):
                raise ValueError(f"{name} has changed")
        _stamp(folder, files)
        return True
    except BROKEN as error:
        log.warning("the node's cached copy of %s is damaged (%s); building it again", what, error)
        return False


def evict(limit: int, keep: str = "") -> int:
    """Remove the least recently used entries until the cache is within `limit` bytes; returns the bytes removed.

    Entries that a process is just opening are left, and so is the one of the key `keep` ("": none). So the cache may
    stay larger, and nothing removed gives 0.
    """
    root = cache_folder() / "splits"
    sizes = {
        folder: _size(folder)
        for folder in (root.iterdir() if root.is_dir() else ())
        if not folder.name.startswith(".")
    }
    # Folders that are built or removed at this moment have hidden names.
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
    """Delete an entry, renamed before, so that no reader sees half of it; do nothing where there is none."""
    if folder.exists():
        doomed = folder.parent / f".removed-{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(doomed)
        discard(doomed)


def discard(path: Path) -> None:
    """Delete a folder, or whatever is in its place. `shutil.rmtree` alone would open a named pipe and block."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _last_used(folder: Path) -> float:
    """Return the unix time at which an entry was last opened; 0 for one without `ENTRY`, which goes first."""
    with contextlib.suppress(OSError):
        return (folder / ENTRY).stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    """Return how many bytes an entry takes on the disk; 0 where it is being removed."""
    # The kernel counts blocks of 512 bytes, whatever the disk's own.
    with contextlib.suppress(OSError):
        return sum(file.stat().st_blocks * 512 for file in folder.iterdir())
    return 0


def _make(folder: Path) -> None:
    """Make a folder of the cache, and those around it, if it is not there; `DataError` where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"the node's cache {cache_folder()} cannot be written ({error}): "
            "point CONTRASWEEP_CACHE at a folder that can"
        ) from None
