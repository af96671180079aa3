"""The check of a sqlite tracking address: what a killed process left, what another holds, what may not be written."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from answering import answering
from refusals import refused

from contrasweep.errors import SpecError, StorageError
from contrasweep.tracking.mlflow import address
from contrasweep.tracking.mlflow.address import TrackingAddress, checked_uri
from contrasweep.tracking.mlflow.client import new_client


def _dump(database):
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def test_a_database_whose_writer_was_killed_is_used_again(mlflow_uri, tmp_path):
    """The journal of a writer that was killed within a transaction is rolled back, and nothing else is lost."""
    database = tmp_path / "mlflow.db"
    before = _dump(database)
    code = (
        "import os, signal, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('pragma cache_size=1'); c.execute('begin'); "  # pages go to the file before the transaction ends
        "c.execute('create table half as with recursive n(i) as (select 1 union all select i + 1 from n limit 20000) "
        "select i, hex(randomblob(50)) from n'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(database)]).returncode == -signal.SIGKILL
    assert (tmp_path / "mlflow.db-journal").stat().st_size
    assert checked_uri(mlflow_uri) == mlflow_uri
    assert not (tmp_path / "mlflow.db-journal").exists() and _dump(database) == before


@pytest.mark.slow
def test_a_database_that_a_killed_process_was_making_is_made_anew(tmp_path):
    """MLflow's own steps fail on what the earlier ones left: the tables are whole, or not there."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    fresh = tmp_path / ".mlflow.db.new"
    code = f"""
import os, sqlalchemy
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.client import new_client
@sqlalchemy.event.listens_for(sqlalchemy.Engine, "before_cursor_execute")
def executes(connection, cursor, statement, *others):
    if "_alembic_tmp_" in statement:
        os.kill(os.getpid(), 9)
new_client(TrackingAddress({uri!r}))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert b"runs" in fresh.read_bytes() and not (tmp_path / "mlflow.db").exists()
    assert [e.name for e in new_client(TrackingAddress(uri)).search_experiments()] == ["Default"]
    assert not fresh.exists()


def test_a_locked_database_is_waited_for(mlflow_uri, tmp_path, monkeypatch):
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as other:
        other.execute("begin exclusive")
        with monkeypatch.context() as impatient:
            impatient.setattr(address, "LOCK_PATIENCE_S", 0.1)
            with refused(StorageError, "mlflow.db is locked by another process") as caught:
                checked_uri(mlflow_uri)
        assert "no sqlite database" not in str(caught.value)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(checked_uri, mlflow_uri)
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
            other.execute("rollback")
            assert waiting.result(60) == mlflow_uri


def test_a_database_may_lie_in_a_folder_of_any_name(tmp_path, monkeypatch):
    (folder := tmp_path / "50%41 of? #1").mkdir()
    monkeypatch.chdir(folder)
    uri = checked_uri("sqlite:///mlflow.db")
    new_client(uri)
    assert [*tmp_path.rglob("*.db")] == [uri.sqlite_path] == [folder / "mlflow.db"]
    assert checked_uri(uri) == uri


@pytest.mark.parametrize("read_only", ["mlflow.db", "."])
def test_a_database_that_cannot_be_written_is_one_line(
    read_only, mlflow_uri, tmp_path, monkeypatch
):
    denied = tmp_path / read_only  # `root` may write to anything, so that a mode would show nothing
    access = os.access
    mkdir = os.mkdir

    def denied_mkdir(path, *mode):
        if Path(path).parent == denied:
            raise PermissionError
        mkdir(path, *mode)

    monkeypatch.setattr(os, "mkdir", denied_mkdir)
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != denied and access(path, mode)
    )
    with refused(StorageError, "mlflow.db cannot be written; choose another file"):
        checked_uri(mlflow_uri)


def test_a_server_that_asks_for_a_password_is_one():
    with answering(otherwise=(401, "")) as server:
        assert checked_uri(f"{server.address}/") == server.address


def test_the_address_of_a_server_has_no_query_in_it():
    with refused(SpecError, "has no user, password, query or fragment in it"):
        checked_uri("http://host:5000?x=1")
