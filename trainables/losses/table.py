"""The table of losses: what each is called, which parameters and similarities it takes, and what is the default."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

from trainables.losses import cross_entropy, margin, tiled
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
    `all_pairs`: an anchor's value needs the scores of other rows too.
    `closed` is the in-place form for tiles of inner products, of the whole value or of its denominator only; without
    one, autograd does the tile.
    """

    name: str
    family: Literal["cross_entropy", "margin", "outside"]
    function: Callable[..., Tensor | Terms | tuple[Terms, ...]]
    similarities: tuple[str, ...] = ANY
    positives: Literal["labels", "instances"] = "labels"
    reduction: str = "valid_anchors"
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    all_pairs: bool = False
    closed: tiled.Closed | None = None
    closed_is_denominator: bool = False

    @property
    def description(self) -> str:
        """The first paragraph of the function's docstring, as one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @cached_property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        """The function's keyword parameters."""
        known = inspect.signature(self.function).parameters.values()
        return MappingProxyType({p.name: p for p in known if p.kind is p.KEYWORD_ONLY})

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Parameter -> default, whatever the similarity."""
        return MappingProxyType({name: p.default for name, p in self.signature.items()})

    def defaults_for(self, similarity: str) -> dict[str, Any]:
        """Parameter -> default with this similarity."""
        return {**self.parameters, **self.defaults.get(similarity, {})}


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        loss.name: loss
        for loss in (
            Loss("infonce", "cross_entropy", cross_entropy.infonce, positives="instances", closed=tiled.sincere_),
            Loss("supcon", "cross_entropy", cross_entropy.supcon, closed=tiled.supcon_, closed_is_denominator=True),
            Loss("sincere", "cross_entropy", cross_entropy.sincere, closed=tiled.sincere_),
            Loss(
                "ocl",
                "cross_entropy",
                cross_entropy.ocl,
                similarities=SIGNED,
                closed=tiled.ocl_,
                closed_is_denominator=True,
            ),
            Loss(
                "margin_contrastive",
                "margin",
                margin.margin_contrastive,
                reduction="mean",
                defaults={
                    "neg_arc_length": {"m_pos": 1.0, "m_neg": 0.5},
                    "neg_euclidean": {"m_pos": 0.0, "m_neg": -1.0},
                    "neg_euclidean_unit": {"m_pos": 0.0, "m_neg": -1.0},
                    "neg_sq_euclidean_unit": {"m_pos": 0.0, "m_neg": -1.0},
                },
            ),
            Loss("triplet", "margin", margin.triplet, reduction="mean"),
            Loss("lifted_structured", "margin", margin.lifted_structured, reduction="mean", all_pairs=True),
            Loss("batch_hard", "margin", margin.batch_hard, reduction="mean"),
        )
    }
)
