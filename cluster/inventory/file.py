"""Inventory files: the hosts of a cluster as YAML, each mistake one line with its place."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from contrasweep.cluster.errors import InventoryError
from contrasweep.cluster.inventory.hosts import GPU_MEMORY_GIB, Gpu, Inventory, Node


def read_inventory(path: str | Path) -> Inventory:
    """The hosts that an inventory file lists: under `nodes`, entries with the fields of `Node`, where `gpu` is the name
    of a type, and `gpu_memory_gib` and `gpu_speed` say what the name does not. Raises `InventoryError`."""
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise InventoryError(f"inventory {path} cannot be read ({error.strerror})") from None
    except Exception as error:  # PyYAML raises what `int` and the like do
        raise InventoryError(f"inventory {path} is not YAML ({str(error).partition(chr(10))[0]})") from None
    if not isinstance(content, Mapping) or set(content) != {"nodes"} or not isinstance(content["nodes"], list):
        raise InventoryError(f"inventory {path}: there must be one key, nodes, with a list of hosts")
    return Inventory(
        _with_consistent_types(
            tuple(_node(entry, f"{path}: nodes[{i}]") for i, entry in enumerate(content["nodes"])), path
        )
    )


def _node(entry: Any, place: str) -> Node:
    if not isinstance(entry, Mapping):
        raise InventoryError(f"{place}: a host is a mapping of fields, got {entry!r}")
    known = [f.name for f in fields(Node)] + ["gpu_memory_gib", "gpu_speed"]
    for name in entry:
        if name not in known:
            raise InventoryError(f"{place}.{name}: there is no such field; known fields: {', '.join(known)}")
    gpus = int(_number(entry, "gpus", place, 1.0 if entry.get("gpu") else 0.0, whole=True))
    if gpus and not entry.get("gpu"):
        raise InventoryError(f"{place}.gpu: a host with GPUs must name their type; known: {', '.join(GPU_MEMORY_GIB)}")
    return Node(
        cpus=_number(entry, "cpus", place),
        memory_gib=_number(entry, "memory_gib", place),
        gpus=gpus,
        gpu=_gpu(entry, place) if gpus else None,
        count=int(_number(entry, "count", place, 1.0, whole=True)),
        cost_per_hour=_number(entry, "cost_per_hour", place, 0.0),
        name=str(entry.get("name", "")),
    )


def _gpu(entry: Mapping[str, object], place: str) -> Gpu:
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
    entry: Mapping[str, object], name: str, place: str, default: float | None = None, whole: bool = False
) -> float:
    value = entry.get(name, default)
    if value is None:
        raise InventoryError(f"{place}.{name}: this field is required")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InventoryError(f"{place}.{name}: must be a number, 0 or more, got {value!r}")
    if whole and value != int(value):
        raise InventoryError(f"{place}.{name}: must be a whole number, got {value!r}")
    return float(value)


def _with_consistent_types(nodes: tuple[Node, ...], path: str | Path) -> tuple[Node, ...]:
    """Refuse one name for two types of GPU: a share of it would stand for two amounts of memory."""
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
