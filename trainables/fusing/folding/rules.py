"""Parts that all folding rules share: engines, the slots of a cohort, reasons against folding, adding a rule.

A rule takes a plain module and gives one that computes K of them at once: from activations [K n ...] to [K n ...],
whose axes after the first are those that the plain module sees. Its parameters and buffers have the plain names and
a leading axis of K members. How activations lie in memory is the rules' own affair: strides carry it.

    @folding_rule(Scale)
    def fold_scale(module, slots, engine):
        return FoldedScale(module, slots)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from contrasweep.errors import SpecError
from contrasweep.trainables.pytorch import Bool, Float, Shaped

PerMember = Float[Tensor, " k"]
"""One value a member."""


class Unfoldable(Exception):
    """A network, a loss or an optimizer cannot be folded; `reason` is a sentence that names what has no rule."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Engine:
    """A way to compute a folded step.

    `grouped`: one grouped convolution for all members. `products`: batched matrix products of shifted views, the
    channels innermost in memory. `compiled`: the whole step by torch's inductor.
    """

    name: str
    convolution: Literal["grouped", "products"]
    compiled: bool = False


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine("grouped", "grouped"),
            Engine("products", "products"),
            Engine("grouped-compiled", "grouped", compiled=True),
            Engine("products-compiled", "products", compiled=True),
        )
    }
)


def engine_of(name: str) -> Engine:
    """Return the engine of this name; `SpecError` with the known ones if there is none."""
    if name not in ENGINES:
        raise SpecError("there is no such engine", place="engine", value=name, hint=", ".join(ENGINES))
    return ENGINES[name]


class Slots:
    """K slots, and which are active.

    What belongs to an inactive slot does not move: neither its parameters nor the statistics of its normalisation
    layers nor its optimizer's state.

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

    def activate(self, slots: Sequence[int]) -> None:
        """Let these slots train and no others."""
        mask = [k in slots for k in range(self.count)]
        self.active.copy_(torch.tensor(mask))
        self.everyone = all(mask)

    def keep_inactive(self, old: Shaped[Tensor, "k ..."], new: Shaped[Tensor, "k ..."]) -> None:
        """Replace `old` by `new` in place, in the active slots only."""
        if self.masked or not self.everyone:
            new = torch.where(like(self.active, old), new, old)
        old.copy_(new)


def like(per_member: Shaped[Tensor, " k"], values: Shaped[Tensor, "k ..."]) -> Shaped[Tensor, "k ..."]:
    """Return a value per member, with as many axes as `values` [k ...] have."""
    return per_member.view(-1, *[1] * (values.ndim - 1))


def stacked(value: Tensor, count: int) -> Tensor:
    """Return `value` once for every slot: [K, ...]; a parameter stays one."""
    copies = value.detach().unsqueeze(0).expand(count, *value.shape).contiguous()
    return nn.Parameter(copies, requires_grad=value.requires_grad) if isinstance(value, nn.Parameter) else copies


def copied(value: Tensor, plain: Tensor) -> Tensor:
    """Return `value` in the type and strides of `plain`, which may be on the meta device.

    `torch.empty_like` of a tensor there goes through Python for half a millisecond.
    """
    return torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=value.device).copy_(value)


Rule = Callable[[Any, Slots, Engine], nn.Module]
RULES: dict[type[nn.Module], Rule] = {}
"""class of the plain module -> its rule. A subclass has its parent's rule only if it computes the same forward."""


def folding_rule(*classes: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register a function (module, slots, engine) -> folded module as the rule of these classes."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(classes, rule))
        return rule

    return register


def rule_of(module: nn.Module) -> Rule | None:
    """Return the rule of a module's class, or of the parent whose `forward` it has unchanged, else None."""
    own = type(module)
    for parent in own.__mro__:
        if parent in RULES:
            return RULES[parent] if own.forward is parent.forward else None
    return None
