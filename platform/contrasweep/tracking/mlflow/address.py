"""Tracking addresses: checked before anything is spent, without importing mlflow, and never shown with a password."""

import contextlib
import http.client
import os
import re
import sqlite3
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from contrasweep.errors import SpecError, StorageError
from contrasweep.secrets import redacted, remember, secret_from_environment, secrets_in
from contrasweep.storage.names import local_path

DEFAULT_URI = "sqlite:///mlflow.db"
UI_PORT = 5000
DATABASES = ("postgresql", "mysql")  # besides sqlite
LOCK_PATIENCE_S = 20.0
"""Seconds for which another process may hold a sqlite file; MLflow waits as long."""
PASSWORD = "CONTRASWEEP_TRACKING_PASSWORD"
"""The variable with the password of a database; with _FILE behind it, the name of a file that has it."""

_USE = f"use {DEFAULT_URI}, http(s)://HOST:PORT of an MLflow server, postgresql://USER@HOST/DATABASE, or none"
_PASSWORDS = f"the password of a database in {PASSWORD}, or in the file that {PASSWORD}_FILE names"


@dataclass(frozen=True, repr=False)
class TrackingAddress:
    """The address of an MLflow store. Its text has no password; only `reveal` returns that."""

    _uri: str

    def __post_init__(self) -> None:
        remember(*secrets_in(self._uri))

    def __str__(self) -> str:
        return redacted(self._uri)

    def __repr__(self) -> str:
        return f"TrackingAddress({str(self)!r})"

    @property
    def is_none(self) -> bool:
        """Whether nothing is tracked."""
        return self._uri == "none"

    def __reduce__(self) -> str:
        raise TypeError("a tracking address stays in its process, because it may have a password")

    def reveal(self) -> str:
        """Return the address with its password, as MLflow and the database take it; never to be shown."""
        return self._uri

    @property
    def is_server(self) -> bool:
        """Whether this is an MLflow server rather than its database."""
        return is_server(self._uri)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a file of sqlite."""
        return self._uri.startswith("sqlite")

    @property
    def sqlite_path(self) -> Path:
        """The file of a sqlite address: three slashes before a relative path, four before an absolute one."""
        return _sqlite_path(self._uri)

    def state(self) -> str:
        """Return a text that changes when a sqlite file is written to; "" for stores that have to be asked.

        It is "" too for a file that is not there yet. The write-ahead log of the file counts, because writes go there
        first.
        """
        if not self.is_sqlite or not self.sqlite_path.exists():
            return ""
        files = (self.sqlite_path, self.sqlite_path.with_name(f"{self.sqlite_path.name}-wal"))
        stats = [path.stat() for path in files if path.exists()]
        return " ".join(f"{at.st_ino}-{at.st_mtime_ns}-{at.st_size}" for at in stats)

    @property
    def ui_base(self) -> str:
        """Return the address where a browser finds the runs: the server, or the default one of `contrasweep ui`."""
        return str(self).rstrip("/") if self.is_server else f"http://127.0.0.1:{UI_PORT}"

    def artifact_root(self, storage: str, study: str) -> str | None:
        """Return where a study's artifacts go; None: the server decides.

        They go beside a sqlite file, and into the storage for another database. `storage` is that of the study ("": not
        known).
        """
        if self.is_sqlite:
            return (self.sqlite_path.parent / "mlartifacts" / study).as_uri()
        if self.is_server or not storage:
            return None
        root = storage if "://" in storage else local_path(storage).resolve().as_uri()
        return f"{root.rstrip('/')}/{study}/mlflow-artifacts"


def checked_uri(uri: str, *, connect: bool = True) -> TrackingAddress:
    """Return the checked address, in a form that holds for any working directory.

    `none` stands for no tracking. Without `connect` servers and databases are not asked, because another machine will
    use them. `SpecError` for an address of no known kind of store, `StorageError` where nothing can be written to it.
    """
    # `postgresql` of `postgresql+psycopg2://`.
    scheme = uri.split(":", 1)[0].split("+", 1)[0] if "://" in uri else ""
    if uri == "none":
        return TrackingAddress(uri)
    if scheme == "sqlite":
        return TrackingAddress(_checked_sqlite(uri))
    if scheme in ("http", "https"):
        _check_no_user(uri)
        return TrackingAddress(_checked_http(uri) if connect else uri.rstrip("/"))
    if scheme in DATABASES:
        if not connect:
            return TrackingAddress(uri)
        address = TrackingAddress(_with_password(uri))
        _check_database(address)
        return address
    rule = "unknown kind of tracking store"
    if scheme in ("", "file"):
        rule = "a folder is no tracking store: MLflow 3 keeps its runs in a database"
    raise SpecError(rule, place="tracking", value=redacted(uri), hint=_USE)


def is_server(uri: str) -> bool:
    """Whether `uri` is an MLflow server rather than its database."""
    return uri.startswith(("http://", "https://"))


def _sqlite_path(uri: str) -> Path:
    """Return the file of a sqlite address, without its options (`?timeout=5`)."""
    path = urllib.parse.unquote(uri.split(":///", 1)[1].split("?", 1)[0])
    return local_path(path, "tracking").resolve()


def sqlite_address(path: Path) -> str:
    """Return the address of a sqlite file. SQLAlchemy decodes it, and takes what follows a ? for options."""
    return f"sqlite:///{path}".replace("%", "%25").replace("?", "%3F")


def _with_password(uri: str) -> str:
    """Return a database's address with the password that the environment or a file has, if its own has none.

    `SpecError` where there is a password and the address names no user for it.
    """
    parts = urllib.parse.urlsplit(uri)
    password = "" if parts.password else secret_from_environment(PASSWORD)
    if not password:
        return uri
    if not parts.username:
        raise SpecError(
            f"{PASSWORD} is set, so the address must name the user",
            place="tracking",
            value=redacted(uri),
            hint=_USE,
        )
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(
        netloc=f"{user.removesuffix(':')}:{urllib.parse.quote(password, safe='')}@{host}"
    ).geturl()


def _check_no_user(uri: str) -> None:
    """Raise `SpecError` where an address could hold a password in plain sight."""
    if re.search(r"[@?#]", uri):
        raise SpecError(
            "the address of an MLflow server has no user, password, query or fragment in it",
            place="tracking",
            value=redacted(uri),
            hint="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
        )


def _checked_sqlite(uri: str) -> str:
    """Return the address of a sqlite file as an absolute one; the file need not exist.

    `SpecError` where the address names no file, `StorageError` where it cannot be written or is no database.
    """
    if ":///" not in uri or not uri.split(":///", 1)[1]:
        raise SpecError(
            "a sqlite store needs a file",
            place="tracking",
            value=redacted(uri),
            hint=f"for example {DEFAULT_URI}",
        )
    path = _sqlite_path(uri)
    # Missing folders will be made below the nearest one that exists.
    nearest = next(parent for parent in path.parents if parent.exists())
    is_read_only = path.exists() and not os.access(path, os.W_OK)
    if path.is_dir() or is_read_only or not _takes_files(nearest):
        raise StorageError(
            f"tracking {uri}: {path} cannot be written; choose another file for --tracking"
        )
    if path.exists() and path.stat().st_size:
        _check_database_file(path, uri)
    return sqlite_address(path)


def _takes_files(folder: Path) -> bool:
    """Whether files can be made in a folder. Permissions alone do not tell: root may write anywhere but to /proc."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".tmp-", dir=folder))
    except OSError:
        return False
    return True


def _check_database_file(path: Path, uri: str) -> None:
    """Open the file for writing, by which sqlite also undoes an unfinished transaction of a killed process.

    `StorageError` where another process holds it, it cannot be written, or it is no database of sqlite.
    """
    file = f"file:{urllib.parse.quote(str(path))}?mode=rw"
    try:
        with contextlib.closing(
            sqlite3.connect(file, uri=True, timeout=LOCK_PATIENCE_S, isolation_level=None)
        ) as connection:
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


def _check_database(address: TrackingAddress) -> None:
    """Raise `StorageError` where the database does not answer, `SpecError` where its Python package is missing."""
    import sqlalchemy

    try:
        sqlalchemy.create_engine(
            address.reveal(), connect_args={"connect_timeout": 5}
        ).connect().close()
    except ModuleNotFoundError as error:
        raise SpecError(
            f"this database needs the Python package {error.name}",
            place="tracking",
            value=str(address),
            hint=f"pip install {'mysqlclient' if error.name == 'MySQLdb' else error.name}",
        ) from None
    except (sqlalchemy.exc.SQLAlchemyError, ValueError) as error:
        first = redacted(str(error).splitlines()[0])
        hint = f"; give {_PASSWORDS}" if "password" in first else ""
        raise StorageError(
            f"tracking {address}: the database cannot be reached ({first}){hint}"
        ) from None
