"""A study whose driver is killed, as a user starts it: from the command line, on a Ray of its own."""

import signal

import pytest
from drivers import output_of, ray_folder, start_driver, wait_while_it_runs

from contrasweep.results.results import Results
from contrasweep.storage.records import StudyRecords


@pytest.mark.long
def test_a_killed_sweep_goes_on_where_it_was(tmp_path, runs):
    """With early stopping, its driver killed after four records, it keeps what was asked and what is done, and ends."""
    (tmp_path / "study.yaml").write_text(
        "name: killed\ndata: digits-lt\nfolds: 3\ntrials_per_arm: 4\nconfirm_seeds: [1000]\nconfirm_on: all\n"
        "pruner: halving\npruner_options: {reduction: 2, bracket: 4}\narms:\n"
        "  short: {trainable: 'toy:train', config: {epochs: 2, pause_s: 0.2}, space: {lr: {type: float, low: 0.003, "
        "high: 3.0, log: true}}}\n"
        "  long: {trainable: 'toy:train', config: {epochs: 4, pause_s: 0.2}, space: {lr: {type: float, low: 0.003, "
        "high: 3.0, log: true}}}\n"
    )
    records = StudyRecords(runs, "killed")
    words = ("run", "study.yaml", "--storage", "runs", "--tracking", "none")
    with ray_folder() as ray:
        driver = start_driver(*words, folder=tmp_path, ray=ray)
        wait_while_it_runs(driver, lambda: len(records.finished()) >= 4)
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        before = {i: r for i, r in records.read(records.finished()).items() if r.status == "done"}
        seen = records.finished()
        recorded = {key: records.store.read(key) for key in records.store.list("killed/search/")}
        assert 4 <= len(seen) < 14
        assert Results.load("killed", runs).statuses["pending"] >= 1
        printed, _ = output_of(start_driver(*words, folder=tmp_path, ray=ray))
    after = records.read(records.finished())
    assert before.items() <= after.items() and seen <= set(after) and len(after) == 14
    assert sorted(
        r.step for r in after.values() if r.arm == "long" and r.notes.phase == "search"
    ) == [1, 1, 2, 4]
    assert all(records.store.read(key) == content for key, content in recorded.items())
    results = Results.load("killed", runs)
    assert results.statuses == {"done": 6} and results.table().to_text().splitlines()[0] in printed
    assert dict(results.search["arm"].value_counts()) == {"short": 4, "long": 4}
    for arm, rows in results.search.groupby("arm"):
        confirmed = next(r.config for r in results.trial_records.values() if r.arm == arm)
        whole = rows[rows["status"] == "done"]
        assert confirmed["lr"] == whole.loc[whole["value"].idxmax(), "lr"]
    assert "short: 4 of 4 configurations" in printed
