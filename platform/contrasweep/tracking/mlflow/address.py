"""Tracking addresses: checked before anything is spent, without importing mlflow."""

import contextlib
import http.client
import os
import re
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from contrasweep.errors import SpecError, StorageError
from contrasweep.secrets import redacted
from contrasweep.storage.names import local_path
from contrasweep.storage.store import LocalStore

DEFAULT_URI = "sqlite:///mlflow.db"
UI_PORT = 5000
LOCK_PATIENCE_S = 20.0
"""Seconds for which another process may hold a sqlite file; MLflow waits as long."""
_USE = (
    f"use {DEFAULT_URI}, http(s)://HOST:PORT of an MLflow server (`mlflow server --backend-store-uri` takes other "
    "databases), or none"
)


class TrackingAddress(str):
    """The address of an MLflow store, which never has a password: `none`, a sqlite file or a server."""

    @property
    def is_none(self) -> bool:
        """Whether nothing is tracked."""
        return self == "none"

    @property
    def is_server(self) -> bool:
        """Whether this is an MLflow server rather than a file."""
        return self.startswith(("http://", "https://"))

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a file of sqlite."""
        return self.startswith("sqlite:")

    @property
    def sqlite_path(self) -> Path:
        """The path of the file that a sqlite address names, as an absolute path.

        In the address, three slashes stand before a relative path, and four before an absolute one. Options such as
        `?timeout=5` are left out.
        """
        _, _, path_and_options = self.partition(":///")
        path, _, _ = path_and_options.partition("?")
        return local_path(urllib.parse.unquote(path), "tracking").resolve()

    def state(self) -> str:
        """Return a text that changes whenever a sqlite file is written to: inode, time and size.

        The file's write-ahead log counts too, because sqlite writes there first. It is "" for a file that does not
        exist, and for a server, which would have to be asked.
        """
        if not self.is_sqlite or not self.sqlite_path.exists():
            return ""
        files = (self.sqlite_path, self.sqlite_path.with_name(f"{self.sqlite_path.name}-wal"))
        stats = [path.stat() for path in files if path.exists()]
        return " ".join(f"{stat.st_ino}-{stat.st_mtime_ns}-{stat.st_size}" for stat in stats)

    @property
    def ui_base(self) -> str:
        """Return the address where a browser finds the runs: the server, or the default one of `contrasweep ui`."""
        return self.rstrip("/") if self.is_server else f"http://127.0.0.1:{UI_PORT}"

    def artifact_root(self, study: str) -> str | None:
        """Return the address of the folder for a study's artifacts: `mlartifacts/<study>` beside the sqlite file.

        None for a server, which decides on this itself.
        """
        if self.is_server:
            return None
        return (self.sqlite_path.parent / "mlartifacts" / study).as_uri()


def checked_uri(uri: str, *, connect: bool = True) -> TrackingAddress:
    """Return the checked address of MLflow's store. The path of a sqlite file becomes an absolute one.

    `none` stands for no tracking. Without `connect` servers are not asked, because another machine will use them.
    `SpecError` for an address of no known kind of store, `StorageError` where nothing can be written to it.
    """
    address = TrackingAddress(uri)
    if address.is_none:
        return address
    if address.is_sqlite:
        return TrackingAddress(_checked_sqlite(address))
    if address.is_server:
        _check_no_user(uri)
        return TrackingAddress(_checked_http(uri) if connect else uri.rstrip("/"))
    rule = "unknown kind of tracking store"
    if "://" not in uri or uri.startswith("file:"):
        rule = "a folder is no tracking store: MLflow 3 keeps its runs in a database"
    raise SpecError(rule, place="tracking", value=redacted(uri), hint=_USE)


def sqlite_address(path: Path) -> str:
    """Return the address of a sqlite file. % and ? are encoded: SQLAlchemy decodes %, and reads options behind a ?."""
    return f"sqlite:///{path}".replace("%", "%25").replace("?", "%3F")


def _check_no_user(uri: str) -> None:
    """Raise `SpecError` where an address could hold a password in plain sight."""
    if re.search(r"[@?#]", uri):
        raise SpecError(
            "the address of an MLflow server has no user, password, query or fragment in it",
            place="tracking",
            value=redacted(uri),
            hint="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
        )


def _checked_sqlite(uri: TrackingAddress) -> str:
    """Return the address of a sqlite file as an absolute one; the file need not exist.

    `SpecError` where the address names no file, `StorageError` where it cannot be written or is no database.
    """
    _, _, place = uri.partition(":///")
    if not place:
        raise SpecError(
            "a sqlite store needs a file",
            place="tracking",
            value=redacted(uri),
            hint=f"for example {DEFAULT_URI}",
        )
    path = uri.sqlite_path
    try:
        LocalStore(path.parent).check_writable()
        is_writable = not path.exists() or (path.is_file() and os.access(path, os.W_OK))
    except StorageError:
        is_writable = False
    if not is_writable:
        raise StorageError(
            f"tracking {uri}: {path} cannot be written; choose another file for --tracking"
        )
    if path.exists() and path.stat().st_size:
        _check_database_file(path, uri)
    return sqlite_address(path)


def _check_database_file(path: Path, uri: str) -> None:
    """Open the file for writing, by which sqlite also undoes an unfinished transaction of a killed process.

    `StorageError` where another process holds it, it cannot be written, or it is no database of sqlite.
    """
    file = f"file:{urllib.parse.quote(str(path))}?mode=rw"
    try:
        with contextlib.closing(
            sqlite3.connect(file, uri=True, timeout=LOCK_PATIENCE_S, isolation_level=None)
        ) as connection:
            # Takes the lock for writing, and then reads the file, which must be a database for that.
            connection.execute("begin immediate")
            connection.execute("select count(*) from sqlite_master")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith("SQLITE_BUSY"):
            raise StorageError(
                f"tracking {uri}: {path} is locked by another process, for over {LOCK_PATIENCE_S:.0f} s; "
                "try again once that has ended (`fuser` names it)"
            ) from None
        raise StorageError(
            f"tracking {uri}: {path} cannot be opened for writing ({error})"
        ) from None
    except sqlite3.DatabaseError as error:
        raise StorageError(
            f"tracking {uri}: {path} is no sqlite database ({error}); choose another file"
        ) from None


def _checked_http(uri: str) -> str:
    """Return the address without a slash at its end, once the server has answered at /health; else `StorageError`.

    A server that wants a login even there counts as one that is there.
    """
    uri = uri.rstrip("/")
    start = "start one with `mlflow server`, or give --tracking none now and run `contrasweep sync` later"
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5.0):
            return uri
    except urllib.error.HTTPError as error:
        if error.code == 401:
            return uri
        reason = error.reason
        if error.code == 403:
            reason = "it does not know this host name: start it with --allowed-hosts"
        raise StorageError(
            f"tracking {uri}: no MLflow server answers at /health (HTTP {error.code}, {reason})"
        ) from None
    # HTTPException: what answers there speaks no HTTP, or the address is none.
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = " ".join(str(getattr(error, "reason", error)).split())
        cause = cause if cause.isprintable() else "what answers speaks no HTTP"
        raise StorageError(
            f"tracking {uri}: no MLflow server answers there ({cause}); {start}"
        ) from None
