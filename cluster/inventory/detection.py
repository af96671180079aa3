"""The hosts there are: those of the Ray cluster, and this machine."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from contrasweep.cluster.errors import InventoryError
from contrasweep.cluster.inventory.hosts import (
    ACCELERATOR_LABEL,
    COST_LABEL,
    GPU_MEMORY_GIB,
    MEMORY_LABEL,
    Gpu,
    Inventory,
    Node,
)


class RayNode(TypedDict, total=False):
    """What is read of a node as `ray.nodes()` lists it; `memory` among its resources is in bytes."""

    Alive: bool
    Resources: dict[str, float]
    Labels: dict[str, str]


def ray_inventory(nodes: Iterable[RayNode]) -> Inventory:
    """The hosts that `ray.nodes()` lists. The type of a GPU comes from the node's label or its `accelerator_type:`
    resource, its memory from our label or from the type; where hosts disagree about the memory of a type, the smallest
    counts, since a trial may land on any."""
    alive = [_ray_node(node) for node in nodes if node.get("Alive", True)]
    smallest: dict[str, Gpu] = {}
    for gpu in (node.gpu for node in alive if node.gpu):
        smallest[gpu.type] = min(gpu, smallest.get(gpu.type, gpu), key=lambda gpu: gpu.memory_gib)
    counts = Counter(replace(node, gpu=smallest[node.gpu.type]) if node.gpu else node for node in alive)
    return Inventory(tuple(replace(node, count=count) for node, count in counts.items()))


def this_machine() -> Inventory:
    """This machine alone: its cores and memory, and the GPUs that NVML lists and CUDA may use."""
    import psutil

    memory_gib = min(psutil.virtual_memory().total, _cgroup_memory()) / 2**30
    gpus = _nvml_gpus()
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    kinds = Counter(gpus)
    if len(kinds) > 1:  # a node has one type here, as in Ray; the smaller memory is safe for both
        smallest = min(kinds, key=lambda gpu: gpu.memory_gib)
        kinds = Counter({smallest: len(gpus)})
    gpu, number = next(iter(kinds.items()), (None, 0))
    return Inventory((Node(cores, memory_gib, gpus=number, gpu=gpu),))


def _ray_node(node: RayNode) -> Node:
    resources, labels = node.get("Resources", {}), node.get("Labels", {})
    gpus = int(resources.get("GPU", 0))
    named = next((r.removeprefix("accelerator_type:") for r in resources if r.startswith("accelerator_type:")), "")
    kind = labels.get(ACCELERATOR_LABEL) or named or "unknown"
    memory = _number(labels, MEMORY_LABEL) or GPU_MEMORY_GIB.get(kind, 0.0)
    return Node(
        cpus=float(resources.get("CPU", 0)),
        memory_gib=float(resources.get("memory", 0)) / 2**30,
        gpus=gpus,
        gpu=Gpu(kind, memory) if gpus else None,
        cost_per_hour=_number(labels, COST_LABEL),
    )


def _number(labels: Mapping[str, str], name: str) -> float:
    """A label's value, 0 where there is none."""
    try:
        return float(labels.get(name) or 0.0)
    except ValueError:
        raise InventoryError(f"node label {name}: must be a number, got {labels[name]!r}") from None


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
        gpus = [
            Gpu(short_name(_text(pynvml.nvmlDeviceGetName(h))), pynvml.nvmlDeviceGetMemoryInfo(h).total / 2**30)
            for h in handles
        ]
    finally:
        pynvml.nvmlShutdown()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus
    chosen = [part.strip() for part in visible.split(",") if part.strip() not in ("", "-1")]
    return [gpus[int(c)] if c.isdigit() and int(c) < len(gpus) else gpus[0] for c in chosen] if gpus else []


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def short_name(name: str) -> str:
    """The name that Ray gives to what NVML calls `NVIDIA A100-SXM4-80GB`: the words up to the model's number."""
    words = name.removeprefix("NVIDIA ").removeprefix("Tesla ").split()
    end = next((i for i, word in enumerate(words) if any(c.isdigit() for c in word)), len(words) - 1)
    return "-".join([*words[:end], words[end].split("-")[0]]) if words else "unknown"
