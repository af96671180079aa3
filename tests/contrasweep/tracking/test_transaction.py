"""Many calls of MLflow in one transaction of sqlite: committed whole or undone whole, and never believed too early."""

import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tracking_services import wait_until
from contrasweep.data.manifest import Manifest
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking import MlflowTracker, TrackedStudy
from contrasweep.tracking.mlflow import transaction
from contrasweep.tracking.mlflow.client import TrackingError, translate_errors
from contrasweep.tracking.mlflow.transaction import in_transactions
from contrasweep.trial import Trial

pytestmark = pytest.mark.xdist_group("tracking")

DATA = Manifest("synthetic-metrics", "", "image", {}, source={"synthetic": True})


@pytest.fixture
def client(tmp_path: Path, template: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{shutil.copy(template, tmp_path / 'mlflow.db')}")


def names(client: Any) -> list[str]:
    """Names of the runs that another process sees."""
    with sqlite3.connect(client.tracking_uri.removeprefix("sqlite:///")) as connection:
        return sorted(name for (name,) in connection.execute("select name from runs"))


def create(client: Any, name: str) -> Any:
    return client.create_run("0", run_name=name)


def test_others_see_all_of_a_transaction_or_nothing(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "HOLD_S", 1e9)
    seen: list[list[str]] = []

    def send(name: str) -> None:
        create(client, name)
        seen.append(names(client))
        other = threading.Thread(target=lambda: seen.append([r.info.run_name for r in client.search_runs(["0"])]))
        other.start()
        other.join()
        assert name in [run.info.run_name for run in client.search_runs(["0"])]  # this thread reads what it wrote

    assert list(in_transactions(client, ["a", "b"], send)) == [["a", "b"]]
    assert seen == [[]] * 4 and names(client) == ["a", "b"]


def test_a_transaction_takes_at_least_one_item_and_gives_way(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "HOLD_S", 0.0)
    committed = []
    for group in in_transactions(client, ["a", "b", "c"], lambda name: create(client, name)):
        committed.append((group, names(client)))
    assert committed == [(["a"], ["a"]), (["b"], ["a", "b"]), (["c"], ["a", "b", "c"])]


def test_an_error_undoes_its_transaction_and_no_other(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "HOLD_S", 1e9)

    def send(name: str) -> None:
        create(client, name)
        if name == "c":
            raise TrackingError("the third", retryable=True)

    assert list(in_transactions(client, ["first"], send)) == [["first"]]
    with pytest.raises(TrackingError, match="the third"):
        list(in_transactions(client, ["a", "b", "c", "d"], send))
    assert names(client) == ["first"]
    create(client, "after")  # outside of a transaction MLflow commits as it did
    assert names(client) == ["after", "first"]


def test_a_call_that_is_refused_undoes_itself_only(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "HOLD_S", 1e9)
    refused: list[str] = []

    def send(name: str) -> None:
        run = create(client, name)
        client.log_param(run.info.run_id, "key", "one")
        try:
            translate_errors(lambda: client.log_param(run.info.run_id, "key", "another"))  # params never change
        except TrackingError:
            refused.append(name)

    assert list(in_transactions(client, ["a", "b"], send)) == [["a", "b"]]
    assert refused == names(client) == ["a", "b"]
    assert {run.data.params["key"] for run in client.search_runs(["0"])} == {"one"}


def test_what_could_not_be_committed_is_sent_again_once(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that does not end keeps sqlite from committing: nothing counts as shown, and all of it comes later."""
    short = [p if "busy" not in p else "PRAGMA busy_timeout = 50" for p in transaction.PRAGMAS]
    trials = [Trial("s", "arm", "benchmarks:stand_in", {"lr": 0.1}, DATA, seed=seed) for seed in range(4)]
    records = StudyRecords(str(tmp_path / "storage"), "s")
    tracked = TrackedStudy.of("s", trials, metric="accuracy", storage=records.storage)
    tracker = MlflowTracker(client.tracking_uri, tracked, records, flush_s=0.05)
    tracker.start(trials[0])
    wait_until(lambda: trials[0].id in tracker.run_ids(), "the first run")
    tracker.flush(60)
    monkeypatch.setattr(transaction, "PRAGMAS", short)
    reader = sqlite3.connect(client.tracking_uri.removeprefix("sqlite:///"), isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from runs").fetchall()  # holds the file until it ends
    for trial in trials:
        tracker.start(trial)
        rows = [{"step": step, "time": 100.0 + step, "accuracy": step / 8} for step in (1, 2, 3)]
        for row in rows:
            tracker.report(trial.id, int(row["step"]), {"accuracy": row["accuracy"]}, row["time"])
        records.write_metrics(trial.id, rows)
        record = Record.of(trial, status=Status.DONE, metrics={"accuracy": 0.375}, step=3, started=100.0, ended=104.0)
        records.write(record)
        tracker.finish(record)
    wait_until(lambda: tracker.error, "the commit that fails")
    unsynced, _ = tracker._writer.unsynced({trial.id for trial in trials})
    reader.close()
    assert set(unsynced) == {trial.id for trial in trials} and tracker.close(60) is None
    experiment = client.get_experiment_by_name("s")
    runs = [run for run in client.search_runs([experiment.experiment_id]) if "trial_id" in run.data.tags]
    assert sorted(run.data.tags["trial_id"] for run in runs) == sorted(trial.id for trial in trials)
    for run in runs:
        history = client.get_metric_history(run.info.run_id, "accuracy")
        assert sorted((metric.step, metric.value) for metric in history) == [(1, 0.125), (2, 0.25), (3, 0.375)]


def test_a_database_that_has_no_connection_left_is_asked_again(client: Any, tmp_path: Path) -> None:
    """As an MLflow server on PostgreSQL answers where eight drivers write at once: a bad request, in its words."""
    import sqlalchemy
    from mlflow.store.db.utils import _get_managed_session_maker
    from sqlalchemy.orm import sessionmaker

    url, few = f"sqlite:///{tmp_path}/some.db", {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.05}
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.QueuePool, **few)
    sessions = _get_managed_session_maker(sessionmaker(bind=engine), "sqlite")

    def ask(question: str) -> None:
        with sessions() as session:
            session.execute(sqlalchemy.text(question))

    with engine.connect(), pytest.raises(TrackingError, match="QueuePool limit") as error:
        translate_errors(lambda: ask("select 1"))
    assert error.value.retryable
    with pytest.raises(TrackingError) as error:
        translate_errors(lambda: client.create_experiment(""))
    assert not error.value.retryable
