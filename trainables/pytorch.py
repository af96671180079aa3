"""PyTorch, imported when it is first used: `from contrasweep.trainables.pytorch import F, Tensor, nn, torch`.

The modules of settings, and those whose signatures say what can be set (losses, encoders, optimizers), take PyTorch
from here. A plan reads them without importing PyTorch, which takes longer than all the rest of the plan. A class that
derives from one of PyTorch's, or a function that one of its decorators wraps, needs PyTorch at once. It stands in a
module that imports PyTorch itself, and is imported where it is used. `nn.Module` and `torch.device` in annotations are
quoted.

`Float[Tensor, "n d"]` in an annotation is a tensor of floats with two axes, in jaxtyping's words. Axes of one name in a
signature have one length. Only tests check it: at work the annotation says it to readers.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["F", "Tensor", "dist", "nn", "torch", "torch_internals"]
__all__ += [
    "Bool",
    "Float",
    "Float32",
    "ImageBatch",
    "Int",
    "Integers",
    "Matrix",
    "Shaped",
    "StoredImages",
    "UInt8",
]

# Only tests import jaxtyping, and before this module: they check the types and shapes of each call.
if not TYPE_CHECKING and "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Float32, Int, Shaped, UInt8
else:
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Float32
    from typing import Annotated as Int
    from typing import Annotated as Shaped
    from typing import Annotated as UInt8

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
            self._module: Any = None

        def __getattr__(self, attribute: str) -> Any:
            # kept, as a training step reads some fifty attributes, and finding the module takes 2 us
            if self._module is None:
                self._module = importlib.import_module(self._name)
            return getattr(self._module, attribute)

    class _OfTensors(type):
        """The type of the class `Tensor` below, which makes `isinstance(value, Tensor)` ask for torch's class."""

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, torch.Tensor)

    class Tensor(metaclass=_OfTensors):
        """Stands for `torch.Tensor` in annotations and in `isinstance`, without importing torch."""

    torch, nn, F, dist = map(
        _Later, ("torch", "torch.nn", "torch.nn.functional", "torch.distributed")
    )
    torch_internals = _Later("contrasweep.trainables.torch_internals")

Matrix = Float[Tensor, "n d"]
"""Rows of features."""
Integers = Int[Tensor, " n"]
"""Labels, or numbers of rows."""
ImageBatch = Float[Tensor, "n c h w"]
StoredImages = UInt8[Tensor, "n c h w"]
"""Images as datasets have them, but with channels first."""
