"""Studies whose driver is interrupted or killed, as a user starts them: from the command line, on a Ray of their
own."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from calm import calm_run
from drivers import Driver, ray_folder, start_driver
from raylets import wait_for

from contrasweep.results.results import Results
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_study

pytestmark = pytest.mark.long
Start = Callable[[str], Driver]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(tracking): `contrasweep run` of the study in tmp_path/study.yaml, with its records in tmp_path/runs."""
    words = ["run", "study.yaml", "--storage", "runs", "--tracking"]
    with ray_folder() as ray:
        yield lambda tracking: start_driver(*words, tracking, folder=tmp_path, ray=ray)


def stop(driver: Driver, number: signal.Signals, records: StudyRecords, count: int) -> str:
    """Send it the signal as soon as so many trials are finished. What it printed on stderr."""
    wait_for(lambda: len(records.finished()) >= count or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()
    driver.send_signal(number)
    return driver.communicate()[1]


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
    errors = stop(driver, signal.SIGINT, records, 2)
    assert driver.returncode == 130 and "goes on from here" in errors
    first = ended()
    assert 2 <= len(first) < 6
    stop(start(tracking), signal.SIGKILL, records, len(first) + 2)
    second = ended()
    assert len(first) + 2 <= len(second) < 8 and first.items() <= second.items()
    driver = start(tracking)
    printed, errors = driver.communicate()
    assert driver.returncode == 0, (errors, [record.error for record in records.read(records.finished()).values()])
    assert second.items() <= ended().items()
    results = Results.load("stopped", str(tmp_path / "runs"))
    calm = calm_run(
        load_study(str(tmp_path / "study.yaml"), ["arms.a.config.pause_s=0", "arms.b.config.pause_s=0"]),
        tmp_path / "calm",
    )
    pd.testing.assert_frame_equal(values(results), values(calm), check_exact=True)
    assert results.table().to_text().splitlines()[0] in printed


def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path, start: Start) -> None:
    """With early stopping, its driver killed after four records, it keeps what was asked and what is done, and ends."""
    (tmp_path / "study.yaml").write_text(
        "name: killed\ndata: digits-lt\nfolds: 3\ntrials_per_arm: 4\nconfirm_seeds: [1000]\nconfirm_on: all\n"
        "pruner: halving\npruner_options: {reduction: 2, bracket: 4}\narms:\n"
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
    recorded = {key: records.store.read(key) for key in records.store.list("killed/search/")}
    assert 4 <= len(seen) < 14
    assert Results.load("killed", storage).statuses["pending"] >= 1
    second = start("none")
    printed, errors = second.communicate()
    assert second.returncode == 0, errors
    after = records.read(records.finished())
    assert before.items() <= after.items() and seen <= set(after) and len(after) == 14
    assert sorted(r.step for r in after.values() if r.arm == "long" and r.notes.phase == "search") == [1, 1, 2, 4]
    assert all(records.store.read(key) == content for key, content in recorded.items())
    results = Results.load("killed", storage)
    assert results.statuses == {"done": 6} and results.table().to_text().splitlines()[0] in printed
    assert dict(results.search["arm"].value_counts()) == {"short": 4, "long": 4}
    for arm, rows in results.search.groupby("arm"):
        confirmed, whole = (
            next(r.config for r in results.trial_records.values() if r.arm == arm),
            rows[rows["status"] == "done"],
        )
        assert confirmed["lr"] == whole.loc[whole["value"].idxmax(), "lr"]
    assert "short: 4 of 4 configurations" in printed
