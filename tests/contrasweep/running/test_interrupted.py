"""Studies whose driver is interrupted or killed, as a user starts them: from the command line, on a Ray of their
own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from calm import calm_run
from raylets import wait_for

from contrasweep.results.results import Results
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_study

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).resolve().parents[2] / "support"
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(tracking): `contrasweep run` of the study in tmp_path/study.yaml, with its records in tmp_path/runs."""
    folder = tempfile.mkdtemp(prefix="cs-", dir="/tmp")  # short: Ray puts sockets below it
    environment = os.environ | {"PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1", "RAY_TMPDIR": folder}
    call = [sys.executable, "-m", "contrasweep", "run", "study.yaml", "--storage", "runs", "--tracking"]
    yield lambda tracking: subprocess.Popen(
        [*call, tracking], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    shutil.rmtree(folder, ignore_errors=True)


def stop(driver: subprocess.Popen[str], number: signal.Signals, records: StudyRecords, count: int) -> str:
    """Send it the signal as soon as so many trials are finished. What it printed on stderr."""
    wait_for(lambda: len(records.finished()) >= count or driver.poll() is not None, 120)
    assert driver.poll() is None, driver.communicate()
    driver.send_signal(number)
    return driver.communicate(timeout=60)[1]


def values(results: Results) -> pd.DataFrame:
    return results.to_frame().drop(columns=["trial_id", "seconds", "gpu_memory_gib"])


def test_a_stopped_driver_goes_on_where_it_was(tmp_path: Path, start: Start) -> None:
    """Interrupted, and then killed: each time `run` again keeps what is finished, and it ends with the table of a calm
    run."""
    (tmp_path / "study.yaml").write_text(
        "name: stopped\ndata: digits-lt\nfolds: 4\narms:\n"
        "  a: {trainable: 'toy:train', config: {epochs: 6, pause_s: 0.3}}\n"
        "  b: {trainable: 'toy:train', config: {epochs: 6, pause_s: 0.3, lr: 0.5}}\n"
    )
    records, tracking = StudyRecords(str(tmp_path / "runs"), "stopped"), f"sqlite:///{tmp_path}/mlflow.db"

    def ended() -> dict[str, float]:
        return {i: record.ended for i, record in records.read(records.finished()).items()}

    driver = start(tracking)
    told = stop(driver, signal.SIGINT, records, 2)
    assert driver.returncode == 130 and "goes on from here" in told
    first = ended()
    assert 2 <= len(first) < 6
    stop(start(tracking), signal.SIGKILL, records, len(first) + 2)
    second = ended()
    assert len(first) + 2 <= len(second) < 8 and first.items() <= second.items()
    driver = start(tracking)
    printed, told = driver.communicate(timeout=240)
    assert driver.returncode == 0, (told, [record.error for record in records.read(records.finished()).values()])
    assert second.items() <= ended().items()
    found = Results.load("stopped", str(tmp_path / "runs"))
    calm = calm_run(
        load_study(str(tmp_path / "study.yaml"), ["arms.a.config.pause_s=0", "arms.b.config.pause_s=0"]),
        tmp_path / "calm",
    )
    pd.testing.assert_frame_equal(values(found), values(calm), check_exact=True)
    assert found.table().to_text().splitlines()[0] in printed


def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path, start: Start) -> None:
    """With early stopping, its driver killed after four records, it keeps what was asked and what is done, and ends."""
    (tmp_path / "study.yaml").write_text(
        "name: killed\ndata: digits-lt\nfolds: 3\ntrials_per_arm: 4\nconfirm_seeds: [1000]\npruner: halving\n"
        "pruner_options: {reduction: 2, bracket: 4}\narms:\n"
        "  short: {trainable: 'toy:train', config: {epochs: 2, pause_s: 0.2}, space: {lr: {type: float, low: 0.003, "
        "high: 3.0, log: true}}}\n"
        "  long: {trainable: 'toy:train', config: {epochs: 4, pause_s: 0.2}, space: {lr: {type: float, low: 0.003, "
        "high: 3.0, log: true}}}\n"
    )
    storage = str(tmp_path / "runs")
    records = StudyRecords(storage, "killed")
    stop(start("none"), signal.SIGKILL, records, 4)
    before = {i: r for i, r in records.read(records.finished()).items() if r.status == "done"}
    seen = records.finished()
    asked = {key: records.store.read(key) for key in records.store.list("killed/search/")}
    assert 4 <= len(seen) < 14
    assert Results.load("killed", storage).counts["pending"] >= 1
    second = start("none")
    printed, told = second.communicate(timeout=240)
    assert second.returncode == 0, told
    after = records.read(records.finished())
    assert before.items() <= after.items() and seen <= set(after) and len(after) == 14
    assert sorted(r.step for r in after.values() if r.arm == "long" and r.notes.phase == "search") == [1, 1, 2, 4]
    assert all(records.store.read(key) == content for key, content in asked.items())
    results = Results.load("killed", storage)
    assert results.counts == {"done": 6} and results.table().to_text().splitlines()[0] in printed
    assert dict(results.search["arm"].value_counts()) == {"short": 4, "long": 4}
    for arm, rows in results.search.groupby("arm"):
        confirmed, whole = (
            next(r.config for r in results.trial_records.values() if r.arm == arm),
            rows[rows["status"] == "done"],
        )
        assert confirmed["lr"] == whole.loc[whole["value"].idxmax(), "lr"]
    assert "short: 4 of 4 configurations" in printed
