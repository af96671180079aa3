"""Contrastive losses: functions of a score matrix and two masks, composed with any similarity by `build`.

    loss = build("sincere", "neg_arc_length", temperature=0.1)
    loss(embeddings, labels).backward()

Adding a loss is a function and its line in `LOSSES`: its keyword-only parameters are what can be set of it. Losses of
two views (`views`) are functions of two matrices of embeddings instead, those of classes (`proxies`) of embeddings,
labels and learned vectors. Losses with `weights` are trained with the network. Never rank trials by the value of a loss
across losses, temperatures, epsilons or batch sizes: rank them by a validation metric.
"""

from dataclasses import replace
from importlib import import_module
from typing import Any

from contrasweep.components import Component, Table, parameters_of
from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.trainables.losses import cross_entropy, external, margin, proxies, sigmoid, tiled
from contrasweep.trainables.losses.batch import masks
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.external import ExternalEntry, ExternalLoss
from contrasweep.trainables.losses.loss import SIGNED, Loss, loss_settings
from contrasweep.trainables.losses.proxies import ComposedProxyLoss, ProxyLoss
from contrasweep.trainables.losses.views import ComposedViewsLoss, ViewsLoss, barlow_twins, vicreg
from contrasweep.trainables.pytorch import Tensor, torch
from contrasweep.trainables.similarities import check_similarity, find_similarity

__all__ = [
    "LOSSES",
    "AnyLoss",
    "ComposedLoss",
    "ComposedProxyLoss",
    "ComposedViewsLoss",
    "ExternalLoss",
    "Loss",
    "ProxyLoss",
    "ViewsLoss",
    "build",
    "check_loss",
    "compose",
    "kind_of",
]
AnyLoss = ComposedLoss | ComposedViewsLoss | ComposedProxyLoss | ExternalLoss


def _takes(entry: Any, config: Config) -> type:
    """Return the class whose fields are the settings that the loss `entry` takes.

    `config` is what a study gives for the loss. Its `similarity` (cosine without one) decides which defaults the fields
    have.
    """
    if not isinstance(entry, Loss):
        return parameters_of(entry)
    similarity = config.get("similarity", "cosine")
    return loss_settings(entry, similarity if isinstance(similarity, str) else "cosine")


LOSSES: Table[Loss | ViewsLoss | ProxyLoss] = Table(
    "loss",
    {
        loss.name: loss
        for loss in (
            Loss(
                "infonce",
                cross_entropy.infonce,
                positives="instances",
                tile_function=tiled.sincere_,
            ),
            Loss(
                "supcon",
                cross_entropy.supcon,
                tile_function=tiled.supcon_,
                tile_is_denominator=True,
            ),
            Loss("sincere", cross_entropy.sincere, tile_function=tiled.sincere_),
            Loss(
                "ocl",
                cross_entropy.ocl,
                similarities=SIGNED,
                tile_function=tiled.ocl_,
                tile_is_denominator=True,
            ),
            Loss(
                "siglip",
                sigmoid.siglip,
                positives="instances",
                learned=("temperature", "bias"),
                logs=("temperature",),
            ),
            Loss(
                "margin_contrastive",
                margin.margin_contrastive,
                reduction="mean",
                defaults={
                    "neg_arc_length": {"m_pos": 1.0, "m_neg": 0.5},
                    "neg_euclidean": {"m_pos": 0.0, "m_neg": -1.0},
                    "neg_euclidean_unit": {"m_pos": 0.0, "m_neg": -1.0},
                    "neg_sq_euclidean_unit": {"m_pos": 0.0, "m_neg": -1.0},
                },
            ),
            Loss("triplet", margin.triplet, reduction="mean"),
            Loss(
                "lifted_structured",
                margin.lifted_structured,
                reduction="mean",
                all_pairs=True,
            ),
            Loss("batch_hard", margin.batch_hard, reduction="mean"),
            ViewsLoss("barlow_twins", barlow_twins),
            ViewsLoss("vicreg", vicreg),
            ProxyLoss("proxy_anchor", proxies.proxy_anchor),
            ProxyLoss("arcface", proxies.arcface),
            ProxyLoss("cosface", proxies.cosface),
        )
    },
    plural="losses",
    takes=_takes,
    find=external.find,
)
"""A loss is its function and its line here; one that is not here is named by its dotted path (see `external`)."""


def build(
    loss: str,
    similarity: str | None = None,
    *,
    reduction: str | None = None,
    dim: int = 0,
    classes: int = 0,
    **parameters: Any,
) -> AnyLoss:
    """Build a loss with a similarity.

    Args:
        loss: A name of `LOSSES`, or the dotted path of a loss elsewhere (see `external`).
        similarity: A name of `SIMILARITIES` or a dotted path; None for cosine where the loss compares scores.
        reduction: A name of `REDUCTIONS`; None for the loss's own.
        dim: The dimension of the embeddings, for a loss with weights; its `weights` are made where it is given.
        classes: The number of classes, for a loss with weights.
        parameters: The loss's own parameters; those not given have its defaults for this similarity.

    Returns:
        A function (embeddings [n d], labels [n], instance_ids [n] = None) -> scalar.

    Raises:
        SpecError: A name is unknown, the loss makes no sense on this similarity, or a class of another package needs
            `dim`. It is a `ValueError` too.

    Example:
        >>> import torch
        >>> from contrasweep.trainables.losses import build
        >>> loss = build("sincere", "neg_arc_length", temperature=0.1)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([])
    """
    compared = {"similarity": similarity, "reduction": reduction}
    chosen = {
        "name": loss,
        **{key: value for key, value in compared.items() if value is not None},
        **parameters,
    }
    component = LOSSES.choose(chosen)
    if not dim and external.needs_dim(component.entry):
        raise SpecError("its weights have the dimension of the embeddings", place="dim", value=dim)
    return compose(component, dim, classes)


def compose(chosen: Component, dim: int = 0, classes: int = 0) -> AnyLoss:
    """Return the loss that a component of `LOSSES` names, as `build` does.

    `dim` and `classes` are the sizes of the loss's own weights; with `dim` 0 it has none yet and cannot be trained.
    """
    entry = chosen.entry
    # A new dict at each call, so that entries may be taken out.
    parameters = chosen.parameters
    # Losses of two views and of classes compare in their own way; all others have a similarity.
    if isinstance(entry, ViewsLoss):
        return ComposedViewsLoss(entry, parameters)
    if isinstance(entry, ProxyLoss):
        return ComposedProxyLoss(
            entry, parameters, _weights().Proxies(classes, dim) if dim else None
        )
    similarity = parameters.pop("similarity")
    if isinstance(entry, Loss):
        reduction = parameters.pop("reduction")
        loss = ComposedLoss(entry, find_similarity(similarity), reduction, parameters)
        if dim and loss.has_weights:
            initial = {name: parameters[name] for name in entry.learned}
            return replace(loss, weights=_weights().LearnedNumbers(initial, entry.logs))
        return loss
    # A class of another package cannot be built without sizes. Where they are not known yet, it gets those of the batch
    # on which `check_loss` tries it.
    return external.build(
        entry, parameters, dim or EXAMPLE_DIM, classes or len(set(EXAMPLE_LABELS))
    )


def _weights() -> Any:
    """The module whose classes derive from PyTorch's, imported where a loss is to be trained."""
    return import_module("contrasweep.trainables.losses.weights")


EXAMPLE_LABELS = (0, 0, 1, 1)
"""Labels of the batch that a loss at a dotted path is tried on."""
EXAMPLE_IDS = (0, 1, 0, 1)
"""Instances of this batch."""
EXAMPLE_DIM = 8
"""Dimension of its embeddings."""


def check_loss(chosen: Component) -> None:
    """Raise `SpecError` where a loss or similarity at a dotted path does not suit: it is called with four rows.

    It does not suit where it fails, gives another shape than it must, or has no gradient. Ours are not called.
    """
    entry = chosen.entry
    similarity = chosen.parameters.get("similarity", "")
    try:
        if ":" in similarity:
            check_similarity(similarity)
        if chosen.name not in LOSSES:
            with errors_named(
                f"{chosen.name} fails on {len(EXAMPLE_LABELS)} embeddings of 2 classes", "loss"
            ):
                _try(chosen.name, compose(chosen, EXAMPLE_DIM, 2))
    except SpecError as error:
        # The call itself failed, maybe as the function's parameters have other names: the hint tells the right ones.
        if isinstance(entry, ExternalEntry) and error.rule.startswith(f"{chosen.name} fails"):
            hint = (
                f"{error.hint}; a loss of two views has the parameters first, second; "
                f"a loss of scores has {', '.join(external.SCORE_PARAMETERS)}"
            )
            raise SpecError(error.rule, place="loss", hint=hint) from None
        if not error.place:
            error = error.at("loss")
        raise error from None


def kind_of(value: object) -> str:
    """Return the kind of a value in a word: a tensor's shape, a number, or a type."""
    if isinstance(value, Tensor):
        return f"{value.item():.4g}" if value.numel() == 1 else f"a tensor {list(value.shape)}"
    return type(value).__name__


def require_number(value: object, kind: str, name: str) -> None:
    """Raise `SpecError` where `value`, what a loss gave, is not one number with a gradient.

    The error names the loss by its `kind` ("a loss of `kind`") and its `name`.
    """
    if not isinstance(value, Tensor) or value.shape != () or not value.requires_grad:
        rule = f"a loss of {kind} gives one number with a gradient"
        raise SpecError(rule, place="loss", value=kind_of(value), hint=name)


def _try(name: str, loss: AnyLoss) -> None:
    """Raise `SpecError` where the loss of a small random batch is not one finite number with a gradient."""
    labels = torch.tensor(EXAMPLE_LABELS)
    ids = torch.tensor(EXAMPLE_IDS)
    # A generator of its own, so that the trial draws what it would without this check.
    embeddings = torch.randn(
        len(labels), EXAMPLE_DIM, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    if isinstance(loss, ComposedLoss):
        _check_values(loss, embeddings, labels)
    value = loss(embeddings, labels, ids)
    if not isinstance(value, Tensor) or value.shape != () or not torch.isfinite(value):
        raise SpecError("a loss gives one finite number", place="loss", value=kind_of(value))
    if (
        not value.requires_grad
        or torch.autograd.grad(value, embeddings, allow_unused=True)[0] is None
    ):
        raise SpecError("a loss has a gradient, so it is made of torch's operations", value=name)


def _check_values(loss: ComposedLoss, embeddings: Tensor, labels: Tensor) -> None:
    """Raise `SpecError` where a function of scores gives a tensor that has not one value for each anchor."""
    scores = loss.similarity(embeddings, embeddings)
    values = loss.definition.function(scores, *masks(labels), **loss.params)
    if isinstance(values, Tensor) and tuple(values.shape) != (len(labels),):
        raise SpecError(
            "a loss of scores gives one value for each of its rows",
            place="loss",
            value=f"{list(values.shape)} for scores {list(scores.shape)}",
            hint=loss.definition.name,
        )
