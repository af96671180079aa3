"""Rule for linear layers: batched products."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.trainables.fusing.folding.engines import Engine
from contrasweep.trainables.fusing.folding.rules import folding_rule
from contrasweep.trainables.fusing.folding.slots import Slots, stacked


class FoldedLinear(nn.Module):
    """K linear layers as one batched product."""

    def __init__(self, module: nn.Linear, slots: Slots) -> None:
        super().__init__()
        self.weight = stacked(module.weight, slots.count)
        self.bias = None if module.bias is None else stacked(module.bias, slots.count)

    def forward(self, x: Float[Tensor, "k *n i"]) -> Float[Tensor, "k *n o"]:
        """Rows [k ... i] of each member to its rows [k ... o]."""
        rows, weight = x.flatten(1, -2), self.weight.transpose(1, 2)
        y = torch.bmm(rows, weight) if self.bias is None else torch.baddbmm(self.bias[:, None], rows, weight)
        return y.view(*x.shape[:-1], -1)


@folding_rule(nn.Linear)
def fold_linear(module: nn.Linear, slots: Slots, engine: Engine) -> nn.Module:
    """K linear layers as one batched product."""
    return FoldedLinear(module, slots)
