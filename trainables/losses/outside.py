"""Losses of other packages, by dotted path `package.module:name`: pytorch-metric-learning's, or a user's own.

Three kinds work, told apart by what they take:
- a function (scores, positives, negatives, **parameters), as ours are: with any similarity and reduction;
- a class whose instances take (embeddings, labels), built with the parameters;
- a function (embeddings, labels, **parameters).
The latter two compare embeddings in their own way: their similarity is "own" (or left at "cosine", the default).
Pytorch-metric-learning's are given the named similarity as their `distance`; "own" leaves them theirs.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrasweep.errors import SpecError, choose_from
from trainables.losses import checks, distributed
from trainables.losses.table import Loss

SCORE_LEVEL = ("scores", "positives", "negatives")
METRIC_LEARNING = "pytorch_metric_learning"
DISTANCES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cosine": ("CosineSimilarity", {}),
    "dot": ("DotProductSimilarity", {"normalize_embeddings": False}),
    "neg_euclidean": ("LpDistance", {"normalize_embeddings": False}),
    "neg_euclidean_unit": ("LpDistance", {}),
    "neg_sq_euclidean_unit": ("LpDistance", {"power": 2}),
}
"""Our similarities as pytorch-metric-learning's distances; it has no arc length."""


def find(path: str) -> Loss | Callable[..., Any]:
    """What stands at the path: a `Loss` if it works on scores, otherwise the class or function."""
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        extra = "; pip install 'contrasweep[metric-learning]'" if module_name.startswith(METRIC_LEARNING) else ""
        raise SpecError(
            "the loss's module cannot be imported", place="loss", value=path, hint=f"{error}{extra}"
        ) from None
    found = getattr(module, name, None)
    if not callable(found):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise SpecError("the module has no such loss", place="loss", value=path, hint=choose_from("names", names, name))
    if not inspect.isclass(found) and tuple(inspect.signature(found).parameters)[:3] == SCORE_LEVEL:
        return Loss(path, "outside", found)
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Outside:
    """An outside loss of embeddings and labels, called like ours: checked, in float32 or float64, and in a process
    group on the joined batch."""

    name: str
    function: Callable[[Tensor, Tensor], Any]

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], instance_ids: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, ""]:
        checks.batch(embeddings, labels, instance_ids)
        with torch.autocast(embeddings.device.type, enabled=False):
            z = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            if distributed.processes() > 1:
                z, labels = distributed.gather_with_gradient(z), distributed.gather(labels)
            value = self.function(z, labels)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise SpecError(f"{self.name} must give one number", place="loss", value=value)
        return value.reshape(())


def make(
    path: str, found: Callable[..., Any], similarity: str, reduction: str | None, params: Mapping[str, Any]
) -> Outside:
    """An embedding-level loss with its parameters."""
    if reduction is not None:
        raise SpecError(
            f"{path} reduces by itself: leave reduction out, or give it the parameters it knows",
            place="reduction",
            value=reduction,
        )
    params = dict(params)
    if path.startswith(METRIC_LEARNING):
        if similarity != "own" and "distance" not in params:
            params["distance"] = _distance(similarity)
    elif similarity not in ("own", "cosine"):
        raise SpecError(
            f"{path} compares embeddings in its own way",
            place="similarity",
            value=similarity,
            hint="leave it out, or say 'own'",
        )
    if not inspect.isclass(found):
        _check_arguments(path, found, params, after=2)
        return Outside(path, partial(found, **params))
    _check_arguments(path, found, params, after=0)
    made: Any
    try:
        made = found(**params)
    except (TypeError, ValueError, AssertionError) as error:
        raise SpecError(f"{path} cannot be built: {error}", place="loss", value=params) from None
    if isinstance(made, torch.nn.Module) and any(True for _ in made.parameters()):
        raise SpecError(
            f"{path} has weights of its own, which no trainable here would train",
            place="loss",
            hint="use a loss of embeddings and labels alone",
        )
    return Outside(path, made)


def _check_arguments(path: str, found: Callable[..., Any], params: Mapping[str, Any], after: int) -> None:
    accepted = list(inspect.signature(found).parameters.values())[after:]
    if any(p.kind is p.VAR_KEYWORD for p in accepted):
        return
    for name in params:
        checks.known("parameter", f"parameters of {path}", {p.name: p for p in accepted}, name)


def _distance(similarity: str) -> Any:
    checks.known("similarity", f"similarities of {METRIC_LEARNING}", {**DISTANCES, "own": ()}, similarity)
    name, options = DISTANCES[similarity]
    return getattr(importlib.import_module(f"{METRIC_LEARNING}.distances"), name)(**options)
