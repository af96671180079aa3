"""Compiled steps: traced once, compiled by torch's inductor as one graph with loss and update, and kept on disk.

A program of the same network, loss, optimizer, precision, sizes, torch and source code is compiled once a node: others
wait for it and read it, which takes seconds instead of tens. Programs lie in `contrasweep` below inductor's own cache
(`TORCHINDUCTOR_CACHE_DIR`), which is as trusted as it: both hold code.
"""

import hashlib
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

import filelock
import torch
from torch import Tensor, nn

from contrasweep.trainables import torch_internals
from contrasweep.trainables.torch_internals import Program

SOURCES = (
    *(
        "contrasweep.trainables.fusing.folding",
        "contrasweep.trainables.losses",
        "contrasweep.trainables.similarities",
        "contrasweep.trainables.contrastive.temperature",
    ),
    *(
        "contrasweep.trainables.paired",
        "contrasweep.trainables.precision",
        "contrasweep.trainables.fusing.cohorts.paired_objective",
    ),
)
"""Modules of ours whose code is in a program."""


def program_of(step: Program, inputs: Sequence[Tensor], identity: Sequence[str], tree: nn.Module) -> Program:
    """`step` (tensors, which it may change in place -> tensors) compiled for tensors like `inputs`.

    `identity` and the code of the classes in `tree` say what it computes, so that a program on disk is found without
    tracing the step again.
    """
    path = torch_internals.compiler_folder() / "contrasweep" / f"{_digest(inputs, identity, tree)}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_suffix(".lock")), torch_internals.compiling():
        return _load(path) or torch_internals.compile_step(step, inputs, path)


def _load(path: Path) -> Program | None:
    """The program at `path`; None where there is none that this torch can read."""
    if not path.is_file():
        return None
    try:
        return torch_internals.load_step(path)
    except Exception:  # inductor's: of another version, or half deleted; a new one replaces it
        path.unlink(missing_ok=True)
        return None


def _digest(inputs: Sequence[Tensor], identity: Sequence[str], tree: nn.Module) -> str:
    of_inputs = [f"{x.dtype} {tuple(x.shape)} {x.stride()} {x.device.type}" for x in inputs]
    machine = [torch.__version__, str(torch.get_num_threads()), torch.backends.cpu.get_cpu_capability()]
    whole = hashlib.sha256("\n".join([*identity, repr(tree), *of_inputs, *machine]).encode())
    for file in sorted(_source_files(tree)):
        whole.update(Path(file).read_bytes())
    return whole.hexdigest()[:32]


def _source_files(tree: nn.Module) -> set[str]:
    names = {name for name in sys.modules if name.startswith(SOURCES)} | {type(m).__module__ for m in tree.modules()}
    files = {inspect.getsourcefile(sys.modules[name]) for name in names if not name.startswith("torch.")}
    return {file for file in files if file}
