"""The resources that Ray assigned to a trial, as its worker sees them; more than before if it ran out of memory."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import ray

from contrasweep.cluster.guard import guard
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, Inventory
from contrasweep.storage.record import TrialNotes


@dataclass(frozen=True)
class AssignedResources:
    """GPUs (or the share of one) and their type (None: no GPU), cores, host memory in GiB, and what all of it costs."""

    gpus: float
    gpu: str | None
    cpus: float
    memory_gib: float
    cost_per_hour: float

    @classmethod
    def here(cls, inventory: Inventory) -> "AssignedResources":
        """The resources of the actor that calls this. Prices are those of `inventory`."""
        context = ray.get_runtime_context()
        resources = context.get_assigned_resources()
        gpus, cpus = float(resources.get("GPU", 0.0)), float(resources.get("CPU", 0.0))
        label = context.get_node_labels().get(ACCELERATOR_LABEL) or next(
            (gpu.type for gpu in inventory.gpu_types), "unknown"
        )
        gpu = str(label) if gpus else None
        return cls(
            gpus, gpu, cpus, float(resources.get("memory", 0.0)) / 2**30, inventory.share_cost_per_hour(gpu, gpus, cpus)
        )

    @property
    def notes(self) -> TrialNotes:
        """The notes for the trial's record; a cost only where the inventory has prices."""
        return TrialNotes(gpus=self.gpus, gpu_type=self.gpu, cost_per_hour=self.cost_per_hour or None)

    def limits(self, *, host_memory: bool) -> AbstractContextManager[None]:
        """While open, this process is kept to its share of a GPU and, with `host_memory`, to its host memory."""
        return guard(
            gpu_share=self.gpus if 0 < self.gpus <= 1 else None,
            host_memory_gib=self.memory_gib if host_memory else None,
        )
