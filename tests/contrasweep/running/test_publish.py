"""A finished study that is run again: MLflow is asked only where it may lack something."""

from dataclasses import replace

import pytest
from made_up import nowhere, train, trained
from tracked import tracked_of
from typer.testing import CliRunner

from contrasweep import AblationGrid, Arm
from contrasweep.cli.app import app
from contrasweep.planning.grid import make_plan
from contrasweep.results.notes import add_note
from contrasweep.results.results import Results
from contrasweep.running import publish as module
from contrasweep.running.publish import publish
from contrasweep.tracking.kinds import checked_tracking


def study(name, storage):
    grid = AblationGrid(name, {"a": Arm(train), "b": Arm(train)}, "d", folds=5, seeds=[0])
    return trained(make_plan(grid, lambda _: nowhere()), storage, lambda trial: trial.fold / 10)


@pytest.mark.slow
def test_a_store_that_shows_all_and_was_not_written_to_is_left_alone(mlflow_uri, runs, monkeypatch):
    from mlflow import MlflowClient

    plan, records = study("shown", runs)
    client = MlflowClient(mlflow_uri)
    asked = []
    server = module.Server
    monkeypatch.setattr(module, "Server", lambda *given: asked.append(1) or server(*given))

    def again():
        """Publish; how often MLflow was asked, and whether it has all trials."""
        asked.clear()
        tracked = tracked_of("shown", plan.trials, metric="accuracy", storage=records.storage)
        results = publish(
            Results.load("shown", records.storage), checked_tracking(mlflow_uri), tracked
        )
        assert set(results.run_urls) == {trial.id for trial in plan.trials}
        assert len(children()) == len(plan.trials)
        return len(asked)

    def children():
        experiment = client.get_experiment_by_name("shown")
        runs = client.search_runs([experiment.experiment_id])
        return [run.info.run_id for run in runs if "trial_id" in run.data.tags]

    assert (again(), again()) == (1, 0)
    client.delete_run(children()[0])
    assert (again(), again()) == (1, 0), "the file was written to: what was deleted is there again"
    records.write(replace(records.read_one(plan.trials[0].id), metrics={"accuracy": 0.9}))
    assert (again(), again()) == (1, 0), "a record is another one"
    add_note(records, "all <b>odd</b> | so", plan.trials[0].id)
    assert (again(), again()) == (1, 0), "a note is new"
    told = client.get_experiment_by_name("shown").tags["mlflow.note.content"]
    assert f"note on shown/{plan.trials[0].id[:8]}: all \\<b>odd\\</b> \\| so" in told


@pytest.mark.slow
def test_sync_alone_shows_the_table_and_what_users_note(mlflow_uri, runs):
    from mlflow import MlflowClient

    _, records = study("synced", runs)
    add_note(records, "too few seeds")
    words = ["sync", "synced", "--storage", records.storage, "--tracking", mlflow_uri]
    assert CliRunner().invoke(app, words).exit_code == 0
    shown = MlflowClient(mlflow_uri).get_experiment_by_name("synced").tags["mlflow.note.content"]
    assert "too few seeds" in shown and "| a" in shown
