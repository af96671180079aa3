"""A finished study that is run again: MLflow is asked only where it may lack something."""

import pytest
from made_up import nowhere, train, trained
from typer.testing import CliRunner

from contrasweep import AblationGrid, Arm
from contrasweep.cli.app import app
from contrasweep.planning.grid import make_plan
from contrasweep.results.notes import add_note


def study(name, storage):
    grid = AblationGrid(name, {"a": Arm(train), "b": Arm(train)}, "d", folds=5, seeds=[0])
    return trained(make_plan(grid, lambda _: nowhere()), storage, lambda trial: trial.fold / 10)


@pytest.mark.slow
def test_sync_alone_shows_the_table_and_what_users_note(mlflow_uri, runs):
    from mlflow import MlflowClient

    _, records = study("synced", runs)
    add_note(records, "too few <b>odd</b> | seeds")
    words = ["sync", "synced", "--storage", records.storage, "--tracking", mlflow_uri]
    assert CliRunner().invoke(app, words).exit_code == 0
    shown = MlflowClient(mlflow_uri).get_experiment_by_name("synced").tags["mlflow.note.content"]
    assert "too few \\<b>odd\\</b> \\| seeds" in shown and "| a" in shown
