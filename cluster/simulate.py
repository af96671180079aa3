"""Discrete-event simulator: how long a plan takes on an inventory, what that costs, how full the GPUs are.

The longest trials come first. Whenever something is free, the first waiting trial that fits there starts, on the
fullest GPU that still takes it, as Ray does; a large trial may be overtaken by small ones.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from contrasweep.cluster.inventory import Inventory, Node
from contrasweep.cluster.packing import Footprint, Placement, fits, place

GPU_PARTS = 720720
"""Parts of a GPU: divisible by every n up to 16, so that shares add up exactly."""
SIMILAR_FACTOR = 1.5
"""A trial counts as the longer one only where it takes this times as long as the other, or more."""


def near_end(remaining_s: float, longest_s: float, places: int) -> bool:
    """Return whether the longest waiting trials should begin before the others.

    `remaining_s` are the seconds of all waiting trials together, `longest_s` those of the longest one. `places` trials
    run at once. The answer is True once the places together would finish all waiting trials within `longest_s`. Begun
    later, the longest trial might run on alone after all others have ended.
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
    # Hosts without GPUs are filled first: trials without one then spare the cores beside the GPUs.
    nodes = sorted(inventory.nodes, key=lambda node: node.gpus)
    hosts = []
    for node in nodes:
        for _ in range(node.count):
            hosts.append(_Host(node, node.cpus, node.memory_gib, [GPU_PARTS] * node.gpus))
    placements = place(footprints, inventory)
    kinds = {
        placement: _Kind(placement, inventory)
        for placement in dict.fromkeys(placements)
        if placement
    }
    # Sums over all trials.
    held = 0.0  # seconds x share of a GPU; without a GPU the whole seconds
    used = 0.0  # seconds x share of a GPU; seconds x cores where no host has a GPU
    spent = 0.0  # costs
    # The longest come first, because a run too puts the longest of its last trials before the others. Trials of about
    # the same length, within a factor of `SIMILAR_FACTOR`, are of one class and stay in the plan's order.
    classes = [round(math.log(max(length_s, 1e-3), SIMILAR_FACTOR)) for length_s in seconds]
    for turn, i in enumerate(sorted(range(len(classes)), key=lambda i: -classes[i])):
        placement = placements[i]
        if placement is None:
            continue
        kind = kinds[placement]
        duration_s = start_s + seconds[i] / kind.speed
        kind.waiting.append((turn, duration_s))
        share = float(placement.share)
        held += duration_s * (share or 1.0)
        used += duration_s * (share if inventory.gpus else placement.cpus)
        spent += duration_s * kind.cost_per_hour
    end_s = _end_s(hosts, list(kinds.values()))
    capacity = inventory.gpus or inventory.cpus
    infeasible = placements.count(None)
    return Makespan(
        hours=end_s / 3600,
        gpu_hours=held / 3600,
        cost=end_s / 3600 * inventory.cost_per_hour,
        trials_cost=spent / 3600,
        utilisation=used / (end_s * capacity) if end_s else 0.0,
        finished=len(placements) - infeasible,
        infeasible=infeasible,
    )


@dataclass
class _Host:
    """One host with its free resources: cores, memory in GiB, and for each GPU how many of its `GPU_PARTS` are free."""

    node: Node
    cpus: float
    memory_gib: float
    gpus: list[int]


class _Kind:
    """All trials with one placement; `waiting` has those that have not begun, each as (turn, seconds that it takes).

    The trial with the lowest turn begins first.
    """

    def __init__(self, placement: Placement, inventory: Inventory) -> None:
        self.cpus = placement.cpus
        self.memory_gib = placement.host_memory_gib
        # What one such trial holds: `units` (in GPU_PARTS) of each of its GPUs. `nodes` are the ids of the inventory's
        # entries on which it fits.
        share = placement.share
        self.units = int(min(share, Fraction(1)) * GPU_PARTS)
        self.gpus = math.ceil(share)
        self.nodes = {id(node) for node in inventory.nodes if fits(placement, node)}
        self.speed = inventory.gpu(placement.gpu).speed if placement.gpu else 1.0
        self.cost_per_hour = inventory.share_cost_per_hour(
            placement.gpu, float(share), placement.cpus
        )
        self.waiting: deque[tuple[int, float]] = deque()


_End = tuple[float, int, _Host, _Kind, tuple[int, ...]]
"""The end of a running trial: its time, the trial's turn, its host, its kind, and its GPUs there (indices)."""


def _end_s(hosts: Sequence[_Host], kinds: Sequence[_Kind]) -> float:
    """Simulate all trials on the hosts, and return when the last one ends, in seconds from the beginning.

    Whenever a trial ends, its host is filled again with waiting trials.
    """
    ends: list[_End] = []  # a heap
    now = 0.0
    for host in hosts:
        _fill(host, kinds, now, ends)
    while ends:
        now, _, host, kind, gpus = heapq.heappop(ends)
        host.cpus += kind.cpus
        host.memory_gib += kind.memory_gib
        for index in gpus:
            host.gpus[index] += kind.units
        _fill(host, kinds, now, ends)
    return now


def _fill(host: _Host, kinds: Sequence[_Kind], now: float, ends: list[_End]) -> None:
    """Start on a host, at the time `now` (s), all waiting trials that fit, those with the lowest turn first.

    The end of each started trial is added to `ends`. A kind of trial that does not fit is passed over.
    """
    # A heap of (turn of the first waiting trial, kind): the trials of one kind wait in turns, so the first entry is the
    # first of all waiting trials.
    firsts = [
        (kind.waiting[0][0], kind) for kind in kinds if kind.waiting and id(host.node) in kind.nodes
    ]
    heapq.heapify(firsts)
    while firsts:
        turn, kind = heapq.heappop(firsts)
        gpus = _free_gpus(host, kind)
        # A kind that does not fit now is overtaken. It is not tried again, as the host only gets fuller.
        if gpus is None:
            continue
        _, duration_s = kind.waiting.popleft()
        host.cpus -= kind.cpus
        host.memory_gib -= kind.memory_gib
        for index in gpus:
            host.gpus[index] -= kind.units
        heapq.heappush(ends, (now + duration_s, turn, host, kind, gpus))
        if kind.waiting:
            heapq.heappush(firsts, (kind.waiting[0][0], kind))


def _free_gpus(host: _Host, kind: _Kind) -> tuple[int, ...] | None:
    """Return the indices of the fullest GPUs of the host that still take a trial of this kind.

    () for a trial without a GPU; None where the trial does not fit on the host now.
    """
    # What trials give back may be less than they took, by rounding.
    if host.cpus + 1e-9 < kind.cpus or host.memory_gib + 1e-9 < kind.memory_gib:
        return None
    if not kind.gpus:
        return ()
    free = [index for index, units in enumerate(host.gpus) if units >= kind.units]
    free.sort(key=lambda index: host.gpus[index])
    return tuple(free[: kind.gpus]) if len(free) >= kind.gpus else None
