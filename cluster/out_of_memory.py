"""Errors of exhausted memory: how to know them, of which memory, and what a trial is given when it runs again.

The rule: what ran out is doubled and the trial resumes from its checkpoint. When the largest host is not
enough the trial is `infeasible`, which says nothing about how good its config is.
"""

import re
import traceback
from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.packing import Placement, fits

Memory = Literal["gpu", "host"]

_GPU_TEXT = re.compile(
    r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|CUDA driver error: out of memory"
    r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|torch\.(cuda\.)?OutOfMemoryError"
)
"""What errors of exhausted GPU memory say."""
_HOST_TEXT = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|\bMemoryError\b|Cannot allocate memory|std::bad_alloc"
    r"|Unable to allocate .* for an array|malloc of size \d+ failed"
    r"|ray\.exceptions\.OutOfMemoryError|killed due to the node running low on memory"
)
"""What errors of exhausted host memory say."""


def exhausted_memory(error: BaseException | str | None) -> Memory | None:
    """Return which memory `error` says is used up, `gpu` or `host`; None for any other error.

    `error` is an exception, whose causes are looked at too, or the text of a traceback as Ray keeps it on disk. A
    process that the kernel has killed leaves no error: it looks like a lost worker, and is not noticed here.
    """
    if isinstance(error, str):
        return _of_text(error)
    # Along the errors that it was raised from, which may refer to each other in a circle.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        # Torch raises a RuntimeError for either memory, and Ray's errors carry the traceback of the other process. What
        # the text of any other error says is the user's. Ray is not imported for this.
        is_rays = "ray." in str(type(error))
        memory = None
        if is_rays or isinstance(error, MemoryError | RuntimeError | OSError):
            memory = _of_text("".join(traceback.format_exception_only(error)))
        if memory is not None:
            return memory
        error = error.__cause__ or error.__context__
    return None


def _of_text(text: str) -> Memory | None:
    """Return which memory a text says is used up; None for any other text. A text that names both means the GPU's."""
    if _GPU_TEXT.search(text):
        return "gpu"
    return "host" if _HOST_TEXT.search(text) else None


def doubled(share: Fraction) -> Fraction:
    """Return at least twice `share`, as 1/n and at most 1: 1/4 gives 1/2, 1/3 gives 1."""
    return Fraction(1, max(1, share.denominator // 2)) if share < 1 else share


def larger_place(
    placement: Placement, memory: Memory, inventory: Inventory, gpu_types: Collection[str] = ()
) -> Placement | None:
    """Return a place with more of `memory` for a trial that ran out of it on `placement`; None if no host has more.

    On a GPU the trial gets twice the share; where it has a whole GPU, a whole one of the next type with more memory. On
    a host it gets twice the memory, or all of the largest host if none has twice. `gpu_types` are the types on which it
    may run (empty: any).
    """
    if memory == "host":
        # The memory of the hosts that have the trial's GPU and its cores.
        without_memory = replace(placement, host_memory_gib=0.0)
        memories = [node.memory_gib for node in inventory.nodes if fits(without_memory, node)]
        largest = max(memories, default=0.0)
        if placement.host_memory_gib >= largest:
            return None
        return replace(placement, host_memory_gib=min(2 * placement.host_memory_gib, largest))
    if placement.gpu is None:
        return None
    if placement.share < 1:
        return replace(placement, share=doubled(placement.share))
    present_gib = inventory.gpu(placement.gpu).memory_gib
    for gpu in inventory.gpu_types:
        larger = replace(placement, gpu=gpu.type)
        is_allowed = not gpu_types or gpu.type in gpu_types
        if (
            is_allowed
            and gpu.memory_gib > present_gib
            and any(fits(larger, n) for n in inventory.nodes)
        ):
            return larger
    return None
