"""Losses as functions of scores and two masks, and the reductions of their values to one number.

A loss has terms: anchors in the cross-entropy family and in batch_hard, ordered pairs or triplets elsewhere. `Terms`
holds their sum, number and number above zero per anchor, which is all that a reduction needs.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from contrasweep.components import Field, one_of, parameters_class, signature_fields
from contrasweep.config import Config
from contrasweep.trainables.losses import tiled
from contrasweep.trainables.pytorch import Float, Tensor
from contrasweep.trainables.similarities import SIMILARITIES, own_similarity

PerAnchor = Float[Tensor, " n"]
Scalar = Float[Tensor, ""]
ANY = tuple(SIMILARITIES)
"""The names of all our similarities."""
SIGNED = tuple(name for name, similarity in SIMILARITIES.items() if similarity.signed)
"""The names of those where 0 means unrelated."""


class Terms(NamedTuple):
    """Terms of a loss for each anchor: their sum, their number, and how many are above zero; [n] each."""

    total: PerAnchor
    number: PerAnchor
    above_zero: PerAnchor


# Reductions: (terms, `pairs` [n]: how many positives each anchor has) -> one number. `clamp(min=1)` makes them 0, and
# not 0 / 0, where there is no term.
def mean_of_valid_anchors(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Return the mean over anchors of the mean of an anchor's terms; anchors without a term are left out.

    `pairs`, the number of positives of each anchor, gives the result's type alone.
    """
    return _weighted_mean(_anchor_means(terms), (terms.number > 0).to(pairs.dtype))


def mean_of_all_anchors(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Return the mean over anchors of the mean of an anchor's terms; anchors without a term count as 0.

    `pairs`, the number of positives of each anchor, is not used.
    """
    return _anchor_means(terms).sum() / max(len(terms.total), 1)


def mean_of_positive_pairs(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Return the mean over anchors of the mean of an anchor's terms, weighted by `pairs`.

    `pairs` is the number of positives of each anchor. Anchors without a term are left out.
    """
    return _weighted_mean(_anchor_means(terms), pairs * (terms.number > 0))


def mean(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Return the mean over the terms of all anchors, each with the same weight; 0 without terms.

    `pairs`, the number of positives of each anchor, is not used.
    """
    return terms.total.sum() / terms.number.sum().clamp(min=1)


def mean_nonzero(terms: Terms, pairs: PerAnchor) -> Scalar:
    """Return the mean over the terms above zero, as pytorch-metric-learning does by default; 0 without such terms.

    `pairs`, the number of positives of each anchor, is not used.
    """
    return terms.total.sum() / terms.above_zero.sum().clamp(min=1)


def _anchor_means(terms: Terms) -> PerAnchor:
    """Return the mean of each anchor's terms; 0 where it has none."""
    return terms.total / terms.number.clamp(min=1)


def _weighted_mean(values: PerAnchor, weights: PerAnchor) -> Scalar:
    """Return the mean of `values` with whole numbers as `weights`; 0 where all weights are 0."""
    return (values * weights).sum() / weights.sum().clamp(min=1)


REDUCTIONS: Mapping[str, Callable[[Terms, PerAnchor], Scalar]] = MappingProxyType(
    {
        "valid_anchors": mean_of_valid_anchors,
        "all_anchors": mean_of_all_anchors,
        "positive_pairs": mean_of_positive_pairs,
        "mean": mean,
        "mean_nonzero": mean_nonzero,
    }
)
"""name -> (terms, positives per anchor) -> scalar; without any term all give 0 with zero gradient."""


class TableRow:
    """A base class of the rows of the table `LOSSES`: it describes the loss `function` and its parameters."""

    function: Callable[..., Any]
    inputs: ClassVar[int | None] = None
    """How many tensors the function takes before its parameters; None: the parameters are keyword-only."""

    @property
    def description(self) -> str:
        """The first paragraph of the function's docstring, as one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @property
    def fields(self) -> dict[str, Field]:
        """Name of each parameter of the function -> its type and its default in the signature."""
        return signature_fields(self.function, after=self.inputs)


@dataclass(frozen=True, eq=False)
class Loss(TableRow):
    """A row of the table `LOSSES`: a loss that is a function of scores and two masks.

    - `function(scores [n m], positives [n m], negatives [n m], **parameters)` gives a value for each anchor, or `Terms`
      where the loss averages over pairs or triplets. In a tuple of `Terms` each is reduced by itself; then they are
      added.
    - `positives`: "labels" are rows with the same label, "instances" views of the same instance.
    - `reduction`: the default reduction, a name of `REDUCTIONS`.
    - `defaults`: similarity -> parameter -> default, where it differs from that of the function's signature.
    - `all_pairs`: an anchor's value needs the scores of other rows too.
    - `tile_function`: takes a tile of logits: inner products of some anchors with all rows, divided by the temperature.
      It returns the anchors' values, and leaves the gradient of each value in place of its logits. None: the loss is
      never computed in tiles.
    - `tile_is_denominator`: whether values and gradient of `tile_function` are those of the log of the denominator.
    - `learned`: the parameters that are trained with the network where the parameter `learned` is true.
    - `logs`: the learned parameters that are learned as logarithms.
    """

    name: str
    function: Callable[..., Tensor | Terms | tuple[Terms, ...]]
    similarities: tuple[str, ...] = ANY
    positives: Literal["labels", "instances"] = "labels"
    reduction: str = "valid_anchors"
    defaults: Mapping[str, Config] = field(default_factory=dict)
    all_pairs: bool = False
    tile_function: tiled.TileFunction | None = None
    tile_is_denominator: bool = False
    learned: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class FunctionLoss(TableRow):
    """A base class of rows of `LOSSES` without a similarity, such as losses of two views.

    `function(*tensors, **parameters)` gives the loss of a batch; which tensors it takes, each kind of row says.
    """

    name: str
    function: Callable[..., Tensor]
    similarities: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def settings(self) -> type:
        """Return a class with a checked field for each parameter of the function."""
        return parameters_class(self.name.rpartition(":")[2], self.fields)


@functools.cache
def loss_settings(loss: Loss, similarity: str) -> type:
    """Return a `@checked` class whose fields are the settings that `loss` takes if this similarity is chosen.

    They are `similarity`, `reduction` and the parameters of the loss's function. Their defaults are those that suit the
    similarity.
    """
    parameters = loss.fields
    # A loss whose formula reads the sign of scores takes only similarities that have one.
    needs_signed = loss.similarities is SIGNED
    # A similarity is a name that the loss knows, or a dotted path.
    known_similarity = one_of(
        f"similarity of {loss.name}",
        f"similarities of {loss.name}",
        loss.similarities,
        partial(own_similarity, signed=needs_signed),
    )
    default_similarity = "cosine" if "cosine" in loss.similarities else loss.similarities[0]
    # Name of each field -> its type and its default.
    fields = {
        "similarity": (known_similarity, default_similarity),
        "reduction": (one_of("reduction", "reductions", tuple(REDUCTIONS)), loss.reduction),
    }
    defaults = loss.defaults.get(similarity, {})
    for name, (value_type, default) in parameters.items():
        fields[name] = value_type, defaults.get(name, default)
    return parameters_class(loss.name.rpartition(":")[2], fields)
