"""Hosts that join when a test says so, on a clock that it moves, and what a driver's side of a run tells."""

from types import SimpleNamespace

from contrasweep.cluster import hosts
from contrasweep.cluster.hosts import ClusterHosts
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, ray_inventory
from contrasweep.code import CurrentCode
from contrasweep.planning.budget import Budget
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.learned import Learned
from contrasweep.running.engine.accounts import Accounts, Overdue
from contrasweep.running.engine.loop import StudyCode, TrialLoop, TrialQueue
from contrasweep.running.engine.placement import Placements
from contrasweep.storage.record import Record, Status


def host(kind, group="", memory_gib=16.0):
    labels = {ACCELERATOR_LABEL: kind} | ({hosts.NODE_GROUP_LABEL: group} if group else {})
    return {
        "Alive": True,
        "Labels": labels,
        "Resources": {"CPU": 4.0, "memory": memory_gib * 2**30, "GPU": 1.0},
    }


class Cluster:
    """Nodes and a clock that tests move; what is requested of it."""

    def __init__(self, *kinds):
        self.listed = [host(kind) for kind in kinds]
        self.now = 0.0
        self.hosts = ClusterHosts(ray_inventory(self.listed), lambda: self.listed, lambda: self.now)
        self.requested = set()
        self.hosts.request = self._request

    def _request(self, footprints):
        self.requested = set(footprints)

    def after(self, seconds, *kinds):
        self.now += seconds
        self.listed = [host(kind) for kind in kinds]


class Shown:
    """What a run shows, kept."""

    axes = ()

    def __init__(self):
        self.records = []
        self.messages = []
        self.say = self.messages.append
        self.ended = self.records.append

    def lost(self, trial_id):
        """Not kept."""


class Driver:
    """The driver's side of a run, where a test takes the place of the engine."""

    def __init__(self, study, source, hosts, records, infeasible, inventory=None):
        """`inventory` is that of fixed hosts; None: one T4."""
        fixed = inventory or ray_inventory([host("T4")])
        footprints = Footprints(
            study, hosts.inventory if isinstance(hosts, ClusterHosts) else fixed, Learned()
        )
        self.study = study
        self.source = source
        self.records = records
        self.shown = Shown()
        self.placements = Placements(footprints)
        say = self.shown.say
        self.queue = TrialQueue(source, self.placements, hosts, records, say, infeasible)
        self.accounts = Accounts(Budget(study, records), Overdue(), SimpleNamespace(lost=""))
        code = StudyCode(records, CurrentCode({}), say)
        self.loop = TrialLoop(self.queue, self.accounts, records, code, self.shown)

    def next(self):
        return self.loop.next()

    def end(self, trial, **fields):
        """The worker of a trial writes its record, and Tune is done with the trial."""
        notes = self.accounts.active[trial.id].notes
        self.records.write(Record.of(trial, status=Status.DONE, notes=notes, **fields))
        self.loop.ended(trial.id)
