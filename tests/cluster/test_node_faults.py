"""`kill -9` of a worker, a node, a driver and a head of a real cluster, in the middle of a study that a client
submitted."""

import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import yaml
from calm import calm_run
from places import SUPPORT, environment_without
from ray.autoscaler.v2.sdk import get_cluster_status
from raylets import TRIAL, RayCluster, kill, wait_for

from contrasweep.cluster.jobs import Job
from contrasweep.results.results import Results
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_study

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("node faults"),
]  # one cluster for all of them

STUDY = "shaken"
EPOCHS = [1, 2, 3, 4, 5, 6]  # with a checkpoint after each second one


class Project:
    """A user's folder outside the cluster: a trainable of their own, and a study whose `held` trials wait before
    epoch 4 as long as the gate is shut. `trained` tells which epochs were trained, in what order."""

    def __init__(self, folder, cluster):
        self.folder = folder
        self.cluster = cluster
        self.gate = folder / "gate"
        self.log = folder / "trained"
        self.storage = folder / "runs"
        shutil.copy(SUPPORT / "toy.py", folder)
        each = {"epochs": EPOCHS[-1], "keep_every": 2, "log": str(self.log)}
        arms = {"quick": each, "held": each | {"lr": 0.5, "wait_at": 4, "gate": str(self.gate)}}
        self.study = {
            "name": STUDY,
            "data": "digits-lt",
            "folds": 3,
            "arms": {
                name: {"trainable": "toy:train", "config": config} for name, config in arms.items()
            },
        }
        self.declare()

    def declare(self, **fields):
        (self.folder / "study.yaml").write_text(yaml.safe_dump(self.study | fields))

    def contrasweep(self, *words):
        environment = environment_without("RAY_")
        command = [sys.executable, "-m", "contrasweep", *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def said(self, *words):
        """Exit status, and what was printed, of a command to its end."""
        process = self.contrasweep(*words)
        printed, errors = process.communicate()
        assert "Traceback" not in printed + errors
        return process.returncode, printed + errors

    def submit(self):
        return self.said(
            "submit",
            "study.yaml",
            "--storage",
            "runs",
            "--tracking",
            "none",
            "--address",
            self.cluster.address,
        )

    def job(self):
        """The id of the study, submitted."""
        status, said = self.submit()
        assert status == 0, said
        return said.split()[1]

    def trained(self):
        collected = {}
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            trial, epoch = line.split()
            collected.setdefault(trial, []).append(int(epoch))
        return collected

    def wait_at_gate(self, times, held):
        """Until trials came to the gate so many times and something is finished."""
        records = StudyRecords(str(self.storage), STUDY)

        def there():
            return sum(
                epochs.count(3) for trial, epochs in self.trained().items() if trial in held
            ) == times and bool(records.finished())

        wait_for(there, lambda: str(self.trained()))

    def finished_files(self):
        """Content and time of every file of the trials that have a record."""
        records = list(self.storage.glob(f"{STUDY}/records/*/record.json"))
        folders = [
            folder
            for path in records
            for folder in (path.parent, path.parents[2] / "trials" / path.parent.name)
        ]
        return {
            file: (file.read_bytes(), file.stat().st_mtime_ns)
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file()
        }


def everything(storage):
    """All of a study that may not depend on when and where it ran: table, scores of each test item, every report."""
    results = Results.load(STUDY, str(storage))
    frame = results.to_frame().drop(columns=["seconds", "gpu_memory_gib"])
    reports = {
        i: [(row["step"], row["accuracy"]) for row in results.records.metrics(i)]
        for i in frame["trial_id"]
    }
    return frame, {i: results.records.items(i)["hits"] for i in frame["trial_id"]}, reports


def demand(cluster):
    """What each placement group waits for, as an autoscaler sees it."""
    groups = get_cluster_status(
        f"127.0.0.1:{cluster.gcs_port}"
    ).resource_demands.placement_group_demand
    return [
        bundle.bundle
        for group in groups
        for bundle in group.bundles_by_count
        for _ in range(bundle.count)
    ]


def assert_is_as_calm(project, calm, before, lost):
    """All is there, bit for bit; what was finished `before` was left alone, and each of the trials that were `lost` at
    the gate, after epoch 3, trained again what came after its checkpoint of epoch 2."""
    table, scores, reports = everything(project.storage)
    pd.testing.assert_frame_equal(table, calm[0], check_exact=True)
    assert list(table["status"]) == ["done"] * 6
    assert all(np.array_equal(scores[i], calm[1][i]) for i in calm[1])
    assert reports == calm[2]
    assert before and before.items() <= project.finished_files().items()
    trained = project.trained().values()
    assert all(list(dict.fromkeys(epochs)) == EPOCHS for epochs in trained)
    assert Counter(epoch for epochs in trained for epoch in epochs) - Counter(EPOCHS * 6) == {
        3: lost
    }


@pytest.fixture(scope="module")
def cluster():
    created = RayCluster()
    try:
        created.add_node("a", "T4")
        created.add_node("b", "T4")
        created.wait_for_nodes(3)
        yield created
    finally:
        created.close()


@pytest.fixture(scope="module")
def project(cluster, tmp_path_factory):
    return Project(tmp_path_factory.mktemp("project"), cluster)


@pytest.fixture(scope="module")
def calm(project):
    """The same study without any trouble."""
    calm_run(load_study(str(project.folder / "study.yaml")), project.folder / "calm")
    return everything(project.folder / "calm")


@pytest.fixture
def held(calm):
    return set(calm[0].loc[calm[0]["arm"] == "held", "trial_id"])


@pytest.fixture(autouse=True)
def shut(project, calm):
    """Each case begins without records, with the gate shut."""
    shutil.rmtree(project.storage, ignore_errors=True)
    project.declare()
    project.log.unlink(missing_ok=True)
    project.gate.touch()


def test_a_job_goes_on_after_a_worker_and_after_hosts_whose_loss_is_no_failure(
    cluster, project, calm, held
):
    """A trial at the gate loses its worker, which is all that `max_failures` allows; then the host of the one on node a
    is lost twice without its getting further, and that of the one on node b once."""
    project.declare(max_failures=1)
    job = project.job()
    project.wait_at_gate(2, held)
    waiting = 6 - len(project.trained())
    wait_for(
        lambda: [needs["GPU"] for needs in demand(cluster)] == [1.0] * waiting,
        lambda: str(demand(cluster)),
    )
    status, said = project.submit()
    assert status == 2 and f"job {job} is running {STUDY} on {project.storage}" in said
    before = project.finished_files()

    kill(cluster.nodes["a"].running(TRIAL))
    project.wait_at_gate(3, held)
    for lost, name in enumerate("aba", 1):
        cluster.nodes[name].kill()
        cluster.add_node(name, "T4")
        project.wait_at_gate(3 + lost, held)
    project.gate.unlink()
    status, log = project.said("logs", job, "--address", cluster.address, "--follow")

    assert status == 0, log
    assert log.count("its worker or host was lost; it resumes from its checkpoint") == 4
    assert_is_as_calm(project, calm, before, lost=4)


def test_submitting_again_goes_on_after_the_driver_and_after_the_head(cluster, project, calm, held):
    project.job()
    project.wait_at_gate(2, held)
    before = project.finished_files()
    kill(cluster.nodes["head"].running("python -m contrasweep run"))
    job = project.job()
    project.wait_at_gate(4, held)

    follower = project.contrasweep("logs", job, "--address", cluster.address, "--follow")
    cluster.nodes["head"].kill()
    status, said = project.said("status", job, "--address", cluster.address)
    assert (status, said) == (
        2,
        f"contrasweep: no Ray dashboard answers at {cluster.address} (Connection refused)\n",
    )
    cluster.wait_until_idle()  # nodes end without their head: no trial trains on unseen
    project.gate.unlink()
    cluster.start_head()
    job = project.job()  # before there is any host for its trials
    wait_for(
        lambda: "no host of the cluster can hold a trial yet" in Job(job, cluster.address).logs()
    )
    assert [needs["CPU"] for needs in demand(cluster)] == [1.0]
    cluster.add_node("a", "T4")
    cluster.add_node("b", "T4")
    status, log = project.said("logs", job, "--address", cluster.address, "--follow")

    assert status == 0, log
    _, errors = follower.communicate()
    assert follower.returncode == 2
    assert "a head that was started again has forgotten its jobs" in errors.splitlines()[-1]
    assert_is_as_calm(project, calm, before, lost=4)
