"""The hosts there are, or that one plans for: cores, memory, and GPUs by type."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cluster.errors import InventoryError

ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Node label that Ray sets where it finds a GPU; `ray start --labels ray.io/accelerator-type=H100` sets it by hand."""
MEMORY_LABEL = "gpu-memory-gib"
"""Node label of ours for a GPU whose type alone does not tell its memory: `--labels gpu-memory-gib=80`."""
COST_LABEL = "cost-per-hour"
"""Node label of ours for what the host costs, which a budget of cost needs: `--labels cost-per-hour=6.88`."""

GPU_MEMORY_GIB = {
    "P4": 7.4, "T4": 14.7, "P100": 15.9, "V100": 15.8, "A10G": 22.1, "L4": 22.2, "L40S": 44.7,
    "A100": 39.4, "A100-40G": 39.4, "A100-80G": 79.2, "H100": 79.2, "H200": 139.8, "B200": 178.0,
}  # fmt: skip
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
        import yaml

        try:
            content = yaml.safe_load(Path(path).read_text())
        except OSError as error:
            raise InventoryError(f"inventory {path} cannot be read ({error.strerror})") from None
        except yaml.YAMLError as error:
            raise InventoryError(f"inventory {path} is not YAML ({str(error).splitlines()[0]})") from None
        if (
            not isinstance(content, Mapping)
            or set(content) != {"nodes"}
            or not isinstance(content["nodes"], list)
        ):
            raise InventoryError(f"inventory {path}: there must be one key, nodes, with a list of hosts")
        return cls(
            _all_agree(
                tuple(_node(entry, f"{path}: nodes[{i}]") for i, entry in enumerate(content["nodes"])), path
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """What `from_yaml` reads."""
        return {"nodes": [_entry(node) for node in self.nodes]}

    @classmethod
    def from_ray(cls, nodes: Iterable[Mapping[str, Any]]) -> "Inventory":
        """From what `ray.nodes()` returns. The type of a GPU comes from the node's label or its
        `accelerator_type:` resource, its memory from our label or from the type; of one type with two
        memories the smaller counts, since a trial may land on either."""
        alive = [_ray_node(node) for node in nodes if node.get("Alive", True)]
        smallest: dict[str, Gpu] = {}
        for gpu in (node.gpu for node in alive if node.gpu):
            smallest[gpu.type] = min(gpu, smallest.get(gpu.type, gpu), key=lambda gpu: gpu.memory_gib)
        found = Counter(replace(node, gpu=smallest[node.gpu.type]) if node.gpu else node for node in alive)
        return cls(tuple(replace(node, count=count) for node, count in found.items()))

    @classmethod
    def detect(cls) -> "Inventory":
        """This machine, alone: its cores and memory, and the GPUs that NVML finds and CUDA may use."""
        import psutil

        memory_gib = min(psutil.virtual_memory().total, _cgroup_memory()) / 2**30
        gpus = _nvml_gpus()
        cores = float(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        kinds = Counter(gpus)
        if len(kinds) > 1:  # a node has one type here, as in Ray; the smaller memory is safe for both
            smallest = min(kinds, key=lambda gpu: gpu.memory_gib)
            kinds = Counter({smallest: len(gpus)})
        gpu, number = next(iter(kinds.items()), (None, 0))
        return cls((Node(cores, memory_gib, gpus=number, gpu=gpu),))


def _node(entry: Any, place: str) -> Node:
    if not isinstance(entry, Mapping):
        raise InventoryError(f"{place}: a host is a mapping of fields, got {entry!r}")
    known = [f.name for f in fields(Node)] + ["gpu_memory_gib", "gpu_speed"]
    for name in entry:
        if name not in known:
            raise InventoryError(f"{place}.{name}: there is no such field; known fields: {', '.join(known)}")
    gpus = int(_number(entry, "gpus", place, 1.0 if entry.get("gpu") else 0.0, whole=True))
    if gpus and not entry.get("gpu"):
        raise InventoryError(
            f"{place}.gpu: a host with GPUs must name their type; known: {', '.join(GPU_MEMORY_GIB)}"
        )
    return Node(
        cpus=_number(entry, "cpus", place),
        memory_gib=_number(entry, "memory_gib", place),
        gpus=gpus,
        gpu=_gpu(entry, place) if gpus else None,
        count=int(_number(entry, "count", place, 1.0, whole=True)),
        cost_per_hour=_number(entry, "cost_per_hour", place, 0.0),
        name=str(entry.get("name", "")),
    )


def _gpu(entry: Mapping[str, Any], place: str) -> Gpu:
    kind = str(entry["gpu"])
    memory = _number(entry, "gpu_memory_gib", place, GPU_MEMORY_GIB.get(kind, 0.0))
    if memory == 0:
        raise InventoryError(
            f"{place}.gpu_memory_gib: the memory of a {kind} is not known here and must be given; "
            f"known types: {', '.join(GPU_MEMORY_GIB)}"
        )
    speed = _number(entry, "gpu_speed", place, 1.0)
    if speed == 0:
        raise InventoryError(f"{place}.gpu_speed: must be above 0, got 0")
    return Gpu(kind, memory, speed)


def _number(
    entry: Mapping[str, Any], name: str, place: str, default: float | None = None, whole: bool = False
) -> float:
    value = entry.get(name, default)
    if value is None:
        raise InventoryError(f"{place}.{name}: this field is required")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InventoryError(f"{place}.{name}: must be a number, 0 or more, got {value!r}")
    if whole and value != int(value):
        raise InventoryError(f"{place}.{name}: must be a whole number, got {value!r}")
    return float(value)


def _all_agree(nodes: tuple[Node, ...], path: str | Path) -> tuple[Node, ...]:
    """Refuse two meanings of one type: a share of it would be two different memories."""
    if not nodes:
        raise InventoryError(f"inventory {path}: nodes is empty; there must be at least one host")
    seen: dict[str, Gpu] = {}
    for i, node in enumerate(nodes):
        if node.gpu and seen.setdefault(node.gpu.type, node.gpu) != node.gpu:
            raise InventoryError(
                f"{path}: nodes[{i}].gpu: {node.gpu.type} stands for two memories or speeds; "
                f"give the second another name, such as {node.gpu.type}-{node.gpu.memory_gib:.0f}G"
            )
    return nodes


def _entry(node: Node) -> dict[str, Any]:
    entry = {name: value for name, value in asdict(node).items() if name != "gpu"}
    if node.gpu:
        entry |= {"gpu": node.gpu.type, "gpu_memory_gib": node.gpu.memory_gib, "gpu_speed": node.gpu.speed}
    return entry


def _ray_node(node: Mapping[str, Any]) -> Node:
    resources, labels = node.get("Resources", {}), node.get("Labels", {})
    gpus = int(resources.get("GPU", 0))
    named = next(
        (r.removeprefix("accelerator_type:") for r in resources if r.startswith("accelerator_type:")), ""
    )
    kind = labels.get(ACCELERATOR_LABEL) or named or "unknown"
    memory = float(labels.get(MEMORY_LABEL) or GPU_MEMORY_GIB.get(kind, 0.0))
    return Node(
        cpus=float(resources.get("CPU", 0)),
        memory_gib=float(resources.get("memory", 0)) / 2**30,
        gpus=gpus,
        gpu=Gpu(kind, memory) if gpus else None,
        cost_per_hour=float(labels.get(COST_LABEL) or 0.0),
    )


def _cgroup_memory() -> float:
    """Bytes that this container may use, infinite outside one."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        return float("inf") if text == "max" else float(text)
    return float("inf")


def _nvml_gpus() -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES lets this process use; none where there is no NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library: both mean no GPU
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        found = [
            Gpu(
                short_name(_text(pynvml.nvmlDeviceGetName(h))),
                pynvml.nvmlDeviceGetMemoryInfo(h).total / 2**30,
            )
            for h in handles
        ]
    finally:
        pynvml.nvmlShutdown()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    chosen = [part.strip() for part in visible.split(",") if part.strip() not in ("", "-1")]
    return (
        [found[int(c)] if c.isdigit() and int(c) < len(found) else found[0] for c in chosen] if found else []
    )


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def short_name(name: str) -> str:
    """The name that Ray gives to what NVML calls `NVIDIA A100-SXM4-80GB`: the words up to the model's number."""
    words = name.removeprefix("NVIDIA ").removeprefix("Tesla ").split()
    end = next((i for i, word in enumerate(words) if any(c.isdigit() for c in word)), len(words) - 1)
    return "-".join([*words[:end], words[end].split("-")[0]]) if words else "unknown"
