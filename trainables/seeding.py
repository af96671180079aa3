"""Seeds, threads and devices: everything random in a trial follows from (seed, fold, epoch) and nothing else.

Arm and config stay out, so that replicates are paired. All arms of a cell start from the same weights, and see the
same order of the data and the same augmentations.
"""

import functools
import hashlib
import os
import random

import numpy as np

from contrasweep.errors import SpecError
from contrasweep.trainables.pytorch import torch


def derive(*parts: int | str | None) -> int:
    """Return a seed in [0, 2^63) from `parts`: equal parts give equal seeds on any machine, others unrelated ones."""
    # The first 8 bytes of a digest, less one bit, so that it fits a signed integer.
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*parts: int | str | None) -> "torch.Generator":
    """Return a torch generator seeded by `parts`. It is on the host, so that a GPU draws the same numbers."""
    return torch.Generator().manual_seed(derive(*parts))


def reseed(*parts: int | str | None) -> None:
    """Seed Python, NumPy and torch from `parts`, whatever an earlier trial has drawn in this process."""
    seed = derive(*parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # code of others may draw from it
    if _has_accelerator():
        torch.manual_seed(seed)
    else:  # the same generator; the call above would keep a traceback for each kind of device that there is not
        torch.default_generator.manual_seed(seed)


@functools.cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


def prepare_device(name: str, threads: int) -> "torch.device":
    """Set the number of torch threads, and return the device that `pick_device` picks by `name`.

    On a GPU torch is asked for deterministic algorithms; those of the CPU are deterministic always.
    """
    device = pick_device(name)
    torch.set_num_threads(threads)
    if device.type == "cuda":
        # Without this, cuBLAS is not deterministic.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Filling memory that is never read costs time; benchmarking could choose other kernels in another run.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
    return device


def pick_device(name: str) -> "torch.device":
    """Return the device of this name; `auto` is the GPU if this process sees one, else the CPU.

    `SpecError` where a GPU is named and the process sees none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise SpecError(
            "this process sees no GPU", place="device", value=name, hint="use 'auto' or 'cpu'"
        )
    return torch.device(name)
