"""Studies on a real Slurm: by the script that starts Ray over an allocation, and as arrays without Ray."""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import slurm_here
import yaml
from calm import calm_run
from mlflow import MlflowClient
from places import ROOT
from raylets import wait_for

from contrasweep.results.results import Results
from contrasweep.storage.lease import Lease
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_study

SCRIPT = ROOT / "cluster/files/slurm.sh"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(slurm_here.WHY_NOT), reason=slurm_here.WHY_NOT),
]
EPOCHS = 4


@pytest.fixture
def slurm():
    with tempfile.TemporaryDirectory(
        prefix="cs-", dir="/tmp"
    ) as folder:  # short: it holds a socket
        Path(folder).chmod(0o755)
        with slurm_here.slurm(Path(folder)) as here:
            here.environment |= {
                "PATH": f"{Path(sys.executable).parent}:{here.environment['PATH']}",
                "PYTHONPATH": str(ROOT / "tests/support"),
                "OMP_NUM_THREADS": "1",
            }
            yield here


def declare(folder, name, **more):
    """A study whose trials wait before their third epoch as long as the file `<name>.gate` is there."""
    config = {
        "epochs": EPOCHS,
        "wait_at": 3,
        "gate": str(folder / f"{name}.gate"),
        "log": str(folder / f"{name}.log"),
    }
    rates = {"low": 0.05, "high": 0.2}
    arm = {"trainable": "toy:train", "config": config}
    if "searcher" in more:
        arms = {"main": arm | {"space": {"lr": {"type": "float", **rates}}}}
    else:
        arms = {name: arm | {"config": config | {"lr": lr}} for name, lr in rates.items()}
    study = {"name": name, "arms": arms, "data": "digits", "metric": "accuracy", **more}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(study))
    (folder / f"{name}.gate").touch()


def epochs(folder, name):
    log = folder / f"{name}.log"
    return log.read_text().splitlines() if log.exists() else []


def check_whole(folder, name, seeds, restarted=None):
    """No trial is lost, none was trained twice, and the table is that of a run that nothing disturbed."""
    study = load_study(str(folder / f"{name}.yaml"))
    results = Results.load(name, str(folder / "runs"))
    trained = epochs(folder, name)
    assert results.complete and len(results.trial_records) == 2 * seeds
    assert len(trained) == len(set(trained)) == 2 * seeds * EPOCHS
    assert {record.status for record in results.trial_records.values()} == {"done"}
    (folder / f"{name}.log").rename(folder / f"{name}.slurm.log")
    calm = calm_run(study, folder / "calm")
    # submitit warns of each signal in the log of the trial that it interrupts, which the table counts
    said = [line for line in str(results).splitlines() if "warnings in their logs" not in line]
    assert said == str(calm).splitlines()
    assert {i: r.metrics for i, r in results.trial_records.items()} == {
        i: r.metrics for i, r in calm.trial_records.items()
    }
    return results


def contrasweep(slurm, folder, *words):
    return slurm.command(sys.executable, "-m", "contrasweep", *words, folder=folder, timeout_s=300)


def restarts(slurm, job):
    return [
        int(count)
        for count in re.findall(r"Restarts=(\d+)", slurm.command("scontrol", "show", "job", job))
    ]


def test_two_studies_on_the_same_hosts_outlive_a_time_limit_and_scancel(slurm, tmp_path, runs):
    def send(name, *options):
        words = ["--parsable", f"--chdir={tmp_path}", "--cpus-per-task=1", "--mem=0", *options]
        return slurm.command(
            "sbatch", *words, SCRIPT, f"{name}.yaml", "--storage", "runs", "--tracking", "none"
        )

    for name in ("limited", "ended"):
        declare(tmp_path, name, seeds=[0, 1, 2])
    limited = send("limited", "--gpus-per-node=1", "--time=3", "--signal=B:USR1@60")
    ended = send("ended", "--time=30")
    wait_for(
        lambda: all(len(epochs(tmp_path, name)) == 4 for name in ("limited", "ended"))
    )  # of one slot a node
    slurm.command("scancel", ended)
    assert slurm.wait(ended, "CANCELLED", "COMPLETED", "FAILED") == "CANCELLED"
    wait_for(lambda: not Path(f"/tmp/ray-{ended}").exists())
    log = (tmp_path / f"contrasweep-{ended}.log").read_text()
    assert "6 trials, 2 slots" in log and "interrupted; the same command goes on from here" in log
    assert Lease(StudyRecords(runs, "ended"), print).newest()[1].released
    (tmp_path / "ended.gate").unlink()
    again = send("ended", "--time=30")
    wait_for(lambda: restarts(slurm, limited) == [1])
    (tmp_path / "limited.gate").unlink()
    for job in (limited, again):
        assert (
            slurm.wait(job, "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", timeout_s=400)
            == "COMPLETED"
        )
        assert not Path(f"/tmp/ray-{job}").exists()
    for name in ("limited", "ended"):
        check_whole(tmp_path, name, seeds=3)


def test_an_array_of_24_trials_keeps_its_ceiling_and_outlives_time_limit_requeue_and_scancel(
    slurm, tmp_path
):
    def submit():
        options = (
            "--sbatch",
            "time=2",
            "--sbatch",
            "signal-delay-s=30",
            "--sbatch",
            "mem=500M",
            "--max-concurrent",
            "2",
        )
        return contrasweep(
            slurm, tmp_path, "submit", "array.yaml", "--slurm", "--storage", "runs", *options
        )

    declare(tmp_path, "array", seeds=list(range(12)))
    job = re.search(r"job: +(\d+) \(24 tasks\)", submit())[1]
    wait_for(lambda: len(epochs(tmp_path, "array")) == 4)
    with pytest.raises(AssertionError, match=f"has been sent already, got '{job}'; scancel {job}"):
        submit()
    slurm.command("scontrol", "requeue", f"{job}_0")
    wait_for(
        lambda: all(restarts(slurm, f"{job}_{task}") >= [1] for task in (0, 1))
    )  # the second by its time limit
    wait_for(lambda: len(running(slurm)) == 2)
    slurm.command("scancel", f"{job}_1")
    most = 0
    (tmp_path / "array.gate").unlink()
    while "RUNNING" in (state := slurm.state(job)) or "PENDING" in state:
        most = max(most, len(running(slurm)))
        time.sleep(0.2)
    assert most == 2
    assert "(1 task)" in submit()  # what was ended by scancel has no record
    wait_for(
        lambda: (
            not running(slurm)
            and "PENDING" not in slurm.command("squeue", "--noheader", "--format=%T")
        )
    )
    folder = tmp_path / "runs/array/records"
    recorded = {path: path.read_bytes() for path in folder.rglob("*.json")}
    contrasweep(
        slurm,
        tmp_path,
        "run",
        "array.yaml",
        "--storage",
        "runs",
        "--tracking",
        "sqlite:///mlflow.db",
    )
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("array").experiment_id])
    shown = [run.data.tags["trial_id"] for run in runs if "trial_id" in run.data.tags]
    assert sorted(shown) == sorted(os.listdir(folder))
    page = contrasweep(slurm, tmp_path, "report", "array", "--storage", "runs", "--format", "html")
    assert all(trial in page for trial in shown)
    assert recorded == {path: path.read_bytes() for path in recorded}
    results = check_whole(tmp_path, "array", seeds=12)
    assert sorted(record.attempts for record in results.trial_records.values())[-2:] >= [2, 2]
    assert submit() == "every trial has its record"


def test_a_search_outlives_a_requeue_and_a_driver_that_is_killed(slurm, tmp_path):
    run = ("searched.yaml", "--tracking", "none", "--max-concurrent", "2", "--storage")

    def send():
        options = (
            "--slurm",
            "--sbatch",
            "time=30",
            "--sbatch",
            "cpus-per-task=2",
            "--sbatch",
            "mem=0",
        )
        return re.search(
            r"job: +(\d+) \(1 task\)",
            contrasweep(slurm, tmp_path, "submit", *run, "runs", *options),
        )[1]

    confirmed = {"confirm_on": "test", "confirm_seeds": [7, 8], "folds": 2, "search_folds": [0]}
    declare(tmp_path, "searched", type="sweep", searcher="random", trials_per_arm=4, **confirmed)
    job = send()
    wait_for(lambda: len(epochs(tmp_path, "searched")) == 4)
    slurm.command("scontrol", "requeue", job)
    wait_for(lambda: restarts(slurm, job) == [1] and slurm.state(job) == "RUNNING")
    wait_for(lambda: list(drivers("searched.yaml")))
    [driver] = drivers("searched.yaml")
    driver.kill()
    assert slurm.wait(job, "FAILED", "COMPLETED", "CANCELLED") == "FAILED"
    (tmp_path / "searched.gate").unlink()
    assert slurm.wait(send(), "COMPLETED", "FAILED", "CANCELLED", timeout_s=400) == "COMPLETED"
    trained = epochs(tmp_path, "searched")
    assert len(trained) == len(set(trained)) == 6 * EPOCHS
    contrasweep(slurm, tmp_path, "run", *run, "calm")
    runs, calm = (
        str(Results.load("searched", str(tmp_path / storage))) for storage in ("runs", "calm")
    )
    assert runs == calm


def drivers(study):
    """The processes that run a study."""
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [])[2:4] == ["run", study]:
            yield process


def running(slurm):
    return slurm.command(
        "squeue", "--noheader", "--states=RUNNING", "--array", "--format=%i"
    ).split()
