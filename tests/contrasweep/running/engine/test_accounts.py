"""What a driver counts of its running trials: the hosts that each has lost, and the seconds of all of its attempts."""

import time

from contrasweep import AblationGrid, Arm
from contrasweep.data.manifest import Manifest
from contrasweep.planning.budget import Budget
from contrasweep.running.engine.accounts import MAX_HOSTS_LOST, Accounts, Overdue
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

TRIAL = Trial("s", "a", "m:f", {}, Manifest("d", "/nowhere", "image", {}), None, 0)


def accounts_of(tmp_path, **budgets):
    records = StudyRecords(str(tmp_path), "s")
    return Accounts(
        Budget(AblationGrid("s", {"a": Arm("m:f")}, "d", **budgets), records),
        Overdue(),
        Lease(records, print),
    )


def rows(step):
    return [{"step": step, "time": 0.0, "accuracy": 0.5}]


def test_a_trial_that_gets_no_further_than_the_step_before_its_host_was_lost_loses_no_more_than_so_many(
    tmp_path,
):
    accounts = accounts_of(tmp_path)
    active = accounts.begin(TRIAL, TrialNotes())
    assert accounts.reported(active, rows(3), 1.0)
    for _ in range(MAX_HOSTS_LOST - 1):
        assert accounts.lost_host(active)
        assert not accounts.reported(active, rows(3), 2.0), (
            "it resumes from its checkpoint, and reports that step again"
        )
    assert not accounts.lost_host(active)
    assert accounts.reported(active, rows(4), 3.0) and accounts.lost_host(active), (
        "one that got further may lose others"
    )


def test_a_trial_that_has_lost_its_worker_takes_neither_its_time_nor_the_study_s(tmp_path):
    accounts = accounts_of(tmp_path, budget_hours=1.0)
    accounts.overdue.report_s = 60.0
    accounts.started(accounts.begin(TRIAL, TrialNotes()), 1.0)
    accounts.waits(TRIAL.id)
    assert not accounts.budget.running
    assert accounts.overdue.timed_out(time.monotonic() + 100.0) == {}


def test_the_seconds_of_a_trial_that_was_stopped_early_count_on_when_it_goes_on(tmp_path):
    accounts = accounts_of(tmp_path, budget_gpu_hours=1.0)
    accounts.overdue.trial_s = 3600.0
    active = accounts.begin(TRIAL, TrialNotes())
    accounts.started(active, 1.0)
    accounts.reported(active, rows(3), 1800.0)
    assert accounts.end(
        Record.of(TRIAL, status=Status.PRUNED, step=3, seconds=1800.0, metrics={"accuracy": 0.5})
    )
    accounts.started(again := accounts.begin(TRIAL, TrialNotes()), 1.0)
    assert again.seconds == 1800.0
    assert not accounts.overdue.timed_out(time.monotonic() + 1700)
    assert accounts.overdue.timed_out(time.monotonic() + 1900), (
        "its limit is of the seconds of all attempts"
    )
