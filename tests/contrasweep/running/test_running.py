"""Studies through real Ray Tune on real digits: nothing is done twice, nothing that was reported is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from cluster.footprint import Footprint
from cluster.inventory import Inventory
from contrasweep import AblationGrid, Arm, SpecError
from contrasweep.running.driver import plan, run
from contrasweep.storage.records import StudyRecords

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.usefixtures("ray_session")]  # one local Ray at a time on two cores

ROOT = Path(__file__).resolve().parents[3]
SUPPORT = ROOT / "tests" / "support"
BASE = {"epochs": 3}


def study(**fields):
    base = {"name": "toy", "arms": {"slow": Arm("toy:train", config=BASE | {"lr": 0.01}), "fast": Arm("toy:train", config=BASE | {"lr": 0.5})},
            "data": "digits-lt", "folds": 3}  # fmt: skip
    return AblationGrid(**base | fields)


def values(results) -> pd.DataFrame:
    return results.to_frame().drop(columns=["seconds", "gpu_memory_gib"])


def started(records: StudyRecords) -> dict[str, float]:
    return {i: record.ended for i, record in records.read(records.finished()).items()}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The study, run without any trouble."""
    return run(study(), storage=str(tmp_path_factory.mktemp("calm")), tracking="none")


def test_a_run_fills_the_table(calm):
    frame = calm.to_frame()
    assert list(frame.columns[:5]) == ["trial_id", "arm", "fold", "seed", "status"]
    assert list(frame["status"]) == ["done"] * 6
    assert frame.groupby("arm")["accuracy"].mean()["fast"] > 0.8
    assert calm.compare("fast", "slow").difference > 0
    assert all(len(calm.records.metrics(i)) == 3 and calm.records.items(i)["hits"].mean() == pytest.approx(a)
               for i, a in zip(frame["trial_id"], frame["accuracy"], strict=True))  # fmt: skip


def test_running_again_trains_nothing(calm, tmp_path):
    before = started(calm.records)
    again = run(study(), storage=calm.records.storage, tracking="none")
    assert started(again.records) == before
    pd.testing.assert_frame_equal(again.to_frame(), calm.to_frame())


def test_a_lost_worker_costs_its_steps_only(calm, tmp_path):
    arms = {name: Arm("toy:train", config=dict(arm.config) | {"die_at": 2, "once": str(tmp_path / name)}) for name, arm in study().arms.items()}
    shaken = run(study(arms=arms), storage=str(tmp_path / "runs"), tracking="none")
    assert list(tmp_path.glob("slow")) and list(tmp_path.glob("fast"))
    assert max(record.attempts for record in shaken.found.values()) == 2
    pd.testing.assert_frame_equal(values(shaken).drop(columns="trial_id"), values(calm).drop(columns="trial_id"))
    assert all([row["step"] for row in shaken.records.metrics(i)] == [1, 2, 3] for i in shaken.found)


@pytest.mark.slow
def test_only_failures_without_progress_add_up(tmp_path):
    """With `max_failures` 1 a trial that loses its worker after each step gets to its end; one that never gets further fails."""

    def train(trial, resume=None):
        import tempfile

        from contrasweep.trial import Report

        first = int((resume / "step").read_text()) + 1 if resume else 1
        with tempfile.TemporaryDirectory() as folder:
            for step in range(first, 4):
                if step > first or (trial.config["stuck"] and step == 2):
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(1.1)  # longer than a worker waits before it tells the driver
                (Path(folder) / "step").write_text(str(step))
                yield Report(step, {"accuracy": step / 10}, Path(folder))

    arms = {name: Arm(train, config={"stuck": name == "stuck"}) for name in ("forward", "stuck")}
    results = run(study(arms=arms, folds=2, max_failures=1), storage=str(tmp_path), tracking="none")
    found = {(record.arm, record.status, record.attempts) for record in results.found.values()}
    assert {entry for entry in found if entry[0] == "forward"} == {("forward", "done", 3)}
    stuck = next(record for record in results.found.values() if record.arm == "stuck")
    assert stuck.status == "failed" and stuck.step == 1 and "actor died" in stuck.error


def test_a_storage_that_fails_for_a_while_costs_steps_only(tmp_path, capsys):
    def train(trial, resume=None):
        import tempfile

        from contrasweep.trial import Report

        in_the_way = Path(trial.config["runs"], "toy", "trials", trial.id, "checkpoint", "2")  # a file where a folder must be
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state").touch()
            if resume:
                in_the_way.unlink()
            else:
                yield Report(1, {"accuracy": 0.1}, Path(folder))
                in_the_way.touch()
            yield Report(2, {"accuracy": 0.2}, Path(folder))

    results = run(study(arms={"own": Arm(train, config={"runs": str(tmp_path)})}, folds=2), storage=str(tmp_path), tracking="none")
    assert {(record.status, record.step, record.attempts) for record in results.found.values()} == {("done", 2, 2)}
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("again: own fold=")]
    assert len(told) == 2 and all("StorageError" in line and "checkpoint/2/state cannot be written" in line for line in told)


def test_a_record_that_a_lost_worker_had_written_stands(calm, tmp_path):
    """Given up by the engine, the trial keeps what its worker wrote before it was lost."""
    from contrasweep.running.engine import Engine
    from contrasweep.running.source import FixedSource

    class Silent:
        def ended(self, record):
            self.record = record

    trial, records = plan(study(), storage=calm.records.storage).trials[0], StudyRecords(str(tmp_path), "toy")
    written = calm.found[trial.id]
    records.write(written)
    engine = Engine(None, FixedSource([]), records, None, listener := Silent(), max_failures=0, budget=None)
    engine.running[trial.id] = (trial, {})
    engine.give_up(trial.id, "the trial's worker was lost")
    assert listener.record == records.read_one(trial.id) == written


def test_a_trial_that_raises_fails_alone(tmp_path):
    arms = {"good": Arm("toy:train", config=BASE), "bad": Arm("toy:train", config=BASE | {"fail_at": 2})}
    results = run(study(arms=arms), storage=str(tmp_path), tracking="none")
    assert results.counts == {"done": 3, "failed": 3}
    assert not results.complete
    record = next(r for r in results.found.values() if r.arm == "bad")
    assert "RuntimeError: this trial fails on purpose" in record.error and "toy.py" in record.error
    assert record.step == 1
    again = run(study(arms=arms), storage=str(tmp_path), tracking="none", retry_failed=True)
    assert {r.attempts for r in again.found.values() if r.arm == "bad"} == {2}


def test_a_trial_that_never_fits_is_infeasible_not_bad(tmp_path):
    most = max(node.memory_gib for node in Inventory.detect().nodes)
    huge = Arm("toy:train", config=BASE | {"fail_at": 1, "error": "MemoryError"}, footprint=Footprint(host_memory_gib=most / 3))
    results = run(study(arms={"good": Arm("toy:train", config=BASE), "huge": huge}, folds=2), storage=str(tmp_path), tracking="none")
    assert results.counts == {"done": 2, "infeasible": 2}
    assert "MemoryError" in next(r for r in results.found.values() if r.arm == "huge").error


def test_a_function_of_the_caller_is_a_trainable(tmp_path):
    def train(trial, resume=None):
        from contrasweep.trial import Report

        yield Report(1, {"accuracy": 0.5 + trial.fold / 10})

    results = run(study(arms={"own": Arm(train)}), storage=str(tmp_path), tracking="none")
    assert sorted(results.to_frame()["accuracy"]) == [0.5, 0.6, 0.7]


def test_a_metric_that_was_not_reported_is_said_so(tmp_path):
    results = run(study(metric="acuracy", folds=2), storage=str(tmp_path), tracking="none")
    assert results.counts == {"failed": 4}
    assert "'acuracy' is missing; it reported: accuracy" in next(iter(results.found.values())).error


def test_another_plan_of_the_same_name_is_refused_unless_it_extends(calm):
    larger = study(seeds=[0, 1])
    before = started(calm.records)
    with pytest.raises(SpecError, match="another plan"):
        run(larger, storage=calm.records.storage, tracking="none")
    extended = run(larger, storage=calm.records.storage, tracking="none", extend=True)
    assert extended.counts == {"done": 12}
    assert before.items() <= started(extended.records).items()


def test_a_plan_writes_nothing(tmp_path):
    assert len(plan(study(), storage=str(tmp_path / "runs")).trials) == 6
    assert not (tmp_path / "runs").exists()


def command(tmp_path: Path, *words: str, **options) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1", "RAY_TMPDIR": f"/tmp/cs-{os.getpid()}-{abs(hash(tmp_path)) % 10**6}"}
    call = [sys.executable, "-m", "contrasweep", *words, "--storage", str(tmp_path / "runs"), "--tracking", f"sqlite:///{tmp_path}/mlflow.db"]
    return subprocess.Popen(call, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_driver_goes_on_where_it_was(tmp_path, number):
    """After the signal, `run` again keeps what is finished, and ends with the table of a calm run."""
    file = tmp_path / "study.yaml"
    file.write_text("name: stopped\ndata: digits-lt\nfolds: 3\narms:\n"
                    "  a: {trainable: 'toy:train', config: {epochs: 6, pause_s: 0.3}}\n"
                    "  b: {trainable: 'toy:train', config: {epochs: 6, pause_s: 0.3, lr: 0.5}}\n")  # fmt: skip
    records = StudyRecords(str(tmp_path / "runs"), "stopped")
    first = command(tmp_path, "run", str(file))
    until = time.monotonic() + 120
    while len(records.finished()) < 2:
        assert first.poll() is None and time.monotonic() < until, first.stderr.read()
        time.sleep(0.1)
    first.send_signal(number)
    _, told = first.communicate(timeout=60)
    before = started(records)
    assert 2 <= len(before) < 6
    if number == signal.SIGINT:
        assert first.returncode == 130 and "goes on from here" in told
    second = command(tmp_path, "run", str(file))
    printed, told = second.communicate(timeout=240)
    assert second.returncode == 0, told
    assert before.items() <= started(records).items()
    calm = run(AblationGrid("stopped", {"a": Arm("toy:train", config={"epochs": 6, "pause_s": 0}), "b": Arm("toy:train", config={"epochs": 6, "lr": 0.5})},
                            data="digits-lt", folds=3), storage=str(tmp_path / "calm"), tracking="none")  # fmt: skip
    from contrasweep.results.results import Results

    found = Results.load("stopped", str(tmp_path / "runs"))
    pd.testing.assert_frame_equal(values(found).drop(columns="trial_id"), values(calm).drop(columns="trial_id"))
    assert found.table().to_text().splitlines()[0] in printed
