"""What a loss is: a function of scores and two masks, and what goes with it."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from contrasweep.components import one_of, parameters_class, signature_fields
from contrasweep.config import Config
from contrasweep.trainables.losses import tiled
from contrasweep.trainables.losses.reductions import REDUCTIONS, Terms
from contrasweep.trainables.pytorch import Tensor
from contrasweep.trainables.similarities import SIMILARITIES

ANY = tuple(SIMILARITIES)
SIGNED = tuple(name for name, s in SIMILARITIES.items() if s.signed)


@dataclass(frozen=True, eq=False)
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
    family: Literal["cross_entropy", "margin", "external"]
    function: Callable[..., Tensor | Terms | tuple[Terms, ...]]
    similarities: tuple[str, ...] = ANY
    positives: Literal["labels", "instances"] = "labels"
    reduction: str = "valid_anchors"
    defaults: Mapping[str, Config] = field(default_factory=dict)
    all_pairs: bool = False
    closed: tiled.Closed | None = None
    closed_is_denominator: bool = False

    @property
    def description(self) -> str:
        """The first paragraph of the function's docstring, as one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @cached_property
    def parameters(self) -> Config:
        """Parameter of the function -> default, whatever the similarity."""
        return MappingProxyType({name: default for name, (_, default) in signature_fields(self.function).items()})


@functools.cache
def loss_settings(loss: Loss, similarity: str) -> type:
    """What can be set of `loss` where this similarity is chosen: similarity, reduction and the function's own
    parameters, with the defaults that suit the similarity."""
    first = "cosine" if "cosine" in loss.similarities else loss.similarities[0]
    fields = {
        "similarity": (one_of(f"similarity of {loss.name}", f"similarities of {loss.name}", loss.similarities), first),
        "reduction": (one_of("reduction", "reductions", tuple(REDUCTIONS)), loss.reduction),
    }
    defaults = loss.defaults.get(similarity, {})
    for name, (hint, default) in signature_fields(loss.function).items():
        fields[name] = hint, defaults.get(name, default)
    return parameters_class(loss.name.rpartition(":")[2], fields)
