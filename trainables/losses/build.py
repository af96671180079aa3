"""`build`: a loss by name or dotted path, with any similarity."""

from typing import Any

from contrasweep.components import Component
from contrasweep.trainables.losses import external
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.external import ExternalLoss
from contrasweep.trainables.losses.loss import Loss
from contrasweep.trainables.losses.table import LOSSES
from contrasweep.trainables.losses.views import ComposedViewsLoss, ViewsLoss
from contrasweep.trainables.similarities import SIMILARITIES

AnyLoss = ComposedLoss | ComposedViewsLoss | ExternalLoss


def build(loss: str, similarity: str | None = None, *, reduction: str | None = None, **parameters: Any) -> AnyLoss:
    """`loss` with `similarity` as a function (embeddings [n d], labels [n], instance_ids [n] = None) -> scalar.

    `loss` is a name of `LOSSES` or the dotted path of one elsewhere (see `external`), with its own `parameters`.
    `similarity` None is cosine for a loss of scores, `reduction` None the loss's own; parameters not given have the
    loss's defaults for this similarity. Unknown names, and similarities on which the loss makes no sense, are
    `SpecError`s (`ValueError`s) with the known ones.
    """
    compared = {"similarity": similarity, "reduction": reduction}
    chosen = {"name": loss, **{key: value for key, value in compared.items() if value is not None}, **parameters}
    return compose(LOSSES.choose(chosen))


def compose(chosen: Component) -> AnyLoss:
    """The loss that a component of `LOSSES` means, as `build` gives it."""
    parameters = chosen.parameters
    if isinstance(chosen.entry, ViewsLoss):
        return ComposedViewsLoss(chosen.entry, parameters)
    similarity = parameters.pop("similarity")
    if isinstance(chosen.entry, Loss):
        reduction = parameters.pop("reduction")
        return ComposedLoss(chosen.entry, SIMILARITIES[similarity], reduction, parameters)
    return external.build(chosen.entry, similarity, parameters)
