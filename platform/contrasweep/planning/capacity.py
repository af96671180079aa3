"""How trials of one kind fit the hosts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from contrasweep.cluster.packing import Placement, slots_on
from contrasweep.planning.footprints import Footprints, Requirement
from contrasweep.trial import Trial


class GpuShare(TypedDict):
    """A type of GPU and the share of one, as text (1/4)."""

    gpu: str
    share: str


class CapacityRow(TypedDict):
    """A `Capacity` for programs: memory in GiB, shares as text; None where no GPU is asked for or no host fits."""

    memory_gib: float | None
    memory_source: str
    host_memory_gib: float
    cpus: float
    gpu: str | None
    share: str | None
    per_gpu: int | None
    types: list[GpuShare]
    slots: int
    infeasible: str | None


@dataclass(frozen=True)
class Capacity:
    """What trials of one kind require, the first choice among `placements` of one (none: they fit no host, and
    `why_not` says why), and how many run concurrently if no others do."""

    requirement: Requirement
    placements: tuple[Placement, ...]
    slots: int
    why_not: str = ""

    def to_dict(self) -> CapacityRow:
        """The same for programs."""
        first = self.placements[0] if self.placements else None
        footprint = self.requirement.footprint
        on = footprint.on(first.gpu) if first and first.gpu else footprint
        return {
            "memory_gib": round(on.gpu_memory_gib, 3) if on.wants_gpu else None,
            "memory_source": self.requirement.source,
            "host_memory_gib": on.host_memory_gib,
            "cpus": on.cpus,
            "gpu": first.gpu if first else None,
            "share": str(first.share) if first and first.gpu else None,
            "per_gpu": first.per_gpu if first and first.gpu else None,
            "types": [{"gpu": p.gpu, "share": str(p.share)} for p in self.placements if p.gpu],
            "slots": self.slots,
            "infeasible": self.why_not or None,
        }


class Capacities:
    """Capacities of the hosts, looked up once for each footprint."""

    def __init__(self, footprints: Footprints) -> None:
        self.footprints = footprints
        self.slots: dict[Placement, int] = {}

    def of(self, trials: Iterable[Trial]) -> Capacity:
        """For the most demanding of `trials`: one that fits nowhere, else by memory."""
        return max(map(self._of, trials), key=_demand)

    def _of(self, trial: Trial) -> Capacity:
        placements = tuple(self.footprints.options(trial))
        for placement in placements:
            if placement not in self.slots:
                nodes = self.footprints.inventory.nodes
                self.slots[placement] = sum(slots_on(placement, node) * node.count for node in nodes)
        slots = sum(self.slots[placement] for placement in placements)
        return Capacity(
            self.footprints.of(trial), placements, slots, "" if placements else self.footprints.why_not(trial)
        )


def _demand(capacity: Capacity) -> tuple[bool, float, float]:
    footprint = capacity.requirement.footprint
    return not capacity.placements, footprint.gpu_memory_gib, footprint.host_memory_gib
