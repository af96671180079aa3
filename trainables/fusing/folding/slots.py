"""The slots of a cohort: how many members a folded network holds, and which of them train."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor, nn


class Slots:
    """K slots, and which are active. What belongs to an inactive slot does not move: neither its parameters nor the
    statistics of its normalisation layers nor its optimiser's state.

    `active` is one tensor for the whole life of the slots, so that a compiled step reads it; `everyone` says the
    same to eager code. `masked` is set where a step is compiled: it must not depend on `everyone`.
    """

    def __init__(self, count: int, device: torch.device | None = None) -> None:
        if count < 1:
            raise ValueError(f"slots: a folded network holds at least 1 member, got {count}")
        self.count = count
        self.active: Bool[Tensor, " k"] = torch.ones(count, dtype=torch.bool, device=device)
        self.everyone, self.masked = True, False
        self.generators: list[torch.Generator | None] = [None] * count
        """Where dropout of each slot draws from; None is torch's global generator."""

    def activate(self, slots: Sequence[int] | None = None) -> None:
        """Let these slots train and no others; None for all of them."""
        mask = [slots is None or k in slots for k in range(self.count)]
        self.active.copy_(torch.tensor(mask))
        self.everyone = all(mask)

    def keep_inactive(self, old: Shaped[Tensor, "k ..."], new: Shaped[Tensor, "k ..."]) -> None:
        """Replace `old` by `new` in place, in the active slots only."""
        if self.masked or not self.everyone:
            new = torch.where(like(self.active, old), new, old)
        old.copy_(new)


def like(per_member: Shaped[Tensor, " k"], values: Shaped[Tensor, "k ..."]) -> Shaped[Tensor, "k ..."]:
    """A value per member, with as many axes as `values` [k ...] have."""
    return per_member.view(-1, *[1] * (values.ndim - 1))


def stacked(value: Tensor, count: int) -> Tensor:
    """`value` once for every slot: [K, ...]; a parameter stays one."""
    copies = value.detach().unsqueeze(0).expand(count, *value.shape).contiguous()
    return nn.Parameter(copies, requires_grad=value.requires_grad) if isinstance(value, nn.Parameter) else copies


def copied(value: Tensor, plain: Tensor) -> Tensor:
    """`value` in the type and strides of `plain`, which may be on the meta device (`torch.empty_like` of such a tensor
    goes through Python for half a millisecond)."""
    return torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=value.device).copy_(value)
