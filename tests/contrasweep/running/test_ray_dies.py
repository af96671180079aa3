"""Ray's own death, and a terminal that goes: one line, status 130, and the same command goes on."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from drivers import Driver, ray_folder, start_driver

from contrasweep.storage.records import StudyRecords

pytestmark = [pytest.mark.long, pytest.mark.timeout(280)]
STUDY = """
name: ray-dies
data: digits-lt
folds: 3
arms:
  a: {trainable: 'toy:train', config: {epochs: 3, pause_s: 1.5}}
"""


class Run:
    """`contrasweep run` with a Ray of its own, whose files lie below `ray`."""

    def __init__(self, folder: Path, ray: Path) -> None:
        self.folder, self.ray = folder, ray
        (folder / "study.yaml").write_text(STUDY)
        self.records = StudyRecords(str(folder / "runs"), "ray-dies")

    def start(self) -> Driver:
        words = ["run", "study.yaml", "--storage", "runs", "--tracking", "none"]
        return start_driver(*words, folder=self.folder, ray=self.ray, environment={"TMPDIR": str(self.folder)})

    def wait_for_a_record(self, process: Driver) -> None:
        until = time.monotonic() + 200
        while not self.records.finished():
            assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
            time.sleep(0.1)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with ray_folder() as ray:
        yield Run(tmp_path, ray)


@pytest.mark.parametrize("victim", ["gcs_server", "raylet"])
def test_a_death_of_ray_is_said_in_one_line(victim: str, run: Run) -> None:
    process = run.start()
    run.wait_for_a_record(process)
    dead = [p for p in psutil.Process(process.pid).children(recursive=True) if p.name() == victim]
    for one in dead:
        one.send_signal(signal.SIGKILL)
    _, errors = process.communicate(timeout=100)
    assert (len(dead), process.returncode) == (1, 130), errors
    (line,) = [line for line in errors.splitlines() if line.startswith("contrasweep:")]
    says = "finished trials have their records; the same command goes on from here"
    assert line == f"contrasweep: Ray is gone (its {victim} has died); {says}"


def test_a_terminal_that_goes_interrupts_the_run(run: Run) -> None:
    process = run.start()
    run.wait_for_a_record(process)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "contrasweep: interrupted; the same command goes on from here"
