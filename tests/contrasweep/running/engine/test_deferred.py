"""Infeasible belongs to an inventory: trials wait while the cluster may grow, and run where a host fits them."""

from pathlib import Path
from typing import Any

import pytest
from joining_hosts import Budget, Cluster, Listener, host

from contrasweep import AblationGrid, Arm
from contrasweep.cluster import growth
from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.growth import ClusterHosts, FixedHosts
from contrasweep.cluster.inventory import ray_inventory
from contrasweep.code import CurrentCode
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import make_plan
from contrasweep.planning.learned import Learned
from contrasweep.running.engine.active_trials import ActiveTrials
from contrasweep.running.engine.deferred import DeferredTrials
from contrasweep.running.engine.placement import Placements
from contrasweep.running.study_code import StudyCode
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished, FixedSource, Next

DATA = Manifest("d", "/nowhere", "image", {"train": (Shard("a", 100, 1, "aa"),)}, folds=Folds(2))


def train(trial, resume=None):
    yield


SMALL, LARGE = Footprint(gpu_memory_gib=5), Footprint(gpu_memory_gib=50)


class Run:
    """A driver's side of a study with an arm that fits a T4 and one that does not."""

    def __init__(self, storage: Path, hosts: Any, refused: dict[str, Record] | None = None) -> None:
        arms = {"small": Arm(train, footprint=SMALL), "large": Arm(train, footprint=LARGE)}
        study = AblationGrid("s", arms, "d", folds=2)
        self.trials = make_plan(study, lambda name: DATA).trials
        self.records, self.listener = StudyRecords(str(storage), "s"), Listener()
        inventory = hosts.inventory if isinstance(hosts, ClusterHosts) else ray_inventory([host("T4")])
        placements = Placements(Footprints(study, inventory, Learned()))
        deferred = DeferredTrials(placements, hosts, self.listener.messages.append)
        code = StudyCode(self.records, CurrentCode({}), self.listener.messages.append)
        source = FixedSource(self.trials)
        self.active = ActiveTrials(
            source, self.records, placements, self.listener, Budget(), code, None, deferred, refused
        )

    def next(self) -> str | None:
        """The arm of the next trial, which is handed out."""
        candidate = self.active.next()
        if isinstance(candidate, Next):
            self.active.begin(candidate.trial, candidate.notes)
            return candidate.trial.arm
        return "finished" if isinstance(candidate, Finished) else None

    def end(self, trial_id: str) -> None:
        trial, notes = self.active.running[trial_id]
        record = Record.of(trial, status=Status.DONE, notes=notes)
        self.records.write(record)
        self.active.end(record)

    def statuses(self) -> list[tuple[str, str]]:
        return sorted((record.arm, record.status.value) for record in self.listener.records)


def test_what_fits_no_host_waits_and_runs_when_a_larger_one_joins(tmp_path: Path) -> None:
    cluster = Cluster("T4")
    run = Run(tmp_path, cluster.hosts)
    assert [run.next() for _ in range(3)] == ["small", "small", None]
    assert cluster.requested == {LARGE}
    needs = "the trial needs 50.0 GiB of GPU memory; the largest GPU, T4, has 14.7 GiB (declared)"
    assert run.listener.messages == [f"arm large waits for a larger host: {needs}"]
    cluster.after(14, "T4", "H100")
    assert [run.next() for _ in range(3)] == ["large", "large", "finished"]
    assert cluster.requested == set()
    for trial_id in list(run.active.running):
        run.end(trial_id)
    assert run.statuses() == [("large", "done")] * 2 + [("small", "done")] * 2


def test_it_is_infeasible_once_no_host_is_expected_and_nothing_runs(tmp_path: Path) -> None:
    cluster = Cluster("T4")
    run = Run(tmp_path, cluster.hosts)
    assert [run.next() for _ in range(3)] == ["small", "small", None]
    cluster.after(growth.JOIN_QUIET_S + 1, "T4")
    assert run.next() is None, "small ones still run, so it costs nothing to wait"
    for trial_id in list(run.active.running):
        run.end(trial_id)
    assert run.next() == "finished"
    assert run.statuses() == [("large", "infeasible")] * 2 + [("small", "done")] * 2
    assert run.listener.records[-1].notes.refused_by == "1 x (4 cores, 16.0 GiB, 1 T4 of 14.7 GiB)"


def test_an_autoscaler_has_more_time_and_a_lost_host_still_counts() -> None:
    cluster = Cluster("T4", "H100")
    cluster.after(growth.JOIN_QUIET_S + 1, "T4")
    assert cluster.hosts.poll() is None and "H100" in str(cluster.hosts.inventory)
    assert not cluster.hosts.may_grow()
    cluster.listed = [host("T4", "gpu-workers")]
    cluster.now += growth.POLL_S
    cluster.hosts.poll()
    assert cluster.hosts.may_grow()


@pytest.mark.parametrize("larger", [False, True])
def test_a_later_run_takes_it_up_where_a_host_fits_it_by_then(larger: bool, tmp_path: Path) -> None:
    first = Run(tmp_path, FixedHosts())
    assert [first.next() for _ in range(3)] == ["small", "small", "finished"]
    refused = {record.trial_id: record for record in first.listener.records}
    assert {record.status for record in refused.values()} == {Status.INFEASIBLE}
    cluster = Cluster("T4", "H100") if larger else Cluster("T4")
    cluster.now = growth.JOIN_QUIET_S + 1
    second = Run(tmp_path, cluster.hosts, refused)
    handed_out = sorted(filter(None, iter(second.next, "finished")))
    assert handed_out == (["large"] * 2 if larger else []) + ["small"] * 2
    now = second.records.read(refused)
    assert now == ({} if larger else refused), "without a record while it runs; else as it was"
