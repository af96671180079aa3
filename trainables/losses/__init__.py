"""Contrastive losses: functions of a score matrix and two masks, composed with any similarity by `build`.

    loss = build("sincere", "neg_arc_length", temperature=0.1)
    loss(embeddings, labels).backward()

Adding a loss is a function and its line in `LOSSES`: its keyword-only parameters are what can be set of it. Losses of
two views (`views`) are functions of two matrices of embeddings instead. Never rank trials by the value of a loss across
losses, temperatures, epsilons or batch sizes: rank them by a validation metric.
"""

from typing import Any

from contrasweep.components import Component, Table
from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.trainables.losses import cross_entropy, external, margin, tiled
from contrasweep.trainables.losses.batch import masks
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.external import External, ExternalLoss
from contrasweep.trainables.losses.loss import SIGNED, Loss, loss_settings
from contrasweep.trainables.losses.views import ComposedViewsLoss, ViewsLoss, barlow_twins, vicreg
from contrasweep.trainables.pytorch import Tensor, torch
from contrasweep.trainables.similarities import SIMILARITIES

__all__ = [
    "LOSSES",
    "AnyLoss",
    "ComposedLoss",
    "ComposedViewsLoss",
    "ExternalLoss",
    "Loss",
    "ViewsLoss",
    "build",
    "check_loss",
    "compose",
]
AnyLoss = ComposedLoss | ComposedViewsLoss | ExternalLoss


def _takes(entry: Any, given: Config) -> type:
    similarity = given.get("similarity", "cosine")
    if isinstance(entry, ViewsLoss):
        return entry.settings
    if isinstance(entry, Loss):
        return loss_settings(entry, similarity if isinstance(similarity, str) else "cosine")
    return external.settings(entry)


LOSSES: Table[Loss | ViewsLoss] = Table(
    "loss",
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
            ViewsLoss("barlow_twins", barlow_twins),
            ViewsLoss("vicreg", vicreg),
        )
    },
    plural="losses",
    takes=_takes,
    find=external.find,
)
"""A loss is its function and its line here; one that is not here is named by its dotted path (see `external`)."""


def build(loss: str, similarity: str | None = None, *, reduction: str | None = None, **parameters: Any) -> AnyLoss:
    """Build a loss with a similarity.

    Args:
        loss: A name of `LOSSES`, or the dotted path of a loss elsewhere (see `external`).
        similarity: A name of `SIMILARITIES`; None for cosine where the loss compares scores.
        reduction: A name of `REDUCTIONS`; None for the loss's own.
        parameters: The loss's own parameters; those not given have its defaults for this similarity.

    Returns:
        A function (embeddings [n d], labels [n], instance_ids [n] = None) -> scalar.

    Raises:
        SpecError: A name is unknown, or the loss makes no sense on this similarity; a `ValueError` too.

    Example:
        >>> import torch
        >>> from contrasweep.trainables.losses import build
        >>> loss = build("sincere", "neg_arc_length", temperature=0.1)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([])
    """
    compared = {"similarity": similarity, "reduction": reduction}
    chosen = {"name": loss, **{key: value for key, value in compared.items() if value is not None}, **parameters}
    return compose(LOSSES.choose(chosen))


def compose(chosen: Component) -> AnyLoss:
    """Return the loss that a component of `LOSSES` means, as `build` gives it."""
    parameters = chosen.parameters
    if isinstance(chosen.entry, ViewsLoss):
        return ComposedViewsLoss(chosen.entry, parameters)
    similarity = parameters.pop("similarity")
    if isinstance(chosen.entry, Loss):
        reduction = parameters.pop("reduction")
        return ComposedLoss(chosen.entry, SIMILARITIES[similarity], reduction, parameters)
    return external.build(chosen.entry, similarity, parameters)


LABELS = (0, 0, 1, 1)


def check_loss(chosen: Component) -> None:
    """`SpecError` where a loss at a dotted path fails on a small batch, gives another shape than it must, or has no
    gradient. Our own are known to."""
    ours = isinstance(chosen.entry, Loss) and chosen.entry.family != "external"
    if ours or not isinstance(chosen.entry, Loss | External):
        return
    labels = torch.tensor(LABELS)
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(len(labels), 8, generator=generator).requires_grad_()
    try:
        loss = compose(chosen)
        with errors_named(f"{chosen.name} fails on {len(labels)} embeddings of 2 classes", "loss"):
            if isinstance(loss, ComposedLoss):
                _check_values(loss, embeddings, labels)
            value = loss(embeddings, labels)
        if not value.requires_grad:
            raise SpecError("a loss has a gradient, so it is of torch's operations", value=chosen.name)
    except SpecError as error:
        raise (error if error.place else error.at("loss")) from None


def _check_values(loss: ComposedLoss, embeddings: Tensor, labels: Tensor) -> None:
    """A function of scores gives a value an anchor, or terms, which say themselves what they are of."""
    scores = loss.similarity(embeddings, embeddings)
    values = loss.loss.function(scores, *masks(labels), **loss.params)
    if isinstance(values, Tensor) and tuple(values.shape) != (len(labels),):
        raise SpecError(
            "a loss of scores gives one value for each of its rows",
            place="loss",
            value=f"{list(values.shape)} for scores {list(scores.shape)}",
            hint=loss.loss.name,
        )
