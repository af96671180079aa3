"""A cluster that begins with a head alone: hosts join while the study runs, and each trial goes to the smallest."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from raylets import RayCluster

from contrasweep.results.results import Results

pytestmark = [pytest.mark.long, pytest.mark.timeout(280)]
SUPPORT = Path(__file__).resolve().parents[1] / "support"


def test_hosts_that_join_late_are_used_and_nothing_is_infeasible(tmp_path):
    shutil.copy(SUPPORT / "toy.py", tmp_path)
    arms = {"small": 5, "large": 50}
    study = {
        "name": "growing",
        "data": "digits-lt",
        "folds": 3,
        "arms": {
            name: {
                "trainable": "toy:train",
                "config": {"epochs": 2},
                "footprint": {"gpu_memory_gib": gib, "host_memory_gib": 0.5},
            }
            for name, gib in arms.items()
        },
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    cluster = RayCluster()
    try:
        environment = cluster.environment | {"RAY_ADDRESS": f"127.0.0.1:{cluster.gcs_port}"}
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "contrasweep", "run", "study.yaml", "--storage", "runs", "--tracking", "none"]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        time.sleep(10)
        cluster.add_node("small", "T4")
        time.sleep(30)
        cluster.add_node("large", "H100")
        _, errors = process.communicate(timeout=200)
    finally:
        cluster.close()
    assert process.returncode == 0, errors
    results = Results.load("growing", str(tmp_path / "runs"))
    assert results.counts == {"done": 6}
    placed = sorted((record.arm, record.notes.gpu_type) for record in results.trial_records.values())
    assert placed == [("large", "H100")] * 3 + [("small", "T4")] * 3
    assert "no host of the cluster can hold a trial yet" in errors
    assert "arm large waits for a larger host: the trial needs 50.0 GiB" in errors
