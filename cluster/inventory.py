"""The hosts there are, or that one plans for: cores, memory, and GPUs by type."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Inventory:
    """All hosts."""

    nodes: tuple[Node, ...]

    @property
    def cpus(self) -> float:
        return sum(node.cpus * node.count for node in self.nodes)

    @property
    def gpus(self) -> int:
        return sum(node.gpus * node.count for node in self.nodes)

    @property
    def cost_per_hour(self) -> float:
        return sum(node.cost_per_hour * node.count for node in self.nodes)

    def part_per_hour(self, gpu: str | None, share: float, cpus: float) -> float:
        """Cost per hour of a part of a host: that share of its GPUs (of its cores, where the trial has no GPU), on
        the mean of the hosts it may be."""
        hosts = [n for n in self.nodes if (n.gpus and n.gpu and n.gpu.type == gpu if gpu else n.cpus)]
        each = [(n.cost_per_hour * (share / n.gpus if gpu else cpus / n.cpus), n.count) for n in hosts]
        return sum(cost * count for cost, count in each) / (sum(count for _, count in each) or 1)

    @property
    def gpu_types(self) -> list[Gpu]:
        """The types of GPU, smallest memory first; a type of unknown memory last."""
        found = {node.gpu.type: node.gpu for node in self.nodes if node.gpu and node.gpus}
        return sorted(found.values(), key=lambda gpu: (gpu.memory_gib or float("inf"), gpu.type))

    def gpu(self, kind: str) -> Gpu:
        return next(gpu for gpu in self.gpu_types if gpu.type == kind)

    def count(self, kind: str) -> int:
        """GPUs of type `kind`."""
        return sum(node.gpus * node.count for node in self.nodes if node.gpu and node.gpu.type == kind)

    @classmethod
    def from_yaml(cls, path: str | Path) -> "Inventory":
        """An inventory file: a list `nodes` of hosts with the fields of `Node`, where `gpu` is a type's name
        and `gpu_memory_gib`, `gpu_speed` say what the name does not. `InventoryError` names place and rule."""
        from cluster.inventory_file import read

        return read(path)

    def to_dict(self) -> dict[str, Any]:
        """What `from_yaml` reads."""
        from cluster.inventory_file import entry_of

        return {"nodes": [entry_of(node) for node in self.nodes]}

    @classmethod
    def from_ray(cls, nodes: Iterable[Mapping[str, Any]]) -> "Inventory":
        """From what `ray.nodes()` returns. The type of a GPU comes from the node's label or its
        `accelerator_type:` resource, its memory from our label or from the type; of one type with two
        memories the smaller counts, since a trial may land on either."""
        from cluster.hosts import of_ray

        return of_ray(nodes)

    @classmethod
    def detect(cls) -> "Inventory":
        """This machine, alone: its cores and memory, and the GPUs that NVML finds and CUDA may use."""
        from cluster.hosts import this_machine

        return this_machine()
