"""Every use of what torch does not promise, for training: its compiler, and operations on lists of tensors.

Where this torch lacks the compiler's names, a step is computed uncompiled; where it lacks an operation on lists, it is
computed tensor by tensor. That takes longer, and one line in the log says so.
"""

import contextlib
import functools
import itertools
import logging
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contrasweep.data.cache import cache_folder

log = logging.getLogger(__name__)
Program = Callable[..., Sequence[Tensor]]
COMPILER = (
    *("torch._inductor:standalone_compile", "torch._inductor:CompiledArtifact.load"),
    *("torch._inductor.config:cpp.vec_isa_ok", "torch._inductor.config:compile_threads"),
    *("torch._functorch.config:patch", "torch.fx.experimental.proxy_tensor:make_fx"),
)
WITHOUT_TESTS = {"cpp.vec_isa_ok": True}
"""Inductor would compile a file for each kind of vector instructions that /proc/cpuinfo names, and load it in a process
that imports torch, before it compiles or reads anything: 5 to 8 seconds of a core beside 20 for the step itself. A
compiler that cannot do them fails at the step."""
ONE_COMPILER = {"compile_threads": 1}
"""Without a GPU a step is a few files: processes that compile at the same time cost more, as each imports torch (35
processor seconds in place of 28)."""
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
TORCH_FOLDER = "torchinductor_"
"""How the name of the folder begins to which torch itself sets the variable."""


@functools.cache
def can_compile() -> bool:
    """Whether this torch has its compiler's names; one line says once which it has not. Imports the compiler."""
    for name in COMPILER:
        try:
            _named(name)
        except (ImportError, AttributeError):
            missing = name.replace(":", ".")
            log.warning("torch %s has no %s: steps are computed uncompiled", torch.__version__, missing)
            return False
    return True


def compiler_folder() -> Path:
    """Where the compiler keeps what it has compiled: the user's `CACHE_VARIABLE`, or a part of the node's cache."""
    folder = Path(os.environ.get(CACHE_VARIABLE) or TORCH_FOLDER)
    return cache_folder() / "inductor" if folder.name.startswith(TORCH_FOLDER) else folder


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Within it nothing is compiled but steps, unless TORCHINDUCTOR_VEC_ISA_OK says otherwise, to `compiler_folder`."""
    config, before = _named("torch._inductor.config"), os.environ.get(CACHE_VARIABLE)
    changes = WITHOUT_TESTS if config.cpp.vec_isa_ok is None else {}
    os.environ[CACHE_VARIABLE] = str(compiler_folder())
    try:
        with config.patch(changes | ({} if torch.cuda.is_available() else ONE_COMPILER)):
            yield
    finally:
        os.environ.pop(CACHE_VARIABLE)
        if before is not None:
            os.environ[CACHE_VARIABLE] = before


def compile_step(step: Program, inputs: Sequence[Tensor], path: Path) -> Program:
    """`step` traced on `inputs`, compiled as one graph, and kept at `path`."""
    graph = _named("torch.fx.experimental.proxy_tensor:make_fx")(step, tracing_mode="fake")(*inputs)
    with _named("torch._functorch.config:patch")(enable_autograd_cache=True):
        program = _named("torch._inductor:standalone_compile")(graph, list(inputs))
    program.save(path=str(path), format="binary")
    return program  # type: ignore[no-any-return]


def load_step(path: Path) -> Program:
    """What `compile_step` kept; raises what the compiler does where this torch cannot read it."""
    return _named("torch._inductor:CompiledArtifact.load")(path=str(path), format="binary")  # type: ignore[no-any-return]


def _named(name: str) -> Any:
    return pkgutil.resolve_name(name)


def _on_lists(name: str) -> Callable[..., Any]:
    """`torch._foreach_NAME`, or the same tensor by tensor."""
    whole = getattr(torch, f"_foreach_{name}", None)
    if whole is not None:
        return whole  # type: ignore[no-any-return]

    @functools.wraps(getattr(Tensor, name))
    def each(tensors: Iterable[Tensor], *others: Any, **scalars: Any) -> list[Tensor]:
        mates = [other if isinstance(other, list | tuple) else itertools.repeat(other) for other in others]
        return [getattr(tensor, name)(*mate, **scalars) for tensor, *mate in zip(tensors, *mates, strict=False)]

    log.warning("torch %s has no torch._foreach_%s: lists of tensors are computed one by one", torch.__version__, name)
    return each


add_, mul_, div_, lerp_ = (_on_lists(name) for name in ("add_", "mul_", "div_", "lerp_"))
addcmul_, addcdiv_, sqrt = (_on_lists(name) for name in ("addcmul_", "addcdiv_", "sqrt"))
