"""A cluster that begins with a head alone: hosts join while the study runs, and each trial goes to the smallest."""

import shutil
import subprocess
import sys
import time

import pytest
import yaml
from places import SUPPORT, module_path
from raylets import RayCluster, wait_for

from contrasweep.live.state import is_living, read_live
from contrasweep.results.results import Results
from contrasweep.storage.record import Phase
from contrasweep.storage.records import StudyRecords

pytestmark = pytest.mark.long
SWEEP = {
    "folds": 3,
    "type": "sweep",
    "trials_per_arm": 2,
    "searcher": "random",
    "confirm_seeds": [1000],
}


class Command:
    """`contrasweep run` of a study with an arm for a T4 and one for an H100, on `cluster`."""

    def __init__(self, folder, cluster):
        self.folder = folder
        self.cluster = cluster
        shutil.copy(SUPPORT / "toy.py", folder)
        arms = {
            name: {
                "trainable": "toy:train",
                "config": {"epochs": 2},
                "resources": {"gpu_memory_gib": gib, "host_memory_gib": 0.5},
                "space": {"lr": {"type": "float", "low": 0.003, "high": 3.0, "log": True}},
            }
            for name, gib in {"small": 5, "large": 50}.items()
        }
        (folder / "study.yaml").write_text(
            yaml.safe_dump({"name": "growing", "data": "digits-lt", "arms": arms} | SWEEP)
        )

    def start(self):
        environment = self.cluster.environment | {
            "RAY_ADDRESS": f"127.0.0.1:{self.cluster.gcs_port}"
        }
        environment["PYTHONPATH"] = module_path(self.folder)
        command = [
            sys.executable,
            "-m",
            "contrasweep",
            "run",
            "study.yaml",
            "--storage",
            "runs",
            "--tracking",
            "none",
        ]
        with (self.folder / "errors.txt").open("w") as errors:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stderr=errors)

    @property
    def errors(self):
        """What the command has said so far."""
        return (self.folder / "errors.txt").read_text()

    @property
    def storage(self):
        return str(self.folder / "runs")

    def wait_for(self, process, true):
        """Until it is true; an error as soon as the command has ended."""
        wait_for(lambda: true() or process.poll() is not None)
        assert process.poll() is None, self.errors

    def is_seen_to_wait(self):
        """Whether whoever watches the run sees that it waits for a host."""
        state = read_live(StudyRecords(self.storage, "growing"))
        return bool(state and is_living(state)) and "no host of the" in str(state.events)

    def placed(self):
        """Arm, phase, status and type of GPU of each record."""
        results = Results.load("growing", self.storage)
        records = [*results.trial_records.values(), *results.search_records.values()]
        return sorted(
            (r.arm, r.notes.phase or "", r.status.value, r.notes.gpu_type) for r in records
        )


@pytest.fixture
def cluster():
    started = RayCluster()
    yield started
    started.close()


def on_the_smallest(*arms):
    """Each trial of these arms done, where it fits."""
    types = {"large": "H100", "small": "T4"}
    return [
        (arm, phase, "done", types[arm])
        for arm in arms
        for phase in [Phase.CONFIRM] * 2 + [Phase.SEARCH] * 2
    ]


def test_hosts_that_join_late_are_used_and_nothing_is_infeasible(tmp_path, cluster):
    command = Command(tmp_path, cluster)
    process = command.start()
    began = time.monotonic()
    small = on_the_smallest("small")
    command.wait_for(
        process, lambda: "no host of the cluster can hold a trial yet" in command.errors
    )
    wait_for(lambda: time.monotonic() - began > 10, 20)
    command.wait_for(process, command.is_seen_to_wait)
    cluster.add_node(
        "small", "T4", "workers"
    )  # an autoscaler's, so that what it has not started yet is waited for
    command.wait_for(
        process,
        lambda: "arm large waits for a larger host: the trial needs 50.0 GiB" in command.errors,
    )
    command.wait_for(
        process, lambda: len(StudyRecords(command.storage, "growing").finished()) == len(small)
    )
    wait_for(lambda: time.monotonic() - began > 40, 50)
    assert command.placed() == small, "searches of other arms go on beside what waits"
    cluster.add_node("large", "H100", "workers")
    assert process.wait() == 0, command.errors
    assert command.placed() == on_the_smallest("large", "small")
