"""The hosts of a cluster: their types, how an inventory file lists them, and how they are detected."""

from contrasweep.cluster.inventory.detection import ray_inventory, short_name, this_machine
from contrasweep.cluster.inventory.file import read_inventory
from contrasweep.cluster.inventory.hosts import (
    ACCELERATOR_LABEL,
    COST_LABEL,
    GPU_MEMORY_GIB,
    GPU_PEAKS,
    MEMORY_LABEL,
    Gpu,
    Inventory,
    Node,
    Peak,
)

__all__ = [
    "ACCELERATOR_LABEL",
    "COST_LABEL",
    "GPU_MEMORY_GIB",
    "GPU_PEAKS",
    "MEMORY_LABEL",
    "Gpu",
    "Inventory",
    "Node",
    "Peak",
    "ray_inventory",
    "read_inventory",
    "short_name",
    "this_machine",
]
