"""The hosts of a cluster: cores, memory and GPUs by type, as an inventory file lists them and as they are detected."""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pydantic

from contrasweep.cluster.errors import InventoryError
from contrasweep.cluster.usage import Nvml

ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Node label that Ray sets where it finds a GPU; `ray start --labels ray.io/accelerator-type=H100` sets it by hand."""
MEMORY_LABEL = "gpu-memory-gib"
"""Node label of ours for a GPU whose type alone does not tell its memory: `--labels gpu-memory-gib=80`."""
COST_LABEL = "cost-per-hour"
"""Node label of ours for what the host costs, which a budget of cost needs: `--labels cost-per-hour=6.88`."""


@dataclass(frozen=True)
class GpuModel:
    """The facts on a type of GPU.

    `memory_gib` is what a process can allocate. `fp32` and `half` are the peaks of dense operations in float32 and in
    half precision, in 10^12 a second; `gb_per_s` is the peak of its memory, in 10^9 bytes a second.
    """

    memory_gib: float
    fp32: float
    half: float
    gb_per_s: float


GPU_MODELS = {
    "P4": GpuModel(7.4, 5.5, 5.5, 192),
    "T4": GpuModel(14.7, 8.1, 65, 320),
    "P100": GpuModel(15.9, 9.3, 18.7, 732),
    "V100": GpuModel(15.8, 14, 112, 900),
    "A10G": GpuModel(22.1, 35, 70, 600),
    "L4": GpuModel(22.2, 60, 121, 300),
    "L40S": GpuModel(44.7, 183, 362, 864),
    "A100": GpuModel(39.4, 156, 312, 1555),
    "A100-40G": GpuModel(39.4, 156, 312, 1555),
    "A100-80G": GpuModel(79.2, 156, 312, 1935),
    "H100": GpuModel(79.2, 378, 756, 2000),
    "H200": GpuModel(139.8, 494, 989, 4800),
    "B200": GpuModel(178.0, 1100, 2250, 8000),
}
"""Name that Ray gives to a type of GPU -> its facts.

A name that stands for two sizes has the smaller one, one that stands for two forms the slower one. Peaks are those of
the makers' data sheets, without sparsity. From Ampere on `fp32` is that of TensorFloat-32, in which PyTorch computes
convolutions unless it is told otherwise.
"""


@dataclass(frozen=True)
class Gpu:
    """A type of GPU, with what a process can allocate on it in GiB; 0 means unknown: such a GPU is given out whole.

    `speed` is relative: a trial on a GPU of speed 2 takes half the time that it takes on one of speed 1.
    """

    type: str
    memory_gib: float = 0.0
    speed: float = 1.0


@dataclass(frozen=True)
class Node:
    """`count` equal hosts, each with `cpus` cores, `memory_gib` GiB of memory and `gpus` GPUs of one type.

    `gpu` is None where they have none. `cost_per_hour` is that of each, in any currency; `name` is for people.
    """

    cpus: float
    memory_gib: float
    gpus: int = 0
    gpu: Gpu | None = None
    count: int = 1
    cost_per_hour: float = 0.0
    name: str = ""


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
        """Return the cost per hour of the part of a host that one trial holds, the mean over the hosts that have it.

        A trial holds `share` GPUs of type `gpu`, or `cpus` cores where `gpu` is None. Half a GPU of a host with 4 GPUs
        costs an eighth of the host. 0 where no host has it.
        """
        # Part of the host that the trial holds, and the host.
        parts = [(cpus / node.cpus, node) for node in self.nodes if 0 < cpus <= node.cpus]
        if gpu:
            nodes = [node for node in self.nodes if node.gpu and node.gpu.type == gpu]
            parts = [(share / node.gpus, node) for node in nodes if 0 < share <= node.gpus]
        hosts = sum(node.count for _, node in parts)
        cost = sum(node.cost_per_hour * part * node.count for part, node in parts)
        return cost / (hosts or 1)

    @property
    def gpu_types(self) -> list[Gpu]:
        """The types of GPU, smallest memory first; a type of unknown memory last."""
        by_name = {node.gpu.type: node.gpu for node in self.nodes if node.gpu and node.gpus}
        return sorted(by_name.values(), key=lambda gpu: (gpu.memory_gib or float("inf"), gpu.type))

    def gpu(self, name: str) -> Gpu:
        """Return the type of GPU called `name`, which must be one of `gpu_types`."""
        return next(gpu for gpu in self.gpu_types if gpu.type == name)

    def count(self, name: str) -> int:
        """Return how many GPUs of the type `name` there are."""
        return sum(
            node.gpus * node.count for node in self.nodes if node.gpu and node.gpu.type == name
        )

    def joined(self, other: "Inventory") -> "Inventory":
        """Return the union of two listings of hosts; this very inventory where the other adds nothing.

        Hosts that differ in memory alone are taken for the same: their number and memory are the larger of both
        listings. For Ray reports a slightly different free memory each time, and a host that replaces a lost one would
        be counted twice. A type of GPU has the smallest memory of both, for the same reason.
        """
        # GPUs of a type get one memory in both listings, so that their hosts are of one kind below.
        alike = _alike([*self.nodes, *other.nodes])
        own_memories = _memories(alike[: len(self.nodes)])
        other_memories = _memories(alike[len(self.nodes) :])
        union: list[Node] = []
        # Hosts of a kind are paired by size, the largest first; of each pair the larger memory counts. A host without a
        # counterpart has 0 beside it.
        for kind in own_memories | other_memories:
            pairs = zip_longest(
                own_memories.get(kind, []), other_memories.get(kind, []), fillvalue=0.0
            )
            counts = Counter(max(pair) for pair in pairs)
            union += [
                replace(kind, memory_gib=memory, count=count) for memory, count in counts.items()
            ]
        return self if set(union) == set(self.nodes) else Inventory(tuple(union))

    def __str__(self) -> str:
        """Return the hosts as a line: `2 x (16 cores, 128.0 GiB, 4 A100 of 39.4 GiB), 1 x (8 cores, 32.0 GiB)`."""
        hosts = []
        for node in self.nodes:
            gpus = (
                f", {node.gpus} {node.gpu.type} of {node.gpu.memory_gib:g} GiB" if node.gpu else ""
            )
            hosts.append(f"{node.count} x ({node.cpus:g} cores, {node.memory_gib:.1f} GiB{gpus})")
        return ", ".join(hosts)


def _memories(nodes: Iterable[Node]) -> dict[Node, list[float]]:
    """Return kind of host -> memory of each such host in GiB, the largest first.

    A kind is a `Node` without its memory and its number.
    """
    memories: dict[Node, list[float]] = {}
    for node in nodes:
        kind = replace(node, memory_gib=0.0, count=1)
        memories.setdefault(kind, []).extend([node.memory_gib] * node.count)
    return {kind: sorted(values, reverse=True) for kind, values in memories.items()}


def _alike(nodes: Sequence[Node]) -> list[Node]:
    """Return the hosts, with the same memory for all GPUs of a type: the smallest that any of the hosts has.

    A trial may land on any of these hosts.
    """
    smallest: dict[str, Gpu] = {}
    for gpu in (node.gpu for node in nodes if node.gpu):
        smallest[gpu.type] = min(gpu, smallest.get(gpu.type, gpu), key=lambda gpu: gpu.memory_gib)
    return [replace(node, gpu=smallest[node.gpu.type]) if node.gpu else node for node in nodes]


_Number = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
_Whole = Annotated[float, pydantic.Field(ge=0, multiple_of=1, allow_inf_nan=False)]


class _Host(pydantic.BaseModel):
    """An entry of an inventory file."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    cpus: _Number
    memory_gib: _Number
    gpus: _Whole | None = None
    gpu: str | None = None
    gpu_memory_gib: _Number | None = None
    gpu_speed: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] = 1.0
    count: Annotated[_Whole, pydantic.Field(ge=1)] = 1
    cost_per_hour: _Number = 0.0
    name: str = ""

    def node(self, place: str) -> Node:
        """Return the host; `InventoryError` at `place` where the type of its GPUs, or their memory, is not known.

        A host with a type of GPU and no number of them has one.
        """
        gpus = 1 if self.gpu else 0
        if self.gpus is not None:
            gpus = int(self.gpus)
        if gpus and not self.gpu:
            raise InventoryError(
                f"{place}.gpu: a host with GPUs must name their type; known: {', '.join(GPU_MODELS)}"
            )
        gpu = None
        if gpus and self.gpu:
            memory = self.gpu_memory_gib
            if memory is None:
                memory = _known_memory_gib(self.gpu)
            if not memory:
                raise InventoryError(
                    f"{place}.gpu_memory_gib: the memory of a {self.gpu} is not known here and must be given; "
                    f"known types: {', '.join(GPU_MODELS)}"
                )
            gpu = Gpu(self.gpu, memory, self.gpu_speed)
        return Node(
            self.cpus, self.memory_gib, gpus, gpu, int(self.count), self.cost_per_hour, self.name
        )


def read_inventory(path: str | Path) -> Inventory:
    """Return the hosts that an inventory file lists.

    Under its key `nodes` is a list of entries with the fields of `Node`. There `gpu` is the name of a type;
    `gpu_memory_gib` and `gpu_speed` say what the name does not tell. Raises `InventoryError`, one line with its place.
    """
    import yaml

    from contrasweep.cluster.yaml_loader import Loader

    try:
        content = yaml.load(Path(path).read_text(), Loader)
    except OSError as error:
        raise InventoryError(f"inventory {path} cannot be read ({error.strerror})") from None
    except Exception as error:  # PyYAML raises what `int` and the like do
        problem = str(error).partition("\n")[0]
        raise InventoryError(f"inventory {path} is not YAML ({problem})") from None
    if (
        not isinstance(content, Mapping)
        or set(content) != {"nodes"}
        or not isinstance(content["nodes"], list)
    ):
        raise InventoryError(
            f"inventory {path}: there must be one key, nodes, with a list of hosts"
        )
    if not content["nodes"]:
        raise InventoryError(f"inventory {path}: nodes is empty; there must be at least one host")
    nodes = []
    first_of_type: dict[str, Gpu] = {}
    for i, entry in enumerate(content["nodes"]):
        place = f"{path}: nodes[{i}]"
        try:
            node = _Host.model_validate(entry).node(place)
        except pydantic.ValidationError as error:
            raise InventoryError(_first(error, place)) from None
        nodes.append(node)
        # With two memories under one name, a share of such a GPU would be two amounts. So each is compared with the
        # first GPU of its name.
        gpu = node.gpu
        if gpu and first_of_type.setdefault(gpu.type, gpu) != gpu:
            raise InventoryError(
                f"{place}.gpu: {gpu.type} stands for two memories or speeds; "
                f"give the second another name, such as {gpu.type}-{gpu.memory_gib:.0f}G"
            )
    return Inventory(tuple(nodes))


def _first(error: pydantic.ValidationError, place: str) -> str:
    """Return pydantic's first finding as a line: `cluster.yaml: nodes[0].cpus: this field is required`."""
    mistake = error.errors()[0]
    where = ".".join([place, *map(str, mistake["loc"])])
    if mistake["type"] == "extra_forbidden":
        return f"{where}: there is no such field; known fields: {', '.join(_Host.model_fields)}"
    if mistake["type"] == "model_type":
        return f"{where}: a host is a mapping of fields, got {repr(mistake['input'])[:100]}"
    if mistake["type"] == "missing":
        return f"{where}: this field is required"
    return f"{where}: {mistake['msg'].removeprefix('Input ')}, got {repr(mistake['input'])[:100]}"


def _known_memory_gib(kind: str) -> float:
    """Return what a process can allocate on this type of GPU; 0: not known."""
    return GPU_MODELS[kind].memory_gib if kind in GPU_MODELS else 0.0


class RayNode(TypedDict, total=False):
    """The fields read of a node in `ray.nodes()`; `memory` in its resources is in bytes."""

    Alive: bool
    Resources: dict[str, float]
    Labels: dict[str, str]


def ray_inventory(nodes: Iterable[RayNode]) -> Inventory:
    """Return the hosts that `ray.nodes()` lists.

    The type of a GPU comes from the node's label or its `accelerator_type:` resource, its memory from our label or from
    the type. Where hosts disagree about the memory of a type, the smallest counts, since a trial may land on any. Equal
    hosts are one entry with their number; those that are not alive are left out.
    """
    counts = Counter(_alike([_ray_node(node) for node in nodes if node.get("Alive", True)]))
    return Inventory(tuple(replace(node, count=count) for node, count in counts.items()))


def this_machine() -> Inventory:
    """Return this machine alone: its cores and memory, and the GPUs that NVML lists and CUDA may use."""
    import psutil

    memory_gib = min(psutil.virtual_memory().total, _cgroup_memory()) / 2**30
    gpus = _nvml_gpus()
    cores = float(len(os.sched_getaffinity(0)))
    # A node has one type here, as in Ray. The smaller memory of two types is safe for both.
    smallest = min(gpus, key=lambda gpu: gpu.memory_gib, default=None)
    return Inventory((Node(cores, memory_gib, len(gpus), smallest),))


def _ray_node(node: RayNode) -> Node:
    """Return a node of `ray.nodes()` as a host; a type of GPU that nothing names is `unknown`.

    Memory that neither a label nor the type tells is 0, which means unknown.
    """
    resources = node.get("Resources", {})
    labels = node.get("Labels", {})
    gpus = int(resources.get("GPU", 0))
    named = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    kind = labels.get(ACCELERATOR_LABEL) or (named[0] if named else "unknown")
    memory = _label(labels, MEMORY_LABEL) or _known_memory_gib(kind)
    return Node(
        cpus=float(resources.get("CPU", 0)),
        memory_gib=float(resources.get("memory", 0)) / 2**30,
        gpus=gpus,
        gpu=Gpu(kind, memory) if gpus else None,
        cost_per_hour=_label(labels, COST_LABEL),
    )


def _label(labels: Mapping[str, str], name: str) -> float:
    """Return the number in the node label `name`; 0 where the node lacks it, `InventoryError` where it is no number."""
    try:
        return float(labels.get(name) or 0.0)
    except ValueError:
        raise InventoryError(f"node label {name}: must be a number, got {labels[name]!r}") from None


def _cgroup_memory() -> float:
    """Return the bytes that this container may use, infinite outside one: by the files of cgroup v2, else of v1."""
    # A file that is there decides; v2 writes "max" where nothing is limited, v1 a number that no machine has.
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        return float("inf") if text == "max" else float(text)
    return float("inf")


def _nvml_gpus() -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES lets this process use; none where there is no NVIDIA driver."""
    opened = Nvml.open()
    if opened is None:
        return []
    nvml = opened.nvml
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        handles: Iterable[Any] = opened.handles
        if visible is not None:
            handles = _chosen(visible, opened.handles, nvml)
        gpus = []
        for handle in handles:
            memory_gib = nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30
            gpus.append(Gpu(short_name(nvml.nvmlDeviceGetName(handle)), memory_gib))
        return gpus
    finally:
        opened.close()


def _chosen(visible: str, handles: Sequence[Any], nvml: Any) -> Iterator[Any]:
    """Yield NVML's handles of the GPUs in `visible`, the value of CUDA_VISIBLE_DEVICES.

    An entry is the position or the id of a GPU, or the id of a part of one (MIG). As for CUDA, an entry that names
    nothing here ends the list.
    """
    for entry in map(str.strip, visible.split(",")):
        handle = None
        if entry.isdecimal() and int(entry) < len(handles):
            handle = handles[int(entry)]
        elif entry.startswith("GPU-"):  # the beginning of an id is enough
            ids = [(nvml.nvmlDeviceGetUUID(handle), handle) for handle in handles]
            handle = next((handle for uuid, handle in ids if uuid.startswith(entry)), None)
        elif entry.startswith("MIG-"):
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByUUID(entry)
        if handle is None:
            return
        yield handle


MODEL = re.compile(r"\w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*)")
"""Ray's pattern of a GPU's name: a brand, then words in capitals up to one with a digit, which are the model."""


def short_name(name: str) -> str:
    """Return the name that Ray gives to what NVML calls `NVIDIA A100-SXM4-80GB`: the model, `A100`.

    Where no model is found, as of a GeForce, all words count but `NVIDIA`; "unknown" where there are none.
    """
    found = MODEL.match(name)
    return "-".join((found[1] if found else name.removeprefix("NVIDIA ")).split()) or "unknown"
