"""A network that members would not train as alone is refused, with what is in the way."""

import pytest
import torch
from torch import nn

from contrasweep.trainables.fusing.folding import Unfoldable, fold


class Noisy(nn.Module):
    """Noise of one draw for all values, or for each."""

    def __init__(self, *, each: bool) -> None:
        super().__init__()
        self.each = each

    def forward(self, x):
        """Values with noise."""
        return x + (torch.rand(x.shape) if self.each else torch.rand(1, 1))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (tied(), r"its '1\.weight' is shared by modules"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), r"weight.* computed from other parameters"),
        (hooked(), "module '0' has hooks"),
        (Noisy(each=True), "its forward calls rand, which draws random numbers"),
        (Noisy(each=False), "its forward draws random numbers"),
    ],
    ids=["tied", "parametrised", "hooked", "noise of values", "noise"],
)
def test_a_network_that_would_be_another_is_refused(model: nn.Module, why: str) -> None:
    state = torch.get_rng_state()
    with pytest.raises(Unfoldable, match=why):
        fold(model, 2)
    assert torch.equal(state, torch.get_rng_state())
