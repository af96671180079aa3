"""A trial of two processes in Ray, one of which is killed: it goes on from its checkpoint, as if nothing had been."""

import threading
from pathlib import Path

import psutil
import pytest

import contrasweep as cs
from contrasweep.trainables.contrastive import train

pytestmark = pytest.mark.long
RANK = "from contrasweep.trainables.process_group import work"


CONFIG = {
    "encoder": {"name": "cnn", "width": 8},
    "epochs": 6,
    "batch_size": 64,
    "checkpoint_every": 1,
    "evaluate_every": 1,
    "resources": {"processes": 2},
}
STUDY = cs.AblationGrid(
    name="lost",
    arms={"two": cs.Arm("contrasweep.trainables.contrastive:train", config=CONFIG)},
    data="digits-lt",
    folds=2,
)


def kill_one_rank(records: Path, killed: list[int], ended: threading.Event) -> None:
    """Wait for a checkpoint and kill the second process of the trial that wrote it."""
    while not killed and not ended.wait(0.02):
        if any(records.glob("trials/*/checkpoint/*")):
            for process in psutil.Process().children(recursive=True):
                try:
                    if RANK in " ".join(process.cmdline()):
                        process.kill()
                        killed.append(process.pid)
                        break
                except psutil.Error:
                    continue


def test_a_killed_rank_leaves_a_trial_that_ray_resumes(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    killed, ended = list[int](), threading.Event()
    storage = tmp_path / "runs"
    killer = threading.Thread(target=kill_one_rank, args=(storage / "lost", killed, ended))
    killer.start()
    try:
        results = cs.run(STUDY, storage=str(storage), tracking=None)
    finally:
        ended.set()
        killer.join()
    assert len(killed) == 1
    assert results.to_frame().status.tolist() == ["done", "done"]
    records = results.trial_records
    assert sorted(record.attempts for record in records.values()) == [1, 2], "the one is begun again, not the other"
    [again] = [trial for trial in cs.plan(STUDY, storage=str(storage)).trials if records[trial.id].attempts == 2]
    calm = list(train(again))[-1].metrics
    assert {name: records[again.id].metrics[name] for name in calm} == dict(calm)
