"""Compiled steps: traced once, compiled by torch's inductor as one graph with loss and update, and kept on disk.

A program of the same network, loss, optimizer, precision, sizes, torch and source code is compiled once a node: others
wait for it and read it, which takes seconds instead of tens. Programs lie in `contrasweep` below inductor's own cache
(`TORCHINDUCTOR_CACHE_DIR`), which is as trusted as it: both hold code.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import filelock
import torch
from torch import Tensor, nn

SOURCES = (
    *("trainables.fusing.folding", "trainables.losses", "trainables.similarities", "trainables.temperature"),
    *("trainables.paired", "trainables.precision", "trainables.fusing.cohorts.paired_objective"),
)
"""Modules of ours whose code is in a program."""
WITHOUT_TESTS = {"cpp.vec_isa_ok": True}
"""Inductor would compile a file for each kind of vector instructions that /proc/cpuinfo names, and load it in a process
that imports torch, before it compiles or reads anything: 5 to 8 seconds of a core beside 20 for the step itself. A
compiler that cannot do them fails at the step."""
Program = Callable[..., Sequence[Tensor]]


def program_of(
    step: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], identity: Sequence[str], tree: nn.Module
) -> Program:
    """`step` (tensors, which it may change in place -> tensors) compiled for tensors like `inputs`.

    `identity` and the code of the classes in `tree` say what it computes, so that a program on disk is found without
    tracing the step again.
    """
    from torch._inductor import config

    path = _folder() / f"{_digest(inputs, identity, tree)}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    unset = config.cpp.vec_isa_ok is None  # nobody has set TORCHINDUCTOR_VEC_ISA_OK
    with filelock.FileLock(path.with_suffix(".lock")), config.patch(WITHOUT_TESTS if unset else {}):
        return _load(path) or _compile(step, inputs, path)


def _compile(step: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], path: Path) -> Program:
    from torch._inductor import standalone_compile
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(step, tracing_mode="fake")(*inputs)
    with torch._functorch.config.patch(enable_autograd_cache=True):
        program = standalone_compile(graph, list(inputs))
    program.save(path=str(path), format="binary")
    return program


def _load(path: Path) -> Program | None:
    """The program at `path`; None where there is none that this torch can read."""
    from torch._inductor.standalone_compile import CompiledArtifact

    if not path.is_file():
        return None
    try:
        return CompiledArtifact.load(path=str(path), format="binary")
    except Exception:  # inductor's: of another version, or half deleted; a new one replaces it
        path.unlink(missing_ok=True)
        return None


def _folder() -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()) / "contrasweep"


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
