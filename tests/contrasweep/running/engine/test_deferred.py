"""Infeasible belongs to an inventory: trials wait while the cluster may grow, and run where a host fits them."""

import pytest
from joining_hosts import Cluster, Driver, host
from made_up import nowhere, train

from contrasweep import AblationGrid, Arm
from contrasweep.cluster import hosts
from contrasweep.cluster.hosts import Hosts
from contrasweep.cluster.packing import Footprint
from contrasweep.planning.grid import FixedSource, make_plan
from contrasweep.running.engine.accounts import ActiveTrial
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished

DATA = nowhere(2)


SMALL = Footprint(gpu_memory_gib=5)
LARGE = Footprint(gpu_memory_gib=50)


class Run(Driver):
    """A study with an arm that fits a T4 and one that does not."""

    def __init__(self, storage, hosts, infeasible=None):
        arms = {"small": Arm(train, resources=SMALL), "large": Arm(train, resources=LARGE)}
        study = AblationGrid("s", arms, "d", folds=2)
        source = FixedSource(make_plan(study, lambda name: DATA).trials)
        super().__init__(study, source, hosts, StudyRecords(str(storage), "s"), infeasible or {})

    def next_arm(self):
        """The arm of the next trial, which is handed out."""
        following = self.next()
        return "finished" if isinstance(following, Finished) else following and following.trial.arm

    def end_all(self):
        for active in list(self.accounts.active.values()):
            self.end(active.trial)

    def statuses(self):
        return sorted((record.arm, record.status.value) for record in self.shown.records)


def test_what_fits_no_host_waits_and_runs_when_a_larger_one_joins(tmp_path):
    cluster = Cluster("T4")
    run = Run(tmp_path, cluster.hosts)
    assert [run.next_arm() for _ in range(3)] == ["small", "small", None]
    assert cluster.requested == {LARGE}
    needs = "the trial needs 50.0 GiB of GPU memory; the largest GPU, T4, has 14.7 GiB (declared)"
    assert run.shown.messages == [f"arm large waits for a larger host: {needs}"]
    cluster.after(14, "T4", "H100")
    assert [run.next_arm() for _ in range(3)] == ["large", "large", "finished"]
    assert cluster.requested == set()
    run.end_all()
    assert run.statuses() == [("large", "done")] * 2 + [("small", "done")] * 2


def test_it_is_infeasible_once_no_host_is_expected_and_nothing_runs(tmp_path):
    cluster = Cluster("T4")
    run = Run(tmp_path, cluster.hosts)
    assert [run.next_arm() for _ in range(3)] == ["small", "small", None]
    cluster.after(hosts.JOIN_QUIET_S + 1, "T4")
    assert run.next_arm() is None, "small ones still run, so it costs nothing to wait"
    run.end_all()
    assert run.next_arm() == "finished"
    assert run.statuses() == [("large", "infeasible")] * 2 + [("small", "done")] * 2
    assert cluster.requested == set(), "no host is asked for that nothing needs any more"
    assert run.shown.records[-1].notes.refused_by == "1 x (4 cores, 16.0 GiB, 1 T4 of 14.7 GiB)"
    cluster.after(14, "T4", "H100")
    assert [run.next_arm() for _ in range(3)] == ["large", "large", "finished"]


def test_an_autoscaler_has_more_time_and_a_lost_host_still_counts():
    cluster = Cluster("T4", "H100")
    cluster.after(hosts.JOIN_QUIET_S + 1, "T4")
    assert cluster.hosts.poll() is None and "H100" in str(cluster.hosts.inventory)
    assert not cluster.hosts.may_grow()
    cluster.listed = [host("T4", "gpu-workers")]
    cluster.now += hosts.POLL_S
    cluster.hosts.poll()
    assert cluster.hosts.may_grow()


@pytest.mark.parametrize("larger", [False, True])
def test_a_later_run_takes_it_up_where_a_host_fits_it_by_then(larger, tmp_path):
    first = Run(tmp_path, Hosts())
    assert [first.next_arm() for _ in range(3)] == ["small", "small", "finished"]
    infeasible = {record.trial_id: record for record in first.shown.records}
    assert {record.status for record in infeasible.values()} == {Status.INFEASIBLE}
    cluster = Cluster("T4", "H100") if larger else Cluster("T4")
    cluster.now = hosts.JOIN_QUIET_S + 1
    second = Run(tmp_path, cluster.hosts, infeasible)
    handed_out = sorted(filter(None, iter(second.next_arm, "finished")))
    assert handed_out == (["large"] * 2 if larger else []) + ["small"] * 2
    now = second.records.read(infeasible)
    assert now == ({} if larger else infeasible), "without a record while it runs; else as it was"


def test_what_ran_out_of_memory_on_the_hosts_of_then_is_tried_on_a_larger_one_and_may_fail(
    tmp_path,
):
    cluster = Cluster("T4")
    run = Run(tmp_path, cluster.hosts)
    trial = run.next().trial
    while run.placements.after_error(trial, "torch.OutOfMemoryError: CUDA out of memory"):
        pass
    run.loop.give_up(trial.id, "no memory", Status.INFEASIBLE)
    later = Run(tmp_path, Hosts(), run.records.read([trial.id]))
    assert [later.next_arm(), later.next_arm()] == ["small", "finished"], "the same hosts"
    cluster.after(14, "T4", "H100")
    assert run.next().trial == trial and not run.placements.infeasible


def test_a_record_that_a_lost_worker_had_written_stands(tmp_path):
    """Given up by the engine, the trial keeps what its worker wrote before it was lost."""
    run = Run(tmp_path, Hosts())
    active = run.next()
    assert isinstance(active, ActiveTrial)
    written = Record.of(active.trial, status=Status.DONE, metrics={"accuracy": 0.5})
    run.records.write(written)
    run.loop.give_up(active.trial.id, "the trial's worker was lost")
    assert run.shown.records == [run.records.read_one(active.trial.id)] == [written]


def test_a_record_that_a_worker_writes_while_the_driver_gives_its_trial_up_stands(
    tmp_path, monkeypatch
):
    run = Run(tmp_path, Hosts())
    trial = run.next().trial
    written = Record.of(trial, status=Status.DONE, metrics={"accuracy": 0.5})
    read = StudyRecords.metrics
    monkeypatch.setattr(
        StudyRecords, "metrics", lambda self, i: (self.create(written), read(self, i))[1]
    )
    run.loop.give_up(trial.id, "timed out after 2.0 h (trial_hours is 2)")
    assert run.shown.records == [run.records.read_one(trial.id)] == [written]


def test_an_engine_that_starts_once_more_trains_again_what_has_no_record_alone(tmp_path):
    run = Run(tmp_path, Cluster("T4", "H100").hosts)
    first, recorded, third = (run.next().trial for _ in range(3))
    run.records.write(Record.of(recorded, status=Status.DONE))  # while nobody listened
    run.loop.begin_again()
    assert [run.next().trial.id for _ in range(2)] == [first.id, third.id]
    assert [record.trial_id for record in run.shown.records] == [recorded.id]
