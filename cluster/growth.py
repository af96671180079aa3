"""The hosts of a cluster while a study runs: those that join are used, and those that are needed are requested."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from contrasweep.cluster.demand import HOST_TIMEOUT_S, bundle
from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.inventory import Inventory, ray_inventory
from contrasweep.cluster.inventory.detection import RayNode

POLL_S = 2.0
JOIN_QUIET_S = 120.0
"""Without an autoscaler, hosts are started by hand or by a batch system: after so long without one, no more come."""
NODE_GROUP_LABEL = "ray.io/node-group"
"""Node label that KubeRay and Ray's autoscaler set: such a cluster starts hosts by what is requested."""


class Hosts(Protocol):
    """The hosts that trials are placed on."""

    def poll(self) -> Inventory | None:
        """The hosts, if there are other ones than at the last call."""

    def may_grow(self) -> bool:
        """Whether a host may still join."""

    def request(self, footprints: Iterable[Footprint]) -> None:
        """Request a host for each of these from the cluster; what was requested before is not any more."""


class FixedHosts:
    """Hosts of an inventory file, or of this machine: there will be no others."""

    def poll(self) -> Inventory | None:
        """None: they do not change."""
        return None

    def may_grow(self) -> bool:
        """No."""
        return False

    def request(self, footprints: Iterable[Footprint]) -> None:
        """Nobody can be asked."""


class ClusterHosts:
    """The hosts of the connected Ray cluster. One that was lost still counts: it may come back, and a trial that waits
    for it is not one that fits nowhere."""

    def __init__(
        self, inventory: Inventory, nodes: Callable[[], list[RayNode]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.inventory, self.nodes, self.clock = inventory, nodes, clock
        self.polled = self.grown = clock()
        self.autoscaled = _autoscaled(nodes())
        self._requested: dict[Footprint, Any] = {}

    def poll(self) -> Inventory | None:
        """The hosts, if more of a kind were seen than ever before; Ray is asked every POLL_S seconds."""
        if self.clock() - self.polled < POLL_S:
            return None
        listed, self.polled = self.nodes(), self.clock()
        self.autoscaled = self.autoscaled or _autoscaled(listed)
        seen = self.inventory.joined(ray_inventory(listed))
        if seen == self.inventory:
            return None
        self.inventory, self.grown = seen, self.clock()
        self.request(())  # what was requested may hold the very host that has come
        return seen

    def may_grow(self) -> bool:
        """Whether a host joined lately, or an autoscaler has had less time than one takes."""
        return self.clock() - self.grown < (HOST_TIMEOUT_S if self.autoscaled else JOIN_QUIET_S)

    def request(self, footprints: Iterable[Footprint]) -> None:
        """Hold a placement group for each, which an autoscaler answers with a host."""
        from ray.util import placement_group, remove_placement_group

        wanted = set(footprints)
        for footprint in self._requested.keys() - wanted:
            remove_placement_group(self._requested.pop(footprint))
        for footprint in wanted - self._requested.keys():
            resources, labels = bundle(footprint)
            self._requested[footprint] = placement_group([resources], bundle_label_selector=[labels])


def _autoscaled(nodes: Iterable[RayNode]) -> bool:
    return any(NODE_GROUP_LABEL in (node.get("Labels") or {}) for node in nodes)
