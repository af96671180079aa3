"""Functions of plain activations, applied to those of K members at once.

What does not ask for axes is called as it is. All else goes through `torch.vmap`, which is exact for any function
that has no state and draws no random numbers.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from contrasweep.trainables.fusing.folding.errors import Unfoldable
from contrasweep.trainables.precision import leave_autocast, widened

ELEMENTWISE: frozenset[Any] = frozenset(
    (
        *(getattr(operator, name) for name in ("add", "iadd", "sub", "isub", "mul", "imul", "truediv", "neg")),
        *(torch.add, torch.sub, torch.mul, torch.div, torch.relu, torch.sigmoid, torch.tanh),
        *(F.relu, F.relu6, F.gelu, F.silu, F.leaky_relu, F.elu, F.sigmoid, F.tanh, F.hardswish, F.hardsigmoid),
        *("add", "add_", "mul", "mul_", "sub", "div", "relu", "relu_", "float", "double", "contiguous", "clone"),
        *(widened,),
    )
)
"""Functions, and names of methods, that do the same on every entry."""
RANDOM: frozenset[Any] = frozenset(
    (
        *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, F.rrelu),
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.dropout),
        *(torch.rand_like, torch.randn_like, torch.randint_like),
        *("bernoulli_", "normal_", "uniform_", "random_", "exponential_"),
    )
)
METADATA: frozenset[Any] = frozenset(("size", "dim", "numel", "stride", "type", "is_floating_point"))
ATTRIBUTES: frozenset[str] = frozenset(("shape", "ndim", "dtype", "device", "is_cuda"))


def is_metadata(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a call asks for sizes, types or the device, which are those of one member."""
    if function is getattr:
        return arguments[1] in ATTRIBUTES
    return function in METADATA if isinstance(function, str) else function is leave_autocast


def refuse_random(function: Any) -> None:
    """`Unfoldable` for a function that draws random numbers."""
    name = function if isinstance(function, str) else getattr(function, "__name__", str(function))
    if (isinstance(function, str) or callable(function)) and (function in RANDOM or "stochastic_depth" in name):
        raise Unfoldable(f"its forward calls {name}, which draws random numbers for all members from one generator")


class Lifted(nn.Module):
    """A function, or the method of that name, of plain activations, for [K ...] ones."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.direct = _callable(function), function in ELEMENTWISE
        self.shifted = SHIFTED.get(function)

    def forward(self, folded: tuple[bool, ...], *args: Any, **kwargs: Any) -> Any:
        """`folded` says of each tensor among the arguments, in order, whether it has the members' axis."""
        if self.shifted is not None and not kwargs:
            return self.shifted(*args)
        flat, spec = pytree.tree_flatten((args, kwargs))
        places = [i for i, value in enumerate(flat) if isinstance(value, Tensor)]
        tensors = [flat[i] for i in places]
        if self.direct and len({value.ndim for value in tensors}) == 1:
            return self.function(*args, **kwargs)
        if self.function is operator.getitem and not isinstance(args[0], Tensor):
            return args[0][args[1]]

        def of_one(*values: Tensor) -> Any:
            given = list(flat)
            for place, value in zip(places, values, strict=True):
                given[place] = value
            positional, named = pytree.tree_unflatten(given, spec)
            return self.function(*positional, **named)

        axes = tuple(0 if has else None for has in folded) if len(folded) == len(tensors) else 0
        return torch.vmap(of_one, in_dims=axes, randomness="error")(*tensors)


class OfOne(nn.Module):
    """A size or type, asked of the first member's activations."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = _callable(function)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the plain module would be told."""
        return self.function(x[0], *args, **kwargs)


def _callable(function: Any) -> Callable[..., Any]:
    return _method(function) if isinstance(function, str) else function


def _method(name: str) -> Callable[..., Any]:
    def call(value: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(value, name)(*args, **kwargs)

    return call


def _flatten(x: Tensor, first: int = 0, last: int = -1) -> Tensor:
    return x.flatten(*(axis if axis < 0 else axis + 1 for axis in (first, last)))


def _cat(values: Sequence[Tensor], axis: int = 0) -> Tensor:
    return torch.cat(list(values), axis if axis < 0 else axis + 1)


SHIFTED: dict[Any, Callable[..., Any]] = {torch.flatten: _flatten, "flatten": _flatten, torch.cat: _cat}
"""Functions with axes that are frequent enough to be shifted by hand."""
