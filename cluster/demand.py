"""Waiting for hosts: what a trial needs, as demand that an autoscaler sees."""

import math
import time
from collections.abc import Callable

from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, GPU_MEMORY_GIB, Gpu, Inventory, ray_inventory
from contrasweep.cluster.packing import share, why_not

HOST_TIMEOUT_S = 600.0
"""How long a run waits for a host: a GPU node of a cloud takes some minutes from the demand to its first task."""


def bundle(footprint: Footprint) -> tuple[dict[str, float], dict[str, str]]:
    """The resources and node labels to request from Ray, so that an autoscaler starts a host for the trial."""
    wanted = {"CPU": footprint.cpus, "memory": float(int(footprint.host_memory_gib * 2**30))}
    if not footprint.wants_gpu:
        return wanted, {}
    wanted["GPU"] = float(max(1, math.ceil(footprint.gpus)))
    kinds = footprint.gpu_types or tuple(GPU_MEMORY_GIB)
    large = [kind for kind in kinds if share(footprint, Gpu(kind, GPU_MEMORY_GIB.get(kind, 0.0))) is not None]
    any_type = not large or len(large) == len(GPU_MEMORY_GIB)  # where none will, one of another name may
    return wanted, {} if any_type else {ACCELERATOR_LABEL: f"in({','.join(large)})"}


def wait_for_hosts(
    inventory: Inventory,
    missing: Callable[[Inventory], Footprint | None],
    on_message: Callable[[str], object],
    timeout_s: float = HOST_TIMEOUT_S,
) -> Inventory:
    """Wait, `timeout_s` at most, until the connected cluster has a host for every trial; return its hosts.

    `missing` returns the footprint of a trial that fits no host of an inventory, or None. It is requested by a
    placement group, which an autoscaler answers with a node and which ends with this process, so that no node is kept
    for a driver that was killed.
    """
    import ray
    from ray.util import placement_group, remove_placement_group

    unplaced = missing(inventory)
    if unplaced is None:
        return inventory
    on_message(
        f"no host of the cluster can hold a trial yet: {why_not(unplaced, inventory)}; waiting for one, "
        f"{timeout_s / 60:.0f} min at most"
    )
    resources, labels = bundle(unplaced)
    group = placement_group([resources], bundle_label_selector=[labels])
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            time.sleep(1)
            if (current := ray_inventory(ray.nodes())) != inventory and missing(inventory := current) is None:
                break
    finally:
        remove_placement_group(group)
    return inventory
