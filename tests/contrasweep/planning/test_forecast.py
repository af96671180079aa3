"""What `contrasweep plan` shows: memory, share, packing, time and cost, on this machine and on a declared cluster."""

from types import SimpleNamespace

import pytest
from places import ROOT
from typer.testing import CliRunner

from contrasweep.cli.app import app
from contrasweep.planning.forecast import group_warnings


@pytest.mark.slow
def test_the_inventory_in_the_documentation_works(storage):
    inventory = ROOT / "docs/cluster/example-inventory.yaml"
    done = CliRunner().invoke(
        app,
        [
            "plan",
            "contrasweep.search_spaces.quickstart:STUDY",
            "--cluster",
            str(inventory),
            "--storage",
            storage,
        ],
    )
    assert done.exit_code == 0 and "L4 or H100" in done.output


def test_seeds_on_one_test_split_of_groups_are_warned_of():
    floods = SimpleNamespace(name="floods", counts={"train": {"groups": 5}, "test": {"groups": 3}})
    digits = SimpleNamespace(name="digits", counts={"test": {"classes": [9]}})
    on_test = SimpleNamespace(table_folds=None, table_datasets=[floods, digits])
    assert [line.partition(";")[0] for line in group_warnings(on_test)] == [
        "floods: verdicts hold for the 3 groups of the test split"
    ]
    assert group_warnings(SimpleNamespace(table_folds=5, table_datasets=[floods])) == []
