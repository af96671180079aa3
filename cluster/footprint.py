"""What one trial needs of a host."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Footprint:
    """A trial's needs: GPU memory and host memory in GiB, host cores, whether it wants a GPU at all."""

    gpu_memory_gib: float = 0.0
    host_memory_gib: float = 1.0
    cpus: float = 1.0
    gpus: float = 0.0
