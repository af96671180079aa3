"""What a trial holds of the host it runs on, as its worker sees it: Ray may have given more than was first asked
for."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import ray

from cluster.guard import guard
from cluster.inventory import ACCELERATOR_LABEL, Inventory
from contrasweep.storage.record import TrialNotes


@dataclass(frozen=True)
class Held:
    """GPUs or the share of one and their type (None: no GPU), cores, host memory in GiB, and the price of it all."""

    gpus: float
    gpu: str | None
    cpus: float
    memory_gib: float
    cost_per_hour: float

    @classmethod
    def here(cls, inventory: Inventory) -> "Held":
        """Inside an actor. Prices are those of `inventory`."""
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
        """For the trial's record; the cost only where it has a price."""
        return TrialNotes(gpus=self.gpus, gpu_type=self.gpu, cost_per_hour=self.cost_per_hour or None)

    def limits(self, *, host: bool) -> AbstractContextManager[None]:
        """Keeps this process to its share of a GPU, and with `host` to its host memory."""
        return guard(
            gpu_share=self.gpus if 0 < self.gpus <= 1 else None, host_memory_gib=self.memory_gib if host else None
        )
