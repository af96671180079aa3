"""The hosts of a cluster while a study runs: new ones are used, and missing ones are requested.

A host is requested by a placement group, which an autoscaler answers with a node. The group ends with this process, so
that no node is kept for a driver that was killed.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from contrasweep.cluster.inventory import (
    ACCELERATOR_LABEL,
    GPU_MODELS,
    Gpu,
    Inventory,
    RayNode,
    ray_inventory,
)
from contrasweep.cluster.packing import Footprint, share, why_not

HOST_TIMEOUT_S = 600.0
"""Seconds for which a run waits for a host: a GPU node of a cloud takes some minutes to its first task."""
POLL_S = 2.0
"""How often Ray is asked for its hosts."""
JOIN_QUIET_S = 120.0
"""Seconds without a new host after which no more are expected, where hosts are started by hand or by a batch system."""
NODE_GROUP_LABEL = "ray.io/node-group"
"""Node label that KubeRay and Ray's autoscaler set: such a cluster starts hosts by what is requested."""


class Hosts:
    """Hosts to place trials on. In this class they are fixed: those of an inventory file, or this machine."""

    autoscaled = False
    """Whether an autoscaler starts hosts by what is requested."""

    def rule(self, memory_gib: float) -> str:
        """Return, as the end of a message, what a type of host must declare for the autoscaler to start it.

        `memory_gib` is the host memory that a trial needs. "" without an autoscaler.
        """
        if not self.autoscaled:
            return ""
        declared = f"declares `memory` of {int(memory_gib * 2**30)} bytes or more"
        return f"; its autoscaler starts only a type of host that {declared}"

    def poll(self) -> Inventory | None:
        """Return the hosts if they have changed since the last call, else None."""
        return None

    def may_grow(self) -> bool:
        """Return whether a host may still join."""
        return False

    def request(self, footprints: Iterable[Footprint]) -> None:
        """Request a host for each of these footprints from the cluster, in place of all earlier requests."""


class ClusterHosts(Hosts):
    """The hosts of the connected Ray cluster.

    A lost host still counts, since it may come back: a trial that waits for it is not infeasible.
    """

    def __init__(
        self,
        inventory: Inventory,
        nodes: Callable[[], list[RayNode]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the hosts of `inventory`; `nodes` is `ray.nodes`, `clock` gives the time in seconds."""
        self.inventory = inventory
        self.nodes = nodes
        self.clock = clock
        self.polled = clock()  # when Ray was asked last
        self.grown = clock()  # when a host joined last
        self.autoscaled = _autoscaled(nodes())
        # footprint -> the placement group that asks for its host
        self._requested: dict[Footprint, Any] = {}

    def poll(self) -> Inventory | None:
        """Return the hosts if there are more of a kind than ever before, else None.

        Ray is asked every POLL_S seconds.
        """
        if self.clock() - self.polled < POLL_S:
            return None
        listed = self.nodes()
        self.polled = self.clock()
        self.autoscaled = self.autoscaled or _autoscaled(listed)
        joined = self.inventory.joined(ray_inventory(listed))
        if joined == self.inventory:
            return None
        self.inventory = joined
        self.grown = self.clock()
        # A placement group would keep trials off the very host that has come for it: all groups are removed.
        self.request(())
        return joined

    def may_grow(self) -> bool:
        """Return whether more hosts may come: one joined lately, or an autoscaler may still be starting some.

        It is True for `JOIN_QUIET_S` seconds after the last host joined; with an autoscaler for `HOST_TIMEOUT_S`.
        """
        return self.clock() - self.grown < (HOST_TIMEOUT_S if self.autoscaled else JOIN_QUIET_S)

    def request(self, footprints: Iterable[Footprint]) -> None:
        """Hold a placement group for each footprint, for which an autoscaler starts a host.

        Groups for footprints of earlier calls that are not among these are removed; () removes all.
        """
        from ray.util import placement_group, remove_placement_group

        wanted = set(footprints)
        for footprint in self._requested.keys() - wanted:
            remove_placement_group(self._requested.pop(footprint))
        for footprint in wanted - self._requested.keys():
            resources, labels = bundle(footprint)
            self._requested[footprint] = placement_group(
                [resources], bundle_label_selector=[labels]
            )


def wait_for_hosts(
    inventory: Inventory,
    missing: Callable[[Inventory], Footprint | None],
    on_message: Callable[[str], object],
) -> Inventory:
    """Wait, at most `HOST_TIMEOUT_S` seconds, until the connected cluster has a host on which a trial fits.

    Returns the hosts of the cluster then, also where none has come in that time. If a host of `inventory` fits, that is
    returned at once. `missing(inventory)` returns None if a trial fits on a host of this inventory, else the footprint
    for which a host is to be requested. `on_message` gets a line of text that says what is waited for.
    """
    import ray

    unplaced = missing(inventory)
    if unplaced is None:
        return inventory
    hosts = ClusterHosts(inventory, ray.nodes)
    on_message(
        f"no host of the cluster can hold a trial yet: {why_not(unplaced, inventory)}; waiting for one, "
        f"{HOST_TIMEOUT_S / 60:.0f} min at most{hosts.rule(unplaced.host_memory_gib)}"
    )
    hosts.request([unplaced])
    deadline = time.monotonic() + HOST_TIMEOUT_S
    try:
        while time.monotonic() < deadline and missing(inventory) is not None:
            time.sleep(1)
            inventory = ray_inventory(ray.nodes())
    finally:
        hosts.request(())  # takes the request back
    return inventory


def bundle(footprint: Footprint) -> tuple[dict[str, float], dict[str, str]]:
    """Return the resources and node labels to request from Ray, so that an autoscaler starts a host for the trial.

    A part of a GPU is requested as a whole one. The label lists the types of GPU that have the memory, such as
    `in(A100,H100)`; {} where any type will do.
    """
    resources = {"CPU": footprint.cpus, "memory": float(int(footprint.host_memory_gib * 2**30))}
    if not footprint.wants_gpu:
        return resources, {}
    resources["GPU"] = float(max(1, math.ceil(footprint.gpus)))
    memories = {kind: model.memory_gib for kind, model in GPU_MODELS.items()}
    kinds = footprint.gpu_types or tuple(memories)
    gpus = [Gpu(kind, memories.get(kind, 0.0)) for kind in kinds]
    large_enough = [gpu.type for gpu in gpus if share(footprint, gpu) is not None]
    # Any type is requested where all known types are large enough, and where none is: another one may be.
    if not large_enough or len(large_enough) == len(memories):
        return resources, {}
    return resources, {ACCELERATOR_LABEL: f"in({','.join(large_enough)})"}


def _autoscaled(nodes: Iterable[RayNode]) -> bool:
    """Whether a node has a label that tells of an autoscaler."""
    return any(NODE_GROUP_LABEL in (node.get("Labels") or {}) for node in nodes)
