"""What a trial needs of a host, and packing: how many trials share a GPU, and which type of GPU a trial gets.

A share is always 1/n: Ray places odd fractions badly (.18 of a GPU hangs across nodes where .2 works), and n
equal shares leave nothing over.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from typing_extensions import TypedDict

from contrasweep.cluster.errors import FootprintError
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, Gpu, Inventory, Node


@dataclass(frozen=True)
class Footprint:
    """A trial's needs: GPU memory and host memory in GiB, host cores, and the least share of a GPU.

    A trial wants a GPU if `gpus` or `gpu_memory_gib` is above 0. Its share is the larger of what the two ask for
    (`contrasweep.cluster.packing.share`): `gpus=1` means a whole GPU whatever its memory, and more than 1 must be
    whole. `gpu_busy` is the fraction of its time for which the trial, alone on the GPU, keeps it computing (0: not
    measured). `gpu_types` are the types it may run on (empty: any). `margin` is a factor on its GPU memory before it is
    packed, because an estimate may be short. `FootprintError` for needs that no host could have.
    """

    gpu_memory_gib: float = 0.0
    host_memory_gib: float = 1.0
    cpus: float = 1.0
    gpus: float = 0.0
    gpu_busy: float = 0.0
    gpu_types: tuple[str, ...] = ()
    margin: float = 1.1

    def __post_init__(self) -> None:
        for name in ("gpu_memory_gib", "host_memory_gib", "cpus", "gpus", "gpu_busy"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise FootprintError(
                    f"footprint: {name} must be 0 or more, got {getattr(self, name)!r}"
                )
        if self.gpu_busy > 1:
            raise FootprintError(
                f"footprint: gpu_busy is a fraction of the time, 0 to 1, got {self.gpu_busy!r}"
            )
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise FootprintError(
                f"footprint: more than one GPU must be a whole number of them, got {self.gpus!r}"
            )
        if self.margin < 1:
            raise FootprintError(
                f"footprint: margin multiplies the GPU memory and is 1 or more, got {self.margin!r}"
            )

    @property
    def wants_gpu(self) -> bool:
        """Whether the trial needs a GPU, or a share of one."""
        return self.gpus > 0 or self.gpu_memory_gib > 0

    def on(self, gpu: str) -> "Footprint":
        """Return the same trial's needs on this type of GPU."""
        return self


@dataclass(frozen=True)
class OnType:
    """Needs of a trial on one type of GPU: memory in GiB, the margin on it, the fraction of time the GPU is busy."""

    gpu: str
    gpu_memory_gib: float
    margin: float
    gpu_busy: float = 0.0


@dataclass(frozen=True)
class LearnedFootprint(Footprint):
    """A footprint whose GPU memory differs by type of GPU, as measured or estimated there.

    Its own fields hold on types that `types` leaves out.
    """

    types: tuple[OnType, ...] = ()

    def on(self, gpu: str) -> Footprint:
        """Return the trial's needs on this type of GPU, as measured or estimated there."""
        measured = next((entry for entry in self.types if entry.gpu == gpu), None)
        if measured is None:
            return self
        return replace(
            self,
            gpu_memory_gib=measured.gpu_memory_gib,
            margin=measured.margin,
            gpu_busy=measured.gpu_busy,
            types=(),
        )


MAX_TRIALS_PER_GPU = 16
"""Each trial is a process of its own, which has a CUDA context of some 300-500 MB and its own worker on the host."""
NO_SHARE = Fraction(0)


@dataclass(frozen=True)
class Placement:
    """The place of a trial: type of GPU (None: no GPU), share of it, cores, host memory in GiB.

    The share is 1/n, or the number of whole GPUs; 0 without a GPU.
    """

    gpu: str | None
    share: Fraction
    cpus: float
    host_memory_gib: float

    @property
    def per_gpu(self) -> int:
        """Trials of this kind on one GPU; 0 if it takes none or takes several GPUs."""
        return self.share.denominator if 0 < self.share <= 1 else 0

    def resources(self) -> dict[str, float]:
        """Return the bundle to ask Ray for; `memory` is in bytes."""
        bundle = {"CPU": self.cpus, "memory": float(int(self.host_memory_gib * 2**30))}
        return bundle | ({"GPU": float(self.share)} if self.share else {})

    def label_selector(self) -> dict[str, str]:
        """Return the node's label to ask Ray for; empty where any node will do."""
        return {ACCELERATOR_LABEL: self.gpu} if self.gpu and self.gpu != "unknown" else {}


def share(footprint: Footprint, gpu: Gpu, *, cpus_per_gpu: float = math.inf) -> Fraction | None:
    """Return the share of a `gpu` for one trial: 1/n, and at least 1/16. None if the GPU has too little memory.

    It is the smallest such share that covers three needs of the trial, if a whole GPU can: its GPU memory with the
    margin, the fraction of its time in which it was measured to compute, and its cores, of the `cpus_per_gpu` that a
    host has for each GPU (infinite: cores do not count). For a trial that asks for several GPUs their number is
    returned.
    """
    footprint = footprint.on(gpu.type)  # what the trial needs on GPUs of this type
    if gpu.memory_gib and footprint.gpu_memory_gib / max(footprint.gpus, 1) > gpu.memory_gib:
        return None
    if footprint.gpus > 1:
        return Fraction(int(footprint.gpus))
    if not gpu.memory_gib and footprint.gpu_memory_gib:
        return Fraction(1)  # how much a share of it would be is not known
    memory = footprint.gpu_memory_gib * footprint.margin / gpu.memory_gib if gpu.memory_gib else 0.0
    required = max(
        memory,
        footprint.gpus,
        footprint.gpu_busy,
        footprint.cpus / cpus_per_gpu if cpus_per_gpu else 1.0,
    )
    # The largest n for which 1/n covers what is required; 1 where even a whole GPU does not, because of the margin.
    # The small summand makes up for the rounding of 1 / required.
    if required * MAX_TRIALS_PER_GPU <= 1:
        return Fraction(1, MAX_TRIALS_PER_GPU)
    return Fraction(1, max(1, math.floor(1 / required + 1e-9)))


def default_footprint(inventory: Inventory) -> Footprint:
    """Return the footprint of an unknown trial: a core, half a GiB, and a whole GPU where there are GPUs."""
    return Footprint(cpus=1.0, host_memory_gib=0.5, gpus=1.0 if inventory.gpus else 0.0)


def options(footprint: Footprint, inventory: Inventory) -> list[Placement]:
    """Return every way to place one such trial, smallest GPU first; empty: it fits no host."""
    if not footprint.wants_gpu:
        placement = Placement(None, NO_SHARE, footprint.cpus, footprint.host_memory_gib)
        return [placement] if any(fits(placement, node) for node in inventory.nodes) else []
    placements = []
    for gpu in inventory.gpu_types:
        if footprint.gpu_types and gpu.type not in footprint.gpu_types:
            continue
        # Where hosts differ, the share is by the one with the most cores beside each GPU.
        nodes = [node for node in inventory.nodes if node.gpu == gpu and node.gpus]
        part = share(footprint, gpu, cpus_per_gpu=max(node.cpus / node.gpus for node in nodes))
        if part is None:
            continue
        placement = Placement(gpu.type, part, footprint.cpus, footprint.host_memory_gib)
        if any(fits(placement, node) for node in nodes):
            placements.append(placement)
    return placements


def why_not(footprint: Footprint, inventory: Inventory) -> str:
    """Return in one line why `options` is empty: the need of the trial that is too large, and what there is."""
    # First a type of GPU that is not there, then its memory; else no single host has all that is needed.
    if footprint.wants_gpu:
        allowed = [
            gpu
            for gpu in inventory.gpu_types
            if not footprint.gpu_types or gpu.type in footprint.gpu_types
        ]
        if not allowed:
            wanted_types = " or ".join(footprint.gpu_types) or "GPU"
            present_types = ", ".join(gpu.type for gpu in inventory.gpu_types) or "no GPU"
            return f"the trial needs a {wanted_types}; the cluster has {present_types}"
        largest = max(allowed, key=lambda gpu: gpu.memory_gib)
        footprint = footprint.on(largest.type)
        if footprint.gpu_memory_gib / max(footprint.gpus, 1) > largest.memory_gib > 0:
            return (
                f"the trial needs {footprint.gpu_memory_gib:.1f} GiB of GPU memory; "
                f"the largest GPU, {largest.type}, has {largest.memory_gib:.1f} GiB"
            )
    largest_node = max(inventory.nodes, key=lambda node: (node.gpus, node.memory_gib))
    return (
        f"the trial needs {footprint.cpus:g} cores, {footprint.host_memory_gib:.1f} GiB of host memory and "
        f"{footprint.gpus:g} GPUs on one host; the largest has {largest_node.cpus:g} cores, "
        f"{largest_node.memory_gib:.1f} GiB and {largest_node.gpus} GPUs"
    )


def fits(placement: Placement, node: Node) -> bool:
    """Return whether an empty host of this kind can hold the trial."""
    return slots_on(placement, node) > 0


def slots_on(placement: Placement, node: Node) -> int:
    """Return how many trials with this placement one such host holds at once, by GPUs, cores and host memory.

    2**31 where the trial needs nothing of a host.
    """
    if placement.gpu is not None and (node.gpu is None or node.gpu.type != placement.gpu):
        return 0
    limits = [node.cpus / placement.cpus if placement.cpus else math.inf]
    if placement.host_memory_gib:
        limits.append(node.memory_gib / placement.host_memory_gib)
    if placement.share > 1:
        limits.append(node.gpus // int(placement.share))
    elif placement.share:  # 1/n: n trials on each GPU
        limits.append(node.gpus * placement.share.denominator)
    # A quotient that rounding has put just below a whole number is that number.
    smallest = min(limits)
    return int(smallest + 1e-9) if smallest < math.inf else 2**31


class PackingRow(TypedDict):
    """Trials that are placed alike.

    `gpu` is the type of GPU or "none", `share` the share of one as text (1/4), `per_gpu` how many trials share one.
    `cpus` and `host_memory_gib` are what each trial takes. `trials` is their number, `slots` how many of them run at
    once in the whole inventory if no others ran.
    """

    gpu: str
    share: str
    per_gpu: int
    cpus: float
    host_memory_gib: float
    trials: int
    slots: int


def summary(placements: Iterable[Placement | None], inventory: Inventory) -> list[PackingRow]:
    """Return one row for each kind of placement, most trials first; trials that fit no host (None) are in none."""
    counted = Counter(placement for placement in placements if placement)
    return [
        {
            "gpu": kind.gpu or "none",
            "share": str(kind.share),
            "per_gpu": kind.per_gpu,
            "cpus": kind.cpus,
            "host_memory_gib": kind.host_memory_gib,
            "trials": trials,
            "slots": sum(slots_on(kind, node) * node.count for node in inventory.nodes),
        }
        for kind, trials in counted.most_common()
    ]


def place(footprints: Sequence[Footprint], inventory: Inventory) -> list[Placement | None]:
    """Return a place for every trial, by the rule `choose` of a run; None for a trial that fits no host.

    Trials with the fewest possible places are placed first; the result has the order of `footprints`.
    """
    # All replicates of a cell share a footprint, so its places are looked up once.
    places = {footprint: options(footprint, inventory) for footprint in set(footprints)}
    chosen: list[Placement | None] = [None] * len(footprints)
    # type of GPU (None: no GPU) -> how many of them the trials placed so far hold, in shares
    load: defaultdict[str | None, float] = defaultdict(float)
    fewest_first = sorted(enumerate(footprints), key=lambda numbered: len(places[numbered[1]]))
    for i, footprint in fewest_first:
        if places[footprint]:
            placement = choose(places[footprint], load, inventory)
            load[placement.gpu] += float(placement.share)
            chosen[i] = placement
    return chosen


def choose(
    places: Sequence[Placement], load: Mapping[str | None, float], inventory: Inventory
) -> Placement:
    """Return the place of a trial: on the smallest type of GPU with room, else on the type that is free soonest.

    `places` are its `options`. `load` is how many GPUs of each type trials hold or wait for, in shares.
    """

    def occupancy(placement: Placement) -> float:
        """Return how full the GPUs of this type would be with this trial: held shares per GPU, over the type's speed.

        0 for a place without a GPU.
        """
        gpu = placement.gpu
        if gpu is None:
            return 0.0
        total = load[gpu] + float(placement.share)
        return total / (inventory.count(gpu) * inventory.gpu(gpu).speed)

    for placement in places:
        gpu = placement.gpu
        if gpu is None or load[gpu] + placement.share <= inventory.count(gpu):
            return placement
    return min(places, key=occupancy)
