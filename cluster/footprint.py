"""The resources that one trial needs of a host."""

from dataclasses import dataclass, replace

from contrasweep.cluster.errors import FootprintError


@dataclass(frozen=True)
class Footprint:
    """A trial's needs: GPU memory and host memory in GiB, host cores, and the least share of a GPU.

    A trial wants a GPU if `gpus` or `gpu_memory_gib` is above 0; the share it gets is the larger of what
    either asks for (`contrasweep.cluster.packing.share`), so `gpus=1` means a whole one whatever its memory, and more
    than 1 must be whole. `gpu_busy` is the fraction of its time for which the trial, alone on the GPU, keeps
    it computing (0: not measured), `gpu_types` the types it may run on (empty: any), and `margin` what its
    GPU memory is multiplied by before it is packed, because an estimate may be short.
    """

    gpu_memory_gib: float = 0.0
    host_memory_gib: float = 1.0
    cpus: float = 1.0
    gpus: float = 0.0
    gpu_busy: float = 0.0
    gpu_types: tuple[str, ...] = ()
    margin: float = 1.1

    def __post_init__(self) -> None:
        for name in ("gpu_memory_gib", "host_memory_gib", "cpus", "gpus", "gpu_busy"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise FootprintError(f"footprint: {name} must be 0 or more, got {getattr(self, name)!r}")
        if self.gpu_busy > 1:
            raise FootprintError(f"footprint: gpu_busy is a fraction of the time, 0 to 1, got {self.gpu_busy!r}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise FootprintError(f"footprint: more than one GPU must be a whole number of them, got {self.gpus!r}")
        if self.margin < 1:
            raise FootprintError(f"footprint: margin multiplies the GPU memory and is 1 or more, got {self.margin!r}")

    @property
    def wants_gpu(self) -> bool:
        """Whether the trial needs a GPU, or a share of one."""
        return self.gpus > 0 or self.gpu_memory_gib > 0

    def on(self, gpu: str) -> "Footprint":
        """Return the same trial's needs on this type of GPU."""
        return self


@dataclass(frozen=True)
class OnType:
    """The needs of a trial on one type of GPU: memory in GiB, its margin, the busy fraction."""

    gpu: str
    gpu_memory_gib: float
    margin: float
    gpu_busy: float = 0.0


@dataclass(frozen=True)
class LearnedFootprint(Footprint):
    """A footprint whose GPU memory differs by type of GPU, as measured or estimated there.

    Its own fields hold on types that `types` leaves out.
    """

    types: tuple[OnType, ...] = ()

    def on(self, gpu: str) -> Footprint:
        """Return the trial's needs on this type of GPU, as measured or estimated there."""
        measured = next((entry for entry in self.types if entry.gpu == gpu), None)
        if measured is None:
            return self
        return replace(
            self, gpu_memory_gib=measured.gpu_memory_gib, margin=measured.margin, gpu_busy=measured.gpu_busy, types=()
        )
