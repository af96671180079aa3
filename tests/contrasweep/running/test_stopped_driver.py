"""A driver that dies between a report that stops a trial and the trial's record: the next one writes that record, and
calls unchanged code unchanged."""

import signal
import socket

import pytest
from drivers import output_of, ray_folder, start_driver, wait_while_it_runs
from raylets import wait_for

from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords

pytestmark = pytest.mark.long
STUDY = """
name: halted
data: digits-lt
folds: 3
trials_per_arm: 6
confirm_seeds: [1000]
searcher: random
pruner: asha
pruner_options: {{reduction: 2}}
arms:
  a:
    trainable: valued:train
    config: {{epochs: 3, driver: {driver}}}
    space: {{lr: {{type: float, low: 0.1, high: 5.0}}}}
"""


def test_a_trial_that_was_to_be_stopped_is_no_trial_of_other_code(tmp_path, runs):
    process = tmp_path / "driver.pid"
    (tmp_path / "study.yaml").write_text(STUDY.format(driver=process))
    records = StudyRecords(runs, "halted")
    words = ["study.yaml", "--storage", "runs"]
    options = ["--tracking", "none", "--max-concurrent", "1"]
    with ray_folder() as ray:
        driver = start_driver("run", *words, *options, folder=tmp_path, ray=ray)
        process.write_text(str(driver.pid))
        wait_while_it_runs(driver, lambda: not process.exists())  # it is stopped, see `valued`
        seen = records.finished()
        wait_for(
            lambda: any(records.metrics(i) for i in records.with_files() - seen)
        )  # the report is stored
        driver.send_signal(signal.SIGKILL)
        driver.send_signal(signal.SIGCONT)
        driver.communicate()
        (halted,) = records.with_files() - seen
        assert records.metrics(halted) and driver.returncode == -signal.SIGKILL
        assert records.read_one(halted) is None
        for _ in range(2):
            again = start_driver("run", *words, *options, folder=tmp_path, ray=ray)
            assert "other code" not in output_of(again)[1]
        planned = output_of(start_driver("plan", *words, folder=tmp_path, ray=ray))
    assert "other code" not in "".join(planned)
    recorded = records.read(records.finished())
    pruned = [record for record in recorded.values() if record.status is Status.PRUNED]
    assert recorded[halted] in pruned and len(pruned) > 1, (
        "by another driver, and in the ordinary way"
    )
    assert len({record.code for record in recorded.values()}) == 1 and recorded[halted].code.digest
    for record in pruned:
        assert record.versions == pruned[0].versions and record.versions["ray"]
        assert record.host == socket.gethostname() and record.seconds > 0
        assert record.notes.to_dict().keys() == pruned[0].notes.to_dict().keys()
