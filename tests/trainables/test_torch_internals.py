"""What torch does not promise: each name may be gone, and training goes on without what rests on it."""

import importlib
import pkgutil

import pytest
import torch
from refusals import refused

from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.memory import count
from contrasweep.trainables import torch_internals

COUNTING = (
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch.utils._python_dispatch.TorchDispatchMode",
)


def without(monkeypatch, gone):
    """No module of ours finds this name; torch itself does."""
    plain = pkgutil.resolve_name

    def resolve_name(name):
        if name == gone:
            raise AttributeError(name)
        return plain(name)

    monkeypatch.setattr(pkgutil, "resolve_name", resolve_name)


NAMES = ("add_", "mul_", "div_", "lerp_", "addcmul_", "addcdiv_", "sqrt")


def test_without_operations_on_lists_each_tensor_has_the_same_numbers(monkeypatch, caplog):
    def moved():
        torch.manual_seed(3)
        a, b, c = ([torch.rand(n) + 1 for n in (2, 5)] for _ in range(3))
        torch_internals.add_(a, b, alpha=-0.3)
        torch_internals.mul_(a, 0.7)
        torch_internals.mul_(a, torch.tensor(0.9))
        torch_internals.add_(a, 1e-8)
        torch_internals.div_(a, 1.5)
        torch_internals.lerp_(a, c, 0.25)
        torch_internals.addcmul_(b, c, c, value=0.5)
        torch_internals.addcdiv_(a, b, torch_internals.sqrt(c), value=-0.1)
        return [*a, *b, *c]

    whole = moved()
    for name in NAMES:
        monkeypatch.delattr(torch, f"_foreach_{name}")
    try:
        importlib.reload(torch_internals)
        assert all(torch.equal(x, y) for x, y in zip(moved(), whole, strict=True))
        assert len(caplog.messages) == len(NAMES)
        assert (
            "has no torch._foreach_add_: lists of tensors are computed one by one"
            in caplog.messages[0]
        )
    finally:
        monkeypatch.undo()
        importlib.reload(torch_internals)


@pytest.mark.parametrize("gone", COUNTING)
def test_memory_is_not_counted_where_a_name_is_gone_and_one_line_says_so(gone, monkeypatch):
    without(monkeypatch, gone)
    with refused(
        ClusterError, match=rf"^torch \S+ has no {gone}: memory and work cannot be counted"
    ):
        count(lambda: torch.nn.Linear(3, 2), (4, 3))
