"""Many calls of MLflow in one transaction of a local sqlite store.

MLflow commits some thirteen times for one trial, and every commit of sqlite waits for the disk. Here its sessions of
one thread join one transaction on one connection: each call is a savepoint of it, so a call that fails undoes its own
writes only, and all are on the disk once the transaction is. Other threads and processes see none of it before.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from contrasweep.tracking.mlflow.client import TrackingError

HOLD_S = 0.5
"""How long a transaction takes in further trials: others who write to the file wait so long, for at most 20 s."""
GAP_S = 0.025
"""Between two transactions: sqlite has no queue, and who waits looks again every tenth of a second."""
PRAGMAS = ("PRAGMA foreign_keys = ON", "PRAGMA busy_timeout = 20000", "PRAGMA case_sensitive_like = true")
"""What MLflow sets for each of its sessions; the first has no effect within a transaction."""

Item = TypeVar("Item")


def in_transactions(client: Any, items: Sequence[Item], send: Callable[[Item], Any]) -> Iterator[list[Item]]:
    """Call `send` for each of `items`, and give those of each transaction once it is committed. `client` is an
    `MlflowClient` on a sqlite store. What `send` raises undoes the transaction it is in and is raised; `TrackingError`
    where the transaction could not be begun or committed."""
    sessions, rest = _joined_sessions(client), list(items)
    while rest:
        sent: list[Item] = []
        until = time.monotonic() + HOLD_S
        with sessions.transaction():
            while rest and (not sent or time.monotonic() < until):
                send(rest[0])
                sent.append(rest.pop(0))
        yield sent
        if rest:
            time.sleep(GAP_S)


class _JoinedSessions:
    """MLflow's maker of sessions, in whose place it stands: within `transaction` its sessions join that, for the
    thread that began it."""

    def __init__(self, store: Any) -> None:
        self._plain, self._engine, self._own = store.ManagedSessionMaker, store.engine, threading.local()

    def __call__(self, read_only: bool = True) -> Any:
        make = getattr(self._own, "make", None) or self._plain
        return make(read_only=read_only)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All that this thread writes to the store meanwhile is committed at the end, or nothing of it."""
        from mlflow.store.db.utils import _get_managed_session_maker
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.orm import sessionmaker

        try:
            with self._engine.connect() as connection:
                for pragma in PRAGMAS:
                    connection.exec_driver_sql(pragma)
                connection.commit()
                with connection.begin():
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                    sessions = sessionmaker(bind=connection, join_transaction_mode="create_savepoint")
                    self._own.make = _get_managed_session_maker(sessions, "")  # "": the pragmas are set already
                    try:
                        yield
                    finally:
                        self._own.make = None
                    if not connection.connection.dbapi_connection.in_transaction:  # a full disk makes sqlite undo all
                        raise TrackingError("sqlite gave the transaction up: is its disk full?", retryable=True)
        except SQLAlchemyError as error:
            raise TrackingError(f"{type(error).__name__}: {error}", retryable=True) from error


_REPLACING = threading.Lock()


def _joined_sessions(client: Any) -> _JoinedSessions:
    """That of the client's store, which all clients of this process on one file share."""
    store = client._tracking_client.store
    with _REPLACING:
        if not isinstance(store.ManagedSessionMaker, _JoinedSessions):
            store.ManagedSessionMaker = _JoinedSessions(store)
    sessions: _JoinedSessions = store.ManagedSessionMaker
    return sessions
