"""What an autoscaler sees of a study: a place for each trial that waits, asked for by what is known by now."""

import contextlib

import pytest
from demanding import FOLDER
from drivers import start_driver
from made_up import nowhere, train
from places import SUPPORT, module_path
from raylets import RayCluster, wait_for

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import make_plan
from contrasweep.planning.learned import Learned
from contrasweep.running.engine.placement import Placements
from contrasweep.storage.record import Record, Status, TrialNotes

DATA = nowhere()
T4 = Node(8, 64, 1, Gpu("T4", 14.7))

TRIALS = 60
STUDY = f"""
name: demand
data: digits-lt
seeds: {list(range(TRIALS))}
arms:
  a: {{trainable: 'demanding:train', resources: {{gpus: 1}}}}
"""


def placed(*nodes):
    study = AblationGrid("s", {"a": Arm(train)}, "d", folds=5)
    placements = Placements(Footprints(study, Inventory(nodes), Learned()))
    trials = make_plan(study, lambda name: DATA).trials
    for trial in trials:
        placements.place(trial)
    return placements, trials


def test_trials_that_wait_are_placed_by_what_the_first_one_took():
    placements, (first, *others) = placed(T4)
    assert {placements.place(trial).share for trial in others} == {1}
    notes = TrialNotes(gpu_type="T4", gpus=1.0)
    placements.ended(Record.of(first, status=Status.DONE, notes=notes, gpu_memory_gib=2.5))
    assert placements.places_outdated
    assert placements.place_again(others) == others
    assert {placements.place(trial).per_gpu for trial in others} == {4}


@pytest.fixture
def cluster(storage, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", module_path(SUPPORT))
    monkeypatch.setenv(FOLDER, storage)
    with contextlib.closing(RayCluster()) as cluster:
        cluster.add_node("small", "T4", "workers")
        cluster.wait_for_nodes(2)
        yield cluster


@pytest.mark.long
def test_all_trials_are_demanded_at_once_and_those_that_wait_move_to_a_host_that_joins(
    cluster, tmp_path
):
    (tmp_path / "study.yaml").write_text(STUDY)
    words = ["run", "study.yaml", "--storage", "runs", "--tracking", "none"]
    asked = {"RAY_ADDRESS": f"{cluster.host}:{cluster.gcs_port}", "RAY_AUTH_MODE": "disabled"}
    run = start_driver(*words, folder=tmp_path, ray=cluster.folder, environment=asked)
    try:
        waiting = tmp_path / "T4"
        wait_for(lambda: waiting.exists() and int(waiting.read_text()) == TRIALS - 1)
        cluster.add_node("large", "H100", "workers")
        wait_for(lambda: (tmp_path / "H100").exists())  # each of the trials had asked for a T4
    finally:
        (tmp_path / "go").touch()
        _, errors = run.communicate()
    assert run.returncode == 0, errors
