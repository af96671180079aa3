"""Which module can be folded, and how: one rule a class, and the way to add one.

A rule takes a plain module and gives one that computes K of them at once: from activations [K n ...] to [K n ...],
whose axes after the first are those that the plain module sees. Its parameters and buffers have the plain names and
a leading axis of K members. How activations lie in memory is the rules' own affair: strides carry it.

    @folding_rule(Scale)
    def fold_scale(module, slots, engine):
        return FoldedScale(module, slots)
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from contrasweep.trainables.fusing.folding.engines import Engine
from contrasweep.trainables.fusing.folding.slots import Slots

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
    """The rule of a module's class, or of the parent whose `forward` it has unchanged; None where there is none."""
    own = type(module)
    for parent in own.__mro__:
        if parent in RULES:
            return RULES[parent] if own.forward is parent.forward else None
    return None
