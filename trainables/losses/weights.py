"""Weights of losses: what a loss learns beside the network, trained by the same optimizer with a rate of its own."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from contrasweep.trainables.pytorch import Float


class LearnedNumbers(nn.Module):
    """Numbers of a loss, such as SigLIP's temperature and bias, each learned as its distance x from where it starts.

    A number named in `logs`, which must be above 0, is `initial` exp(x); any other is `initial` + x. x starts at 0, so
    that weight decay is towards `initial`.
    """

    def __init__(self, initial: Mapping[str, float], logs: tuple[str, ...]) -> None:
        super().__init__()
        self.initial = dict(initial)
        self.logs = logs
        self.offsets = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in initial})

    def values(self) -> dict[str, Float[Tensor, ""]]:
        """Return name -> number as it is now, with its gradient."""
        values = {}
        for name, start in self.initial.items():
            offset = self.offsets[name]
            values[name] = start * offset.exp() if name in self.logs else start + offset
        return values

    def metrics(self) -> dict[str, float]:
        """Return `loss_<name>` -> number, for a report."""
        return {f"loss_{name}": float(value.detach()) for name, value in self.values().items()}


class Proxies(nn.Module):
    """One learned vector for each class, with which embeddings are compared.

    It is initialised as in the code of Proxy Anchor.
    """

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(nn.init.kaiming_normal_(torch.empty(classes, dim), mode="fan_out"))
