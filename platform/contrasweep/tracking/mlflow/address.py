"""Tracking addresses: checked before anything is spent, without importing mlflow."""

import os
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from contrasweep.errors import SpecError, StorageError

DEFAULT_URI = "sqlite:///mlflow.db"
UI_PORT = 5000
DATABASES = ("postgresql", "mysql")  # besides sqlite

_USE = f"use {DEFAULT_URI}, http(s)://HOST:PORT of an MLflow server, postgresql://USER:PASSWORD@HOST/DATABASE, or none"


def checked_uri(uri: str, *, timeout_s: float = 5.0, connect: bool = True) -> str:
    """`uri` as it must be written for any working directory; a one-line error if it cannot work.

    `SpecError` for an address that names no kind of store we know, `StorageError` for one that nothing can be
    written to. `none` stands for no tracking. Without `connect` servers are not asked: another machine will.
    """
    scheme = uri.split(":", 1)[0].split("+", 1)[0] if "://" in uri else ""
    if uri == "none":
        return uri
    if scheme == "sqlite":
        return _checked_sqlite(uri)
    if scheme in ("http", "https"):
        return _checked_http(uri, timeout_s) if connect else uri.rstrip("/")
    if scheme in DATABASES:
        return _checked_database(uri) if connect else uri
    if scheme in ("", "file"):
        raise SpecError(
            "a folder is no tracking store: MLflow 3 keeps its runs in a database",
            place="tracking",
            value=uri,
            hint=_USE,
        )
    raise SpecError("unknown kind of tracking store", place="tracking", value=uri, hint=_USE)


def is_server(uri: str) -> bool:
    """Whether `uri` is an MLflow server rather than its database."""
    return uri.startswith(("http://", "https://"))


def sqlite_path(uri: str) -> Path:
    """The file of a sqlite address: three slashes before a relative path, four before an absolute one."""
    return Path(uri.split(":///", 1)[1].split("?", 1)[0]).expanduser().resolve()


def artifact_root(uri: str, storage: str, study: str) -> str | None:
    """Where a study's artifacts go: beside a sqlite file, in the storage for another database; None: the
    server decides."""
    if uri.startswith("sqlite"):
        return (sqlite_path(uri).parent / "mlartifacts" / study).as_uri()
    if is_server(uri) or not storage:
        return None
    root = storage if "://" in storage else Path(storage).expanduser().resolve().as_uri()
    return f"{root.rstrip('/')}/{study}/mlflow-artifacts"


def ui_base(uri: str) -> str:
    """Where a browser finds the runs: the server, or where `contrasweep ui` puts one up by default."""
    return uri.rstrip("/") if is_server(uri) else f"http://127.0.0.1:{UI_PORT}"


def without_password(uri: str) -> str:
    """`uri` as it may be printed and logged."""
    parts = urllib.parse.urlsplit(uri)
    return uri.replace(f":{parts.password}@", ":***@") if parts.password else uri


def _checked_sqlite(uri: str) -> str:
    if ":///" not in uri or not uri.split(":///", 1)[1]:
        raise SpecError("a sqlite store needs a file", place="tracking", value=uri, hint=f"for example {DEFAULT_URI}")
    path = sqlite_path(uri)
    nearest = next(parent for parent in path.parents if parent.exists())
    if path.is_dir() or not nearest.is_dir() or not os.access(path if path.exists() else nearest, os.W_OK):
        raise StorageError(f"tracking {uri}: {path} cannot be written; choose another file for --tracking")
    if path.exists() and path.stat().st_size:
        try:
            with sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?mode=ro", uri=True) as connection:
                connection.execute("select count(*) from sqlite_master")
        except sqlite3.DatabaseError as error:
            raise StorageError(f"tracking {uri}: {path} is no sqlite database ({error}); choose another file") from None
    return f"sqlite:///{path}"


def _checked_http(uri: str, timeout_s: float) -> str:
    """Ask the server's /health, which needs no login."""
    uri = uri.rstrip("/")
    start = "start one with `mlflow server`, or give --tracking none now and run `contrasweep sync` later"
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=timeout_s):
            return uri
    except urllib.error.HTTPError as error:
        reason = "it does not know this host name: start it with --allowed-hosts" if error.code == 403 else error.reason
        if error.code == 401:
            return uri
        raise StorageError(
            f"tracking {uri}: no MLflow server answers at /health (HTTP {error.code}, {reason})"
        ) from None
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", error)
        raise StorageError(f"tracking {uri}: no MLflow server answers there ({cause}); {start}") from None


def _checked_database(uri: str) -> str:
    import sqlalchemy

    shown = without_password(uri)
    try:
        sqlalchemy.create_engine(uri, connect_args={"connect_timeout": 5}).connect().close()
    except ModuleNotFoundError as error:
        raise SpecError(
            f"this database needs the Python package {error.name}",
            place="tracking",
            value=shown,
            hint=f"pip install {error.name}",
        ) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        first = str(error).splitlines()[0]
        raise StorageError(f"tracking {shown}: the database cannot be reached ({first})") from None
    return uri
