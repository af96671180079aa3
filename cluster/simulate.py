"""Discrete-event simulator: how long a plan takes on an inventory, what that costs, how full the GPUs are.

The longest trials come first. Whenever something is free, the first waiting trial that fits there starts, on the
fullest GPU that still takes it, as Ray does; a large trial may be overtaken by small ones.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from contrasweep.cluster.inventory import Inventory, Node
from contrasweep.cluster.packing import Footprint, Placement, fits, place

UNITS = 720720
"""Parts of a GPU: divisible by every n up to 16, so that shares add up exactly."""
SIMILAR = 1.5
"""A trial counts as the longer one only where it takes this times as long as the other, or more."""


def near_end(remaining_s: float, longest_s: float, places: int) -> bool:
    """Return whether the longest waiting trials should begin before the others.

    It is so where the waiting trials together take the `places` no longer than the longest takes: begun in its turn it
    might run on alone after all others have ended.
    """
    return remaining_s <= longest_s * places


@dataclass(frozen=True)
class Makespan:
    """The duration of a plan.

    `gpu_hours` are time x share of a GPU; a trial without a GPU counts as if it had a whole one. `cost` is the price of
    all hosts for the whole time, in the inventory's currency. `trials_cost` is the price of the parts of hosts that
    trials held, for as long as they held them. `utilisation` is the fraction of all GPUs that trials held over the
    whole time (of all cores, where there is no GPU). `finished` and `infeasible` are numbers of trials.
    """

    hours: float
    gpu_hours: float
    cost: float
    trials_cost: float
    utilisation: float
    finished: int
    infeasible: int


def simulate(
    footprints: Sequence[Footprint],
    seconds: Sequence[float],
    inventory: Inventory,
    *,
    start_s: float = 0.0,
) -> Makespan:
    """Return how long a plan takes and what it costs, by simulation. Trials that fit no host take no time.

    Args:
        footprints: The needs of each trial, in the plan's order.
        seconds: How long each trial takes on a GPU of speed 1.
        inventory: The hosts.
        start_s: Seconds that each trial takes before it works: 0.1 with reused workers, 2 to 3 with fresh ones.
    """
    return _Simulation(place(footprints, inventory), inventory, seconds, start_s).run()


@dataclass
class _Host:
    """One host with its free resources; GPUs in UNITS."""

    node: Node
    cpus: float
    memory_gib: float
    gpus: list[int]


@dataclass(eq=False)
class _Kind:
    """All trials with one placement, and the waiting ones of them.

    It is equal only to itself, which makes it a fast key.
    """

    placement: Placement
    inventory: Inventory
    waiting: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        # What one such trial holds: `units` (in UNITS) of each of its GPUs. `nodes` are the ids of the inventory's
        # entries on which it fits. `weight` is its part of the capacity: GPUs, or cores where there are none.
        share = self.placement.share
        self.units = int(min(share, Fraction(1)) * UNITS)
        self.gpus = math.ceil(share)
        self.cpus = self.placement.cpus
        self.memory_gib = self.placement.host_memory_gib
        self.nodes = {id(node) for node in self.inventory.nodes if fits(self.placement, node)}
        gpu = self.inventory.gpu(self.placement.gpu) if self.placement.gpu else None
        self.speed = gpu.speed if gpu else 1.0
        self.weight = float(share) if self.inventory.gpus else self.cpus
        self.gpus_held = float(share) or 1.0  # a trial without a GPU counts its hours whole
        self.cost_per_hour = self.inventory.share_cost_per_hour(
            self.placement.gpu, float(share), self.cpus
        )


class _End(NamedTuple):
    """The end of a running trial, at `at` seconds: indices of the trial, of its host and of its GPUs there."""

    at: float
    trial: int
    host: int
    kind: _Kind
    gpus: tuple[int, ...]


@dataclass
class _Simulation:
    """The state of a simulation at the time `now`, in seconds since its start; hosts and trials go by their indices."""

    placements: Sequence[Placement | None]
    inventory: Inventory
    seconds: Sequence[float]
    start_s: float
    now: float = 0.0
    finished: int = 0
    infeasible: int = 0
    used: float = 0.0  # GPU-seconds (core-seconds without GPUs) given to trials
    held: float = 0.0  # seconds x share of a GPU
    spent: float = 0.0  # cost of the parts of hosts, times 3600
    kinds: dict[Placement, _Kind] = field(default_factory=dict)
    ends: list[_End] = field(default_factory=list)  # a heap of the ends of all running trials
    turns: dict[int, int] = field(default_factory=dict)  # trial -> its turn

    def run(self) -> Makespan:
        """Fill the hosts, then end one trial after another and fill its host again; return what all that took."""
        inventory = self.inventory
        self.hosts = [
            _Host(node, node.cpus, node.memory_gib, [UNITS] * node.gpus)
            for node in inventory.nodes
            for _ in range(node.count)
        ]
        # Hosts without GPUs are filled first: trials without one then spare the cores beside the GPUs.
        self.hosts.sort(key=lambda host: host.node.gpus)
        # The longest come first: so a run ends that puts the longest of the last trials before the others.
        lengths = [math.log(max(seconds, 1e-3), SIMILAR) for seconds in self.seconds]
        for i in sorted(range(len(lengths)), key=lambda i: -round(lengths[i])):
            self.turns[i] = len(self.turns)
            placement = self.placements[i]
            if placement is None:
                self.infeasible += 1
                continue
            if placement not in self.kinds:
                self.kinds[placement] = _Kind(placement, inventory)
            self.kinds[placement].waiting.append(i)
        for h in range(len(self.hosts)):
            self._fill(h)
        while self.ends:
            self._end_next_trial()
        capacity = inventory.gpus or inventory.cpus
        hours = self.now / 3600
        return Makespan(
            hours=hours,
            gpu_hours=self.held / 3600,
            cost=hours * inventory.cost_per_hour,
            trials_cost=self.spent / 3600,
            utilisation=self.used / (self.now * capacity) if self.now else 0.0,
            finished=self.finished,
            infeasible=self.infeasible,
        )

    def _end_next_trial(self) -> None:
        """Move the clock to the next end of a trial, give its host back what it held, and fill that host again."""
        end = heapq.heappop(self.ends)
        self.now = end.at
        host = self.hosts[end.host]
        host.cpus += end.kind.cpus
        host.memory_gib += end.kind.memory_gib
        for g in end.gpus:
            host.gpus[g] += end.kind.units
        self.finished += 1
        self._fill(end.host)

    def _fill(self, h: int) -> None:
        """Start on host `h` all waiting trials that fit, each in its turn."""
        host = self.hosts[h]
        # A heap of (turn of the first waiting trial, kind): the trials of one kind wait in turns, so the first entry
        # is the first of all waiting trials.
        firsts = [
            (self.turns[kind.waiting[0]], kind)
            for kind in self.kinds.values()
            if kind.waiting and id(host.node) in kind.nodes
        ]
        heapq.heapify(firsts)
        while firsts:
            _, kind = heapq.heappop(firsts)
            where = _free_gpus(host, kind)
            # A kind that does not fit now is overtaken. It is not tried again, as the host only gets fuller.
            if where is not None:
                self._start(kind.waiting.popleft(), h, kind, where)
                if kind.waiting:
                    heapq.heappush(firsts, (self.turns[kind.waiting[0]], kind))

    def _start(self, i: int, h: int, kind: _Kind, where: tuple[int, ...]) -> None:
        """Start trial `i` on host `h`, on its GPUs `where` (indices): take what it holds, and enter its end."""
        host = self.hosts[h]
        host.cpus -= kind.cpus
        host.memory_gib -= kind.memory_gib
        for g in where:
            host.gpus[g] -= kind.units
        duration_s = self.start_s + self.seconds[i] / kind.speed
        self.used += duration_s * kind.weight
        self.held += duration_s * kind.gpus_held
        self.spent += duration_s * kind.cost_per_hour
        heapq.heappush(self.ends, _End(self.now + duration_s, i, h, kind, where))


def _free_gpus(host: _Host, kind: _Kind) -> tuple[int, ...] | None:
    """Return the indices of the fullest GPUs of the host that still take a trial of this kind.

    () for a trial without a GPU; None where the trial does not fit on the host now.
    """
    # What trials give back may be less than they took, by rounding.
    if host.cpus + 1e-9 < kind.cpus or host.memory_gib + 1e-9 < kind.memory_gib:
        return None
    if not kind.gpus:
        return ()
    free = [g for g, units in enumerate(host.gpus) if units >= kind.units]
    free.sort(key=lambda g: host.gpus[g])
    return tuple(free[: kind.gpus]) if len(free) >= kind.gpus else None
