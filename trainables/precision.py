"""Parts of a forward pass that stay in full precision, written so that torch.fx can note them down.

`folding` traces a network's forward code, in which a tensor's type and device are not known yet.
"""

from typing import Any

import torch
from torch import Tensor, fx

from contrasweep.trainables.pytorch import Float


def widened(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return `x` in float32; a float64 tensor stays float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def leave_autocast(x: Tensor) -> Any:
    """Switch autocast off for the device of `x`; what `restore_autocast` wants."""
    mode = torch.autocast(x.device.type, enabled=False)
    mode.__enter__()  # type: ignore[no-untyped-call]
    return mode


def restore_autocast(mode: Any) -> None:
    """Restore the previous state of autocast."""
    mode.__exit__(None, None, None)


class without_autocast:
    """Return a context without autocast: `x`, a tensor or a node of torch.fx, is used in its own type."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __enter__(self) -> None:
        self.mode = leave_autocast(self.x)

    def __exit__(self, *_: object) -> None:
        restore_autocast(self.mode)


fx.wrap("leave_autocast")
fx.wrap("restore_autocast")
