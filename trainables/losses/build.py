"""`build`: a loss by name or dotted path, with any similarity."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from contrasweep.errors import SpecError, choose_from
from trainables.losses import checks, outside
from trainables.losses.composed import Composed
from trainables.losses.reductions import REDUCTIONS
from trainables.losses.table import LOSSES, Loss
from trainables.similarities import SIMILARITIES


def build(
    loss: str, similarity: str = "cosine", *, reduction: str | None = None, **params: Any
) -> Callable[..., Tensor]:
    """`loss` with `similarity` as a function (embeddings [n d], labels [n], instance_ids [n] = None) -> scalar.

    `loss` is a name of `LOSSES` or the dotted path of one elsewhere (see `outside`), with `params` its parameters.
    `reduction` None is the loss's own; parameters not given have the loss's defaults for this similarity. Unknown
    names, and similarities on which the loss makes no sense, are `SpecError`s (`ValueError`s) with the known ones.
    """
    entry = _find(loss)
    if not isinstance(entry, Loss):
        return outside.make(loss, entry, similarity, reduction, params)
    metric = checks.known("similarity", "similarities", SIMILARITIES, similarity)
    if similarity not in entry.similarities:
        raise SpecError(
            f"{loss} cannot use this similarity",
            place="similarity",
            value=similarity,
            hint=choose_from(f"similarities of {loss}", list(entry.similarities), similarity),
        )
    reduction = entry.reduction if reduction is None else reduction
    checks.known("reduction", "reductions", REDUCTIONS, reduction)
    for name in params:
        checks.known("parameter", f"parameters of {loss}", entry.parameters, name)
    chosen = {**entry.defaults_for(similarity), **params}
    checked = {name: checks.parameter(name, value, entry.signature[name]) for name, value in chosen.items()}
    return Composed(entry, metric, reduction, checked)


def _find(loss: str) -> Loss | Callable[..., Any]:
    if isinstance(loss, str) and ":" in loss:
        return outside.find(loss)
    entry: Loss = checks.known("loss", "losses", LOSSES, loss)
    return entry
