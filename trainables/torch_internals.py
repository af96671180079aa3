"""Every use of what torch does not promise, for training: operations on lists of tensors.

Where this torch lacks one, it is computed tensor by tensor. That takes longer, and one line in the log says so.
"""

import functools
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)


def _on_lists(name: str) -> Callable[..., Any]:
    """Return `torch._foreach_NAME`; where torch has none, a function that does the same tensor by tensor."""
    on_lists = getattr(torch, f"_foreach_{name}", None)
    if on_lists is not None:
        return on_lists  # type: ignore[no-any-return]

    @functools.wraps(getattr(Tensor, name))
    def each(tensors: Iterable[Tensor], *others: Any, **scalars: Any) -> list[Tensor]:
        """Call the method of each tensor; a list in `others` has an argument for each tensor, a number is for all."""
        operands = [
            other if isinstance(other, list | tuple) else itertools.repeat(other)
            for other in others
        ]
        # Not strict, since `repeat` never ends.
        return [
            getattr(tensor, name)(*arguments, **scalars)
            for tensor, *arguments in zip(tensors, *operands, strict=False)
        ]

    log.warning(
        "torch %s has no torch._foreach_%s: lists of tensors are computed one by one",
        torch.__version__,
        name,
    )
    return each


add_, mul_, div_, lerp_ = (_on_lists(name) for name in ("add_", "mul_", "div_", "lerp_"))
addcmul_, addcdiv_, sqrt = (_on_lists(name) for name in ("addcmul_", "addcdiv_", "sqrt"))
