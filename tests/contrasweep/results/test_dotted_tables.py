"""Tables over nested settings: rows, columns and `by` are dotted keys, as the axes are."""

import json

import pytest
from made_up import nowhere, train, trained
from refusals import refused
from typer.testing import CliRunner

from contrasweep import AblationGrid, Arm, SpecError
from contrasweep.cli.app import app
from contrasweep.planning.grid import make_plan
from contrasweep.reporting import render
from contrasweep.results.results import Results

DATA = nowhere(2)


def value(trial):
    """Of what is asked for alone, so that each cell of a table says which trials it holds."""
    return (
        10 * trial.config["loss"]["temperature"]
        + trial.config["encoder"]["width"]
        + 0.001 * trial.fold
    )


@pytest.fixture
def results(tmp_path):
    grid = AblationGrid(
        "nested",
        {"a": Arm(train, {"loss": {"name": "ocl"}}), "b": Arm(train, {"loss": {"name": "supcon"}})},
        "d",
        axes={"loss.temperature": [0.1, 0.2], "encoder.width": [4, 8]},
        folds=2,
    )
    trained(make_plan(grid, lambda name: DATA), tmp_path, value)
    return Results.load("nested", str(tmp_path))


def test_rows_and_columns_are_dotted_keys(results):
    table = results.table(rows="loss.temperature", columns=["encoder.width"])
    means = {(row[0], column[0]): cell.mean for (row, column), cell in table.cells.items()}
    assert means == {
        (str(t), str(w)): pytest.approx(10 * t + w + 0.0005) for t in (0.1, 0.2) for w in (4, 8)
    }
    assert {cell.n for cell in table.cells.values()} == {4}, "two arms on two folds"


def test_arms_beside_dotted_columns_name_their_axis(results):
    table = results.table(rows="arm", columns=["loss.temperature", "encoder.width"])
    assert {column for _, column in table.cells} == {
        (t, w) for t in ("0.1", "0.2") for w in ("4", "8")
    }
    text = render(results, "text").decode()
    assert "temperature" in text and "width" in text
    assert list(results.to_frame()["loss.temperature"].unique()) == [0.1, 0.2]


def test_a_key_that_is_no_axis_is_named_with_those_that_are(results):
    with refused(SpecError, match=r"loss\.temperatur.*did you mean 'loss\.temperature'"):
        results.table(rows="loss.temperatur")
    with refused(SpecError, r"temperature"):
        results.table(rows="arm", columns=["temperature"])
    with refused(SpecError, "once"):
        results.table(rows="arm", columns=["arm"])


def test_compare_takes_a_cell_of_a_dotted_axis(results, storage):
    words = ["compare", "nested", "a", "b", "--storage", storage, "--json"]
    asked = ["--at", "loss.temperature=0.1", "--at", "encoder.width=8"]
    done = CliRunner().invoke(app, [*words, *asked], standalone_mode=False)
    document = json.loads(done.stdout)
    assert done.exception is None and document["overall"]["n"] == 2
    assert document["required"] is None
