"""MLflow shows the table of a study, whatever has become of trials since, and only that of the study's own storage."""

import json
import re
from collections import defaultdict
from urllib.parse import urlsplit

import numpy as np
import pytest
from benchmarks.tracking_services import mlflow_server
from made_up import made
from sweeps import finished, sweep
from typer.testing import CliRunner

import contrasweep as cs
from contrasweep.cli.app import app
from contrasweep.storage.record import Cause
from contrasweep.tracking.links import read_links

pytestmark = pytest.mark.xdist_group("tracking")


@pytest.fixture(params=["sqlite", pytest.param("server", marks=pytest.mark.long)])
def store(request, mlflow_uri, template, tmp_path):
    """The address of a store of a test's own: a file, or a real server over HTTP."""
    if request.param == "sqlite":
        yield mlflow_uri
        return
    with mlflow_server(mlflow_uri, str(tmp_path / "artifacts"), tmp_path) as server:
        yield server.uri


def command(name, storage, *words):
    done = CliRunner().invoke(app, [*words[:1], name, "--storage", str(storage), *words[1:]])
    assert done.exit_code == 0, done.output
    return done.output


def shown_page(client, page):
    """The experiment of a page of MLflow, and the view with which it opens."""
    experiment, query = re.fullmatch(r"/experiments/(\d+)/runs\?(.*)", page).groups()
    key = dict(part.split("=") for part in query.split("&"))["viewStateShareKey"]
    experiment = client.get_experiment(experiment)
    return experiment, json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])


def check(name, storage, store):
    """After `sync` the page that it tells has the means of the table; its notes lead to views; returns its note."""
    from mlflow import MlflowClient

    client = MlflowClient(store)
    told = command(name, storage, "sync", "--tracking", store)
    results = cs.load(name, storage=str(storage))
    link = read_links(results.records).study
    assert link in told
    experiment, view = shown_page(client, urlsplit(link).fragment)
    groups = [key["groupByData"] for key in view["groupBy"]["groupByKeys"]]
    metric = results.metric
    values = defaultdict(list)
    for run in client.search_runs([experiment.experiment_id], view["searchFilter"]):
        cell = tuple(run.data.params[key] for key in groups)
        values[cell].append(run.data.metrics[metric])
    table = results.table(["arm"], results.axes).cells
    means = {row + column: cell.mean for (row, column), cell in table.items()}
    assert {cell: np.mean(each) for cell, each in values.items()} == pytest.approx(
        {cell: mean for cell, mean in means.items() if mean is not None}
    )

    # The study's own run has the means of arms, and no others; all links of both notes open a view.
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if "trial_id" not in run.data.tags]
    finite = {key: value for key, value in parent.data.metrics.items() if np.isfinite(value)}
    overall = results.table(["arm"], []).cells
    assert finite == pytest.approx(
        {f"{metric}/{row[0]}": c.mean for (row, _), c in overall.items() if c.mean is not None}
    )
    note = experiment.tags["mlflow.note.content"]
    assert parent.data.tags["mlflow.note.content"] == note[:7900]
    first, second = re.findall(r"\(#(\S+)\)", note)
    assert f"#{first}" == f"#{urlsplit(link).fragment}"
    phases = (
        ["phase"] if results.document.search else []
    )  # no mean over a search and its confirmation
    all_trials = shown_page(client, second)[1]
    assert [key["groupByData"] for key in all_trials["groupBy"]["groupByKeys"]] == [
        *phases,
        *groups,
    ]
    assert "searchFilter" not in all_trials
    assert str(storage) in re.sub(r"\\", "", note)
    return note


@pytest.mark.slow
def test_the_view_of_a_grid_has_the_means_of_its_table_after_each_change(store, tmp_path):
    """Beside it stands the same study of another storage, whose trials are others, and whose page never changes."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    study = {"name": "grid", "axes": (8, 16), "seeds": range(2)}
    made(mine, **study)
    made(theirs, **study, ends=(None, Cause.METHOD, "pending"))
    notes = [check("grid", storage, store) for storage in (mine, theirs)]
    command("grid", mine, "remove", "--arm", "b", "--yes")
    assert check("grid", mine, store) != notes[0]
    command("grid", mine, "restore", "--yes")
    assert check("grid", mine, store) == notes[0]
    for changed in (
        {"seeds": range(3)},  # extended
        {"seeds": [2]},  # other seeds: the records of the former stay
        {"arms": ("a", "c")},  # an arm has another name
        {"axes": (8,)},
        {},
    ):
        made(mine, **study | changed)
        check("grid", mine, store)
    assert check("grid", theirs, store) == notes[1]


@pytest.mark.slow
def test_the_view_of_a_sweep_has_its_last_confirmation(store, tmp_path):
    """A longer search finds another best, of which other seeds are confirmed then: nothing is mixed."""
    notes = []
    for fields in (
        {},
        {"trials_per_arm": 12},
        {"trials_per_arm": 12, "confirm_seeds": [1001, 1002]},
    ):
        study = sweep(**fields)
        results, _ = finished(study, tmp_path)
        assert len(results.done)
        notes.append(check(study.name, tmp_path, store))
    assert len(set(notes)) == 3
