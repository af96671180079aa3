"""Every study that comes along can be planned where nothing is staged; what is missing is told with what stages it."""

import json
import math
import pkgutil
from collections import Counter
from importlib import import_module

import pytest
from command_line import printed
from places import ROOT

from contrasweep import search_spaces
from contrasweep.data.names import importer, parse
from contrasweep.planning.planner import plan_staged
from contrasweep.search_spaces import local
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Sweep
from contrasweep.trainables.review_helpfulness import studies
from contrasweep.trainables.review_helpfulness.studies.tables import MAIN_TABLE
from contrasweep.trainables.review_helpfulness.training import GROUPS_A_REVIEW, memory

STUDIES = {
    f"{module.name}:{name}": value
    for package in (search_spaces, studies)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    for name, value in vars(import_module(module.name)).items()
    if isinstance(value, AblationGrid | Sweep)
}


@pytest.fixture(autouse=True)
def nothing_staged(monkeypatch):
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_planned_with_nothing_staged(name, tmp_path):
    study = STUDIES[name]
    planned, missing = plan_staged(study, storage=str(tmp_path))
    assert planned is not None, "what is not staged is planned by its paper"
    if isinstance(study, AblationGrid):
        assert (
            0
            < (planned.total or 0)
            <= len(study.all_folds) * len(study.all_seeds) * len(list(study.cells()))
        )
    for one in missing:
        assert one.described
        dataset = parse(one.name)
        assert importer(dataset).source == one.requires
        assert f"contrasweep data stage {dataset.name} --source PATH" in one.command
        assert f"--to {tmp_path}/datasets/{dataset.folder}" in one.command
    assert list(tmp_path.iterdir()) == []


def test_table_1_needs_no_data(tmp_path):
    inventory = ROOT / "docs/cluster/example-inventory.yaml"
    done = printed(
        tmp_path,
        "plan",
        "contrasweep.search_spaces.local:TABLE_1",
        "--cluster",
        str(inventory),
        "--json",
    )
    shown = json.loads(done)
    memory = {
        (row["axes"]["batch_size"], row["axes"]["image_size"]): row["memory_gib"]
        for row in shown["table"]
    }
    paper = {(8, 512): 9.5, (16, 512): 17.0}
    assert shown["missing"] == [] and memory.keys() == {(8, 512), (16, 512), (8, 256), (16, 256)}
    assert all(memory[cell] == pytest.approx(gib, rel=0.2) for cell, gib in paper.items())


def test_table_2_has_the_cells_of_the_paper():
    cells = Counter(cell.data for cell in local.TABLE_2.configs())
    assert cells == {"hra": 12, "xbd?size=224": 9, "xbd": 12}


def test_the_six_blocks_of_reviews_are_planned_at_their_published_sizes(storage):
    planned, missing = plan_staged(MAIN_TABLE, storage=storage)
    assert planned is not None and [one.trials for one in missing] == [40] * 6
    blocks = {data.rows("train"): data for data in planned.datasets.values()}
    assert sorted(blocks) == [37_600, 41_600, 104_000, 260_000, 279_200, 369_600]
    assert memory({}, blocks[104_000]).steps == 30 * math.ceil(104_000 * GROUPS_A_REVIEW[1] / 4)
    assert memory({"sampler": {"max_groups": 640}}, blocks[104_000]).steps == 30 * 160
