"""Hosts that join when a test says so, on a clock that it moves, and what a driver's side of a run tells."""

from typing import Any

from contrasweep.cluster import hosts
from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.hosts import ClusterHosts
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, ray_inventory
from contrasweep.storage.record import Record


def host(kind: str, group: str = "", memory_gib: float = 16.0) -> dict[str, Any]:
    labels = {ACCELERATOR_LABEL: kind} | ({hosts.NODE_GROUP_LABEL: group} if group else {})
    return {"Alive": True, "Labels": labels, "Resources": {"CPU": 4.0, "memory": memory_gib * 2**30, "GPU": 1.0}}


class Cluster:
    """Nodes and a clock that tests move; what is requested of it."""

    def __init__(self, *kinds: str) -> None:
        self.listed, self.now = [host(kind) for kind in kinds], 0.0
        self.hosts = ClusterHosts(ray_inventory(self.listed), lambda: self.listed, lambda: self.now)
        self.requested: set[Footprint] = set()
        self.hosts.request = self._request  # type: ignore[method-assign]

    def _request(self, footprints: Any) -> None:
        self.requested = set(footprints)

    def after(self, seconds: float, *kinds: str) -> None:
        self.now += seconds
        self.listed = [host(kind) for kind in kinds]


class Listener:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.messages: list[str] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)

    def on_end(self, record: Record) -> None:
        self.records.append(record)


class Budget:
    def used_up(self) -> str:
        return ""
