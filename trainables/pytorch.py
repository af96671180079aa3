"""PyTorch, imported when it is first used: `from contrasweep.trainables.pytorch import F, Tensor, nn, torch`.

The modules of settings, and those whose signatures say what can be set (losses, encoders, optimizers), take PyTorch
from here. A plan reads them without importing PyTorch, which takes longer than all the rest of the plan. A class that
derives from one of PyTorch's, or a function that one of its decorators wraps, needs it at once: it stands in a module
that imports PyTorch itself, and is imported where it is used. `nn.Module` and `torch.device` in annotations are quoted.
"""

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["F", "Tensor", "dist", "nn", "torch", "torch_internals"]

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import Tensor, nn

    from contrasweep.trainables import torch_internals
else:

    class _Later:
        """A module that is imported when one of its attributes is read."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(importlib.import_module(self._name), attribute)

    class _OfTensors(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, torch.Tensor)

    class Tensor(metaclass=_OfTensors):
        """Stands for `torch.Tensor` in annotations and in `isinstance`, without importing torch."""

    torch, nn, F, dist = map(_Later, ("torch", "torch.nn", "torch.nn.functional", "torch.distributed"))
    torch_internals = _Later("contrasweep.trainables.torch_internals")
