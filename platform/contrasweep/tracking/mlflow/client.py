"""An MLflow client whose errors are all `TrackingError`, whatever the store."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from contrasweep import canonical
from contrasweep.imports import require
from contrasweep.tracking.mlflow.address import TrackingAddress, sqlite_address
from contrasweep.tracking.tracker import TrackingError

# Environment variables of MLflow and their values here, where the user has not set them.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # we retry ourselves: MLflow's retry of create_run makes second runs
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",  # its warnings are of retries; what fails in the end is said here, in a line
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
# MLflow's codes of errors after which a second try of the same call cannot work.
_FINAL = {
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "INVALID_STATE",
    "ENDPOINT_NOT_FOUND",
    "FEATURE_DISABLED",
    "RESOURCE_DOES_NOT_EXIST",
}
_DATABASE_FAULT = "https://sqlalche.me/"
"""The link with which each error of SQLAlchemy, the database's library, ends."""


def new_client(uri: TrackingAddress) -> "Client":
    """Return a client of a store that `checked_uri` has checked; `TrackingError` where it cannot be opened.

    A sqlite file is made where it is missing.
    """
    require("mlflow")
    for name, value in SETTINGS.items():  # before mlflow is imported, which `translate_errors` does
        os.environ.setdefault(name, value)
    return Client(translate_errors(_open_sqlite if uri.is_sqlite else _open, uri))


def _open(uri: TrackingAddress) -> Any:
    """Return MLflow's own client of a store."""
    from mlflow import MlflowClient

    return MlflowClient(uri)


def _open_sqlite(uri: TrackingAddress) -> Any:
    """Return MLflow's own client of a sqlite file, which is made where it is missing or empty.

    One process at a time opens it: two at once break the schema of a new file.
    """
    path = uri.sqlite_path
    path.parent.mkdir(parents=True, exist_ok=True)
    # The lock's file stays for ever, so it lies in the folder of temporary files and not beside the database. Its name
    # is made of the user too, since nobody may open a lock of another user.
    name = canonical.digest(f"{os.getuid()}:{path}", 16)
    with FileLock(Path(tempfile.gettempdir()) / f"contrasweep-{name}.lock"):
        if not path.exists() or not path.stat().st_size:
            _make_database(path)
        client = _open(uri)
        # The first call brings an older schema up to date: also a thing for one process at a time.
        client.search_experiments(max_results=1)
    return client


def _make_database(path: Path) -> None:
    """Make a new database of MLflow at `path`, which appears there only when it is whole.

    MLflow makes its tables in some fifty steps, and cannot go on with a file that a killed process left half made. So
    they are made in a file beside it, which then takes its place.
    """
    fresh = path.with_name(f".{path.name}.new")
    for leftover in (fresh, fresh.with_name(f"{fresh.name}-journal")):
        leftover.unlink(missing_ok=True)
    _open(TrackingAddress(sqlite_address(fresh))).search_experiments(max_results=1)
    fresh.replace(path)


class Client:
    """An `MlflowClient` whose calls raise `TrackingError` alone."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return partial(translate_errors, getattr(self._client, name))


def translate_errors(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what `function` gives for these arguments; any error becomes a `TrackingError`.

    The error is retryable where a later try may work: the store is away, or somebody has deleted what the call names,
    which the next try makes again.
    """
    from mlflow.exceptions import MlflowException

    try:
        return function(*arguments, **named)
    except TrackingError:
        raise
    except MlflowException as error:
        gone = error.error_code == "RESOURCE_DOES_NOT_EXIST" or "'active' state" in str(error)
        # MLflow calls a fault of its database, such as a locked row, a bad request.
        retryable = gone or _DATABASE_FAULT in str(error) or error.error_code not in _FINAL
        raise TrackingError(str(error), retryable=retryable) from error
    except Exception as error:  # artifact stores raise what their own libraries raise
        raise TrackingError(f"{type(error).__name__}: {error}", retryable=True) from error
