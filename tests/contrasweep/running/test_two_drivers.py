"""Two runs of one study on one S3 prefix: the second is refused, and takes over once the first is killed."""

from contextlib import ExitStack

import pytest
from drivers import Driver, output_of, ray_folder, start_driver, wait_while_it_runs
from raylets import wait_for

from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.records import StudyRecords

pytestmark = pytest.mark.long
STUDY = """
name: two-drivers
data: digits-lt
folds: 3
arms:
  a: {{trainable: 'toy:train', config: {{epochs: 4, pause_s: 0.4, log: {log}, wait_at: 3, gate: {gate}}}}}
"""


class Drivers:
    """Runs of one study; `trained` has the (trial, epoch) that any of them trained."""

    def __init__(self, folder, storage, environment, opened):
        self.folder = folder
        self.log = folder / "trained"
        self.gate = folder / "gate"
        (folder / "study.yaml").write_text(STUDY.format(log=self.log, gate=self.gate))
        self.records = StudyRecords(storage, "two-drivers")
        self.environment = environment
        self.opened = opened
        self.processes: list[Driver] = []

    def start(self):
        words = ["run", "study.yaml", "--storage", self.records.storage, "--tracking", "none"]
        places = {"folder": self.folder, "ray": self.opened.enter_context(ray_folder())}
        self.processes.append(
            start_driver(*words, "--max-concurrent", "1", **places, environment=self.environment)
        )
        return self.processes[-1]

    def checkpoint(self, trial_id):
        return Checkpoints(self.records.store, self.records.key(trial_id, "checkpoint")).latest()

    def ended(self):
        """When the trials that have a record ended."""
        return {i: r.ended for i, r in self.records.read(self.records.finished()).items()}

    @property
    def trained(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def drivers(s3, tmp_path):
    with ExitStack() as opened:
        drivers = Drivers(tmp_path, s3.uri, s3.env, opened)
        yield drivers
        for process in drivers.processes:
            process.kill()
            process.communicate()


def test_of_two_runs_on_one_prefix_one_trains_and_the_next_takes_over(drivers):
    first = drivers.start()
    wait_while_it_runs(first, drivers.records.finished)
    drivers.gate.touch()  # the next trial waits, so that the first run goes on as long as it takes
    before = drivers.ended()
    assert 1 <= len(before) < 3, "one of the last two trials is held"
    second = drivers.start()
    _, errors = second.communicate()
    assert second.returncode == 2, errors
    assert (
        f"study two-drivers is being run by another process on {drivers.records.storage} (process {first.pid}"
        in errors
    )
    assert first.poll() is None
    held = drivers.trained[-1].split()[0]
    wait_for(
        lambda: (saved := drivers.checkpoint(held)) is not None and saved.step == 2
    )  # seconds after its report
    first.kill()
    first.wait()
    drivers.gate.unlink()
    _, errors = output_of(drivers.start())
    assert f"process {first.pid} on" in errors and "has ended; this run takes over" in errors
    after = drivers.ended()
    assert len(after) == 3 and before.items() <= after.items()
    again = [line for line in drivers.trained if drivers.trained.count(line) > 1]
    assert len(again) <= 2, "no more than the epoch that was cut off is trained again"
