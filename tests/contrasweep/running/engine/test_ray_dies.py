"""Ray's own death: one line, status 130, and the same command goes on."""

import re
import signal
import time

import psutil
import pytest
from drivers import ray_folder, start_driver
from places import SUPPORT, module_path
from raylets import QUICK, RayCluster, kill, wait_for

from contrasweep.storage.records import StudyRecords

pytestmark = pytest.mark.long
STUDY = """
name: ray-dies
data: digits-lt
folds: 3
arms:
  a: {trainable: 'toy:train', config: {epochs: 6, pause_s: 1.5}}
"""


class Run:
    """`contrasweep run` with a Ray of its own, whose files lie below `ray`."""

    def __init__(self, folder, ray):
        self.folder = folder
        self.ray = ray
        (folder / "study.yaml").write_text(STUDY)
        self.records = StudyRecords(str(folder / "runs"), "ray-dies")

    def start(self):
        words = ["run", "study.yaml", "--storage", "runs", "--tracking", "none"]
        return start_driver(
            *words, folder=self.folder, ray=self.ray, environment={"TMPDIR": str(self.folder)}
        )

    def wait_for_a_record(self, process):
        wait_for(lambda: self.records.finished() or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]


@pytest.fixture
def run(tmp_path):
    with ray_folder() as ray:
        yield Run(tmp_path, ray)


@pytest.mark.parametrize(("victim", "name"), [("gcs_server", "head"), ("raylet", "raylet")])
def test_a_death_of_ray_is_said_in_one_line(victim, name, run):
    process = run.start()
    run.wait_for_a_record(process)
    dead = [p for p in psutil.Process(process.pid).children(recursive=True) if p.name() == victim]
    for one in dead:
        one.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert (len(dead), process.returncode) == (1, 130), errors
    (line,) = [line for line in errors.splitlines() if line.startswith("contrasweep:")]
    says = "finished trials have their records; the same command goes on from here"
    gone = rf"its {name} at \S+:\d+ does not answer"
    assert re.fullmatch(rf"contrasweep: Ray is gone \({gone}\); {says}", line), line


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A run on a cluster that others have started, found by its address."""
    monkeypatch.setitem(
        QUICK, "RAY_gcs_rpc_server_reconnect_timeout_s", "60"
    )  # as it is without us: raylets wait
    monkeypatch.setenv(
        "RAY_AUTH_MODE", "disabled"
    )  # as the cluster; an earlier test's own Ray may have left another
    monkeypatch.setenv("PYTHONPATH", module_path(SUPPORT))
    cluster = RayCluster()
    try:
        cluster.add_node("a", "T4", cpus=2)
        cluster.wait_for_nodes(2)
        monkeypatch.setenv("RAY_ADDRESS", f"{cluster.host}:{cluster.gcs_port}")
        yield Run(tmp_path, cluster.folder), cluster
    finally:
        cluster.close()


def test_the_death_of_a_head_elsewhere_is_said_in_one_line(remote):
    run, cluster = remote
    process = run.start()
    run.wait_for_a_record(process)
    head = cluster.nodes["head"]
    head.process.send_signal(
        signal.SIGSTOP
    )  # it would end the raylet too, which is another machine's here
    kill(head.running("gcs_server"))
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    (line,) = [line for line in errors.splitlines() if line.startswith("contrasweep:")]
    says = "finished trials have their records; the same command goes on from here"
    head_at = rf"\S+:{cluster.gcs_port}"
    assert re.fullmatch(
        rf"contrasweep: Ray is gone \(its head at {head_at} does not answer\); {says}", line
    ), line


def test_a_head_that_hangs_for_a_while_loses_nothing(remote):
    run, cluster = remote
    process = run.start()
    run.wait_for_a_record(process)
    heads = cluster.nodes["head"].running("gcs_server")
    for gcs in heads:
        gcs.suspend()
    time.sleep(20.0)
    for gcs in heads:
        gcs.resume()
    _, errors = process.communicate()
    why = {
        trial: record.error for trial, record in run.records.read(run.records.finished()).items()
    }
    assert heads and process.returncode == 0, (errors, why)
    assert len(run.records.finished()) == 3
