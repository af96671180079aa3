"""The table of losses: what each is called, which parameters and similarities it takes, and what is the default."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

from trainables.losses import cross_entropy
from trainables.losses.reductions import Terms
from trainables.similarities import SIMILARITIES

ANY = tuple(SIMILARITIES)
SIGNED = tuple(name for name, s in SIMILARITIES.items() if s.signed)


@dataclass(frozen=True)
class Loss:
    """A row of the table.

    `function(scores [n m], positives [n m], negatives [n m], **parameters)` gives one value per anchor, or `Terms`
    (a tuple of them: the reductions of each are added) where a loss averages over pairs or triplets.
    Positives are rows of the same label, or with `positives` = "instances" views of the same instance.
    `defaults` are a similarity's own defaults, over those of the function's signature.
    """

    name: str
    family: Literal["cross_entropy", "margin"]
    function: Callable[..., Tensor | Terms | tuple[Terms, ...]]
    similarities: tuple[str, ...] = ANY
    positives: Literal["labels", "instances"] = "labels"
    reduction: str = "valid_anchors"
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """Parameter -> default, whatever the similarity."""
        known = inspect.signature(self.function).parameters.values()
        return MappingProxyType({p.name: p.default for p in known if p.kind is p.KEYWORD_ONLY})

    def defaults_for(self, similarity: str) -> dict[str, Any]:
        """Parameter -> default with this similarity."""
        return {**self.parameters, **self.defaults.get(similarity, {})}


LOSSES: Mapping[str, Loss] = MappingProxyType({loss.name: loss for loss in (
    Loss("infonce", "cross_entropy", cross_entropy.infonce, positives="instances"),
    Loss("supcon", "cross_entropy", cross_entropy.supcon),
    Loss("sincere", "cross_entropy", cross_entropy.sincere),
    Loss("ocl", "cross_entropy", cross_entropy.ocl, similarities=SIGNED),
)})  # fmt: skip
