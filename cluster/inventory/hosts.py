"""Types of hosts: cores, memory, and GPUs by type."""

from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest

ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Node label that Ray sets where it finds a GPU; `ray start --labels ray.io/accelerator-type=H100` sets it by hand."""
MEMORY_LABEL = "gpu-memory-gib"
"""Node label of ours for a GPU whose type alone does not tell its memory: `--labels gpu-memory-gib=80`."""
COST_LABEL = "cost-per-hour"
"""Node label of ours for what the host costs, which a budget of cost needs: `--labels cost-per-hour=6.88`."""

GPU_MEMORY_GIB = {
    "P4": 7.4,
    "T4": 14.7,
    "P100": 15.9,
    "V100": 15.8,
    "A10G": 22.1,
    "L4": 22.2,
    "L40S": 44.7,
    "A100": 39.4,
    "A100-40G": 39.4,
    "A100-80G": 79.2,
    "H100": 79.2,
    "H200": 139.8,
    "B200": 178.0,
}
"""What a process can allocate, in GiB, by the names that Ray gives to types; of two sizes the smaller."""


@dataclass(frozen=True)
class Peak:
    """What a type of GPU can do at most: 10^12 operations a second in float32 and in half precision, both dense, and
    GB/s of its memory."""

    fp32: float
    half: float
    gb_per_s: float


GPU_PEAKS = {
    "P4": Peak(5.5, 5.5, 192),
    "T4": Peak(8.1, 65, 320),
    "P100": Peak(9.3, 18.7, 732),
    "V100": Peak(14, 112, 900),
    "A10G": Peak(35, 70, 600),
    "L4": Peak(60, 121, 300),
    "L40S": Peak(183, 362, 864),
    "A100": Peak(156, 312, 1555),
    "A100-40G": Peak(156, 312, 1555),
    "A100-80G": Peak(156, 312, 1935),
    "H100": Peak(378, 756, 2000),
    "H200": Peak(494, 989, 4800),
    "B200": Peak(1100, 2250, 8000),
}
"""Of the makers' data sheets, without sparsity; of two forms of a type the slower. From Ampere on fp32 is
TensorFloat-32, in which PyTorch computes convolutions unless it is told otherwise."""


@dataclass(frozen=True)
class Gpu:
    """A type of GPU. `memory_gib` 0 means unknown: such a GPU is given out whole. `speed` is relative."""

    type: str
    memory_gib: float = 0.0
    speed: float = 1.0


@dataclass(frozen=True)
class Node:
    """`count` equal hosts, each with `cpus` cores, `memory_gib` and `gpus` GPUs of one type; cost for each one."""

    cpus: float
    memory_gib: float
    gpus: int = 0
    gpu: Gpu | None = None
    count: int = 1
    cost_per_hour: float = 0.0
    name: str = ""

    def to_plain(self) -> dict[str, object]:
        """The host as an entry of an inventory file."""
        entry = {name: value for name, value in asdict(self).items() if name != "gpu"}
        if self.gpu:
            entry |= {"gpu": self.gpu.type, "gpu_memory_gib": self.gpu.memory_gib, "gpu_speed": self.gpu.speed}
        return entry


@dataclass(frozen=True)
class Inventory:
    """The hosts of a cluster."""

    nodes: tuple[Node, ...]

    @property
    def cpus(self) -> float:
        """Cores of all hosts."""
        return sum(node.cpus * node.count for node in self.nodes)

    @property
    def gpus(self) -> int:
        """GPUs of all hosts, of any type."""
        return sum(node.gpus * node.count for node in self.nodes)

    @property
    def cost_per_hour(self) -> float:
        """Cost of all hosts for an hour, in the inventory's currency."""
        return sum(node.cost_per_hour * node.count for node in self.nodes)

    def share_cost_per_hour(self, gpu: str | None, share: float, cpus: float) -> float:
        """Cost per hour of what one trial holds: `share` GPUs of type `gpu`, or `cpus` cores where `gpu` is None; the
        mean over the hosts that have them."""
        hosts = [n for n in self.nodes if (n.gpus and n.gpu and n.gpu.type == gpu if gpu else n.cpus)]
        each = [(n.cost_per_hour * (share / n.gpus if gpu else cpus / n.cpus), n.count) for n in hosts]
        return sum(cost * count for cost, count in each) / (sum(count for _, count in each) or 1)

    @property
    def gpu_types(self) -> list[Gpu]:
        """The types of GPU, smallest memory first; a type of unknown memory last."""
        by_name = {node.gpu.type: node.gpu for node in self.nodes if node.gpu and node.gpus}
        return sorted(by_name.values(), key=lambda gpu: (gpu.memory_gib or float("inf"), gpu.type))

    def gpu(self, name: str) -> Gpu:
        """The type of GPU called `name`."""
        return next(gpu for gpu in self.gpu_types if gpu.type == name)

    def count(self, name: str) -> int:
        """How many GPUs of the type `name` there are."""
        return sum(node.gpus * node.count for node in self.nodes if node.gpu and node.gpu.type == name)

    def joined(self, other: "Inventory") -> "Inventory":
        """The hosts of both, as far as one does not stand in for another: of hosts that differ in their memory alone as
        many as the larger of the two has, each with the larger memory. What Ray finds free is never twice the same, so
        a host that replaces a lost one would otherwise count beside it, and again with every one that follows."""
        kinds: dict[Node, tuple[list[float], list[float]]] = {}
        for side, nodes in enumerate((self.nodes, other.nodes)):
            for node in nodes:
                kind = replace(node, memory_gib=0.0, count=1)
                kinds.setdefault(kind, ([], []))[side].extend([node.memory_gib] * node.count)
        every: list[Node] = []
        for kind, (mine, theirs) in kinds.items():
            pairs = zip_longest(sorted(mine, reverse=True), sorted(theirs, reverse=True), fillvalue=0.0)
            counts = Counter(max(pair) for pair in pairs)
            every += [replace(kind, memory_gib=memory, count=count) for memory, count in counts.items()]
        return self if set(every) == set(self.nodes) else Inventory(tuple(every))

    def __str__(self) -> str:
        """In a line: how many of which hosts."""
        return ", ".join(
            f"{node.count} x ({node.cpus:g} cores, {node.memory_gib:.1f} GiB"
            + (f", {node.gpus} {node.gpu.type} of {node.gpu.memory_gib:g} GiB)" if node.gpu else ")")
            for node in self.nodes
        )

    def to_plain(self) -> dict[str, object]:
        """The inventory as an inventory file holds it; `read_inventory` reads it back."""
        return {"nodes": [node.to_plain() for node in self.nodes]}
