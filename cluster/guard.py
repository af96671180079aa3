"""Keep one trial from taking its neighbours' memory: limits of this process, on GPU and host.

Both limits turn an overrun into an exception of the trial that caused it, which `out_of_memory` knows. Without them the
kernel or Ray would end a process, perhaps a neighbour's.
A guard, not isolation: memory that CUDA takes outside of torch's allocator is not counted.
"""

import contextlib
from collections.abc import Iterator

from contrasweep.cluster.usage import status_bytes

CONTEXT_GIB = 0.75
"""GPU memory that a process's CUDA context takes outside of torch's allocator: its share has to hold that too.
As measured on an H100 (benchmarks/results/gpu.md)."""
SLACK_GIB = 0.5
"""Host memory beyond the limit, for thread stacks and allocator arenas, which are mapped and hardly used."""


@contextlib.contextmanager
def guard(
    *, gpu_share: float | None = None, host_memory_gib: float | None = None
) -> Iterator[None]:
    """Limit this process's share of a GPU's memory, and its host memory, within the `with` block.

    `gpu_share` is 0 to 1, `host_memory_gib` in GiB; None: that memory is not limited. The process may hold
    `host_memory_gib` of host memory, or what it holds now if that is more (imports count), and `SLACK_GIB` beyond.
    Import what the trial needs before: loading a library maps memory too. Allocations on the host beyond the limit
    raise MemoryError (torch: RuntimeError). Without CUDA the limit on the GPU is skipped.
    """
    with contextlib.ExitStack() as limits:
        if gpu_share is not None:
            limits.enter_context(_gpu_limit(gpu_share))
        if host_memory_gib is not None:
            limits.enter_context(_host_limit(host_memory_gib))
        yield


@contextlib.contextmanager
def _gpu_limit(share: float) -> Iterator[None]:
    """Limit what torch may allocate on this process's first GPU to `share` of it, within the `with` block.

    Without a GPU nothing is done. At the end the whole GPU is allowed, and what torch holds in reserve is freed.
    """
    import torch

    if not torch.cuda.is_available():
        yield
        return
    total_gib = torch.cuda.get_device_properties(0).total_memory / 2**30
    torch.cuda.set_per_process_memory_fraction(fraction(share, total_gib))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()  # the next trial in this process may have a smaller share


def fraction(share: float, total_gib: float) -> float:
    """Return the fraction of a GPU's memory that torch's allocator may take, where the trial has `share` of the GPU.

    `total_gib` is the GPU's memory. The allocator gets the share without what CUDA itself takes, but half of the share
    at least. A whole GPU is not limited: 1.0.
    """
    return 1.0 if share >= 1 else max(share / 2, share - CONTEXT_GIB / total_gib)


@contextlib.contextmanager
def _host_limit(gib: float) -> Iterator[None]:
    """Set RLIMIT_DATA, which counts private writable memory, to leave `gib` GiB; put the soft limit back at the end.

    Shared maps such as Ray's object store and the address space that CUDA reserves are no part of it.
    """
    import resource

    # Private writable memory of this process: what is mapped, and what of it is in use.
    mapped = status_bytes("VmData")
    resident = status_bytes("RssAnon")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # The limit counts mapped memory, used or not. So it is what is mapped now, and what the process may still use.
    limit = mapped + max(0, int(gib * 2**30) - resident) + int(SLACK_GIB * 2**30)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
