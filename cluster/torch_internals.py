"""Every use of what torch does not promise, as far as counting needs it.

Where this torch lacks a name, the count is a `ClusterError` in one line, and a plan goes on without it.
"""

import contextlib
import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from contrasweep.cluster.errors import ClusterError

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def fake_tensors() -> Iterator[None]:
    """Give tensors that are made in this context a shape and a storage, and no memory.

    Truncated normals, with which transformers initialise weights, are not drawn: torch draws until all values lie
    inside the bounds, which never ends for a tensor without values. Memory does not depend on them. `ClusterError`
    where torch has no fake tensors.
    """
    from torch.nn import init

    mode = _named("torch._subclasses.fake_tensor.FakeTensorMode")
    drawn = getattr(init, "_no_grad_trunc_normal_", None)
    try:
        if drawn is not None:
            init._no_grad_trunc_normal_ = lambda tensor, *_, **__: tensor
        with mode(allow_non_fake_inputs=True):
            yield
    finally:
        if drawn is not None:
            init._no_grad_trunc_normal_ = drawn


def dispatch_mode() -> Any:
    """Return the class whose instances see each operation that torch runs."""
    return _named("torch.utils._python_dispatch.TorchDispatchMode")


def tree_iter(tree: Any) -> Any:
    """Return the leaves of nested tuples, lists and dicts."""
    return _named("torch.utils._pytree.tree_iter")(tree)


def overloads(operation: Any) -> Any:
    """Return torch's packet of all overloads of an operation: `aten.mm` for `aten.mm.default`.

    The table `flop_registry` has these packets as keys. None where this torch does not tell the packet.
    """
    return getattr(operation, "_overloadpacket", None)


def storage_key(storage: "torch.UntypedStorage") -> int:
    """Return a number that identifies a storage while it lives, also a fake one, which has no address.

    `ClusterError` where this torch gives none.
    """
    try:
        return int(storage._cdata)
    except AttributeError:
        raise _lacking("torch.UntypedStorage._cdata") from None


def _named(name: str) -> Any:
    """Return the object at a dotted name of torch; `ClusterError` where there is none."""
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        raise _lacking(name) from None


def _lacking(name: str) -> ClusterError:
    """Return the error for a name that this torch lacks."""
    import torch

    return ClusterError(
        f"torch {torch.__version__} has no {name}: memory and work cannot be counted before a trial runs"
    )
