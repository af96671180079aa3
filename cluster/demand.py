"""Hosts that are not there yet: what a trial needs as demand that an autoscaler sees, and the wait for it."""

import math
import time
from collections.abc import Callable

from cluster.footprint import Footprint
from cluster.inventory import ACCELERATOR_LABEL, GPU_MEMORY_GIB, Gpu, Inventory
from cluster.packing import share, why_not

PATIENCE_S = 600.0
"""A GPU node of a cloud takes some minutes from the demand to its first task."""


def bundle(footprint: Footprint) -> tuple[dict[str, float], dict[str, str]]:
    """The resources and the node's labels to ask Ray for, so that a host comes which holds such a trial."""
    wanted = {"CPU": footprint.cpus, "memory": float(int(footprint.host_memory_gib * 2**30))}
    if not footprint.wants_gpu:
        return wanted, {}
    wanted["GPU"] = float(max(1, math.ceil(footprint.gpus)))
    kinds = footprint.gpu_types or tuple(GPU_MEMORY_GIB)
    large = [kind for kind in kinds if share(footprint, Gpu(kind, GPU_MEMORY_GIB.get(kind, 0.0))) is not None]
    any_will_do = not large or len(large) == len(GPU_MEMORY_GIB)  # where none will, one of another name may
    return wanted, {} if any_will_do else {ACCELERATOR_LABEL: f"in({','.join(large)})"}


def wait_for_hosts(
    inventory: Inventory,
    missing: Callable[[Inventory], Footprint | None],
    say: Callable[[str], object],
    patience_s: float = PATIENCE_S,
) -> Inventory:
    """The connected cluster's hosts, as soon as nothing is `missing` on them, or as they are after `patience_s`.

    What is missing is asked for by a placement group, which an autoscaler answers with a node, and which is gone with
    this process, so that no node is kept for a driver that was killed.
    """
    import ray
    from ray.util import placement_group, remove_placement_group

    wanted = missing(inventory)
    if wanted is None:
        return inventory
    say(
        f"no host of the cluster can hold a trial yet: {why_not(wanted, inventory)}; waiting for one, "
        f"{patience_s / 60:.0f} min at most"
    )
    needs, labels = bundle(wanted)
    group = placement_group([needs], bundle_label_selector=[labels])
    until = time.monotonic() + patience_s
    try:
        while time.monotonic() < until:
            time.sleep(1)
            if (there := Inventory.from_ray(ray.nodes())) != inventory and missing(inventory := there) is None:
                break
    finally:
        remove_placement_group(group)
    return inventory
