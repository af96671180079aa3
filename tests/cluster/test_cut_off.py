"""A network that was cut for a while: what was lost in it stands nothing still afterwards."""

import os
import shutil
import subprocess
import sys
import time

import pytest
import yaml
from benchmarks.faults.network import CutOffCluster
from places import SUPPORT
from raylets import wait_for

from contrasweep.storage.records import StudyRecords

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.getuid() != 0 or not shutil.which("ip"), reason="a network of its own needs root and ip"
    ),
]
CUT_S = 45.0
"""So long that the worker closes the connection."""
PATIENT = {
    "RAY_health_check_period_ms": "10000",
    "RAY_health_check_failure_threshold": "30",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "300",
}


class PatientCluster(CutOffCluster):
    """It gives no node up that is cut off, so that nothing but an answer is lost."""

    def start_head(self):
        self.environment |= PATIENT | {"PYTHONPATH": str(SUPPORT)}
        super().start_head()


def test_an_answer_that_a_cut_has_lost_does_not_stand_a_trial_still_for_five_minutes(
    tmp_path, runs
):
    log = tmp_path / "trained"
    config = {"epochs": 60, "pause_s": 1.0, "log": str(log)}
    study = {
        "name": "cut",
        "data": "digits-lt",
        "seeds": [0],
        "arms": {"a": {"trainable": "toy:train"}},
    }
    study["arms"]["a"]["config"] = config
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))

    def epochs():
        return log.read_text().count("\n") if log.exists() else 0

    cluster = PatientCluster()
    try:
        cluster.add_node("a", "T4")
        cluster.wait_for_nodes(2)
        words = ["run", "study.yaml", "--storage", runs, "--tracking", "none"]
        environment = {
            "RAY_ADDRESS": f"{cluster.host}:{cluster.gcs_port}",
            "RAY_AUTH_MODE": "disabled",
        }
        with (tmp_path / "said").open("w") as said:
            driver = subprocess.Popen(
                [sys.executable, "-m", "contrasweep", *words],
                cwd=tmp_path,
                env=cluster.environment | environment,
                stdout=said,
                stderr=said,
            )
        wait_for(lambda: epochs() >= 6 or driver.poll() is not None)
        cluster.connect(False)
        time.sleep(CUT_S)
        before = epochs()
        cluster.connect(True)
        healed = time.monotonic()
        wait_for(lambda: epochs() > before or driver.poll() is not None)
        stood = time.monotonic() - healed
        assert driver.wait() == 0, (tmp_path / "said").read_text()
    finally:
        cluster.close()
    # What could not be delivered is sent again after at most as long as was tried: 25 s. Ray then needs 8 s on two busy
    # cores to start a worker.
    assert stood < 60, (tmp_path / "said").read_text()
    (record,) = StudyRecords(runs, "cut").read(StudyRecords(runs, "cut").finished()).values()
    assert record.status == "done" and record.attempts == 2
    assert "Error" not in (tmp_path / "said").read_text()
