"""Losses of other packages, by dotted path `package.module:name`: pytorch-metric-learning's, or a user's own.

Three kinds work, told apart by what they take:
- a function (scores, positives, negatives, **parameters), as ours are: with any similarity and reduction;
- a class whose instances take (embeddings, labels), built with the parameters;
- a function (embeddings, labels, **parameters).
The latter two compare embeddings in their own way: their similarity is "own" (or left at "cosine", the default).
Pytorch-metric-learning's are given the named similarity as their `distance`; "own" leaves them theirs.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float, Int

from contrasweep.components import one_of, parameters_class, signature_fields
from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.trainables.losses.batch import joined
from contrasweep.trainables.losses.loss import Loss
from contrasweep.trainables.pytorch import Tensor, torch

SCORE_LEVEL = ("scores", "positives", "negatives")
METRIC_LEARNING = "pytorch_metric_learning"
DISTANCES: Mapping[str, tuple[str, Config]] = {
    "cosine": ("CosineSimilarity", {}),
    "dot": ("DotProductSimilarity", {"normalize_embeddings": False}),
    "neg_euclidean": ("LpDistance", {"normalize_embeddings": False}),
    "neg_euclidean_unit": ("LpDistance", {}),
    "neg_sq_euclidean_unit": ("LpDistance", {"power": 2}),
}
"""Our similarities as pytorch-metric-learning's distances; it has no arc length."""
METRIC_LEARNING_SIMILARITIES = ("own", *DISTANCES)


@dataclass(frozen=True)
class External:
    """A class or function of embeddings and labels, with the dotted path that names it."""

    path: str
    target: Callable[..., Any]


def find(path: str) -> Any:
    """What stands at the path: a `Loss` if it works on scores, otherwise an `External`."""
    extra = "pip install 'contrasweep[metric-learning]'" if path.startswith(METRIC_LEARNING) else ""
    return _known(path, import_path(path, kind="loss", extra=extra))


@functools.cache
def _known(path: str, target: Callable[..., Any]) -> Loss | External:
    if not inspect.isclass(target) and tuple(inspect.signature(target).parameters)[:3] == SCORE_LEVEL:
        return Loss(path, "external", target)
    return External(path, target)


@functools.cache
def settings(entry: External) -> type:
    """What can be set of it: how rows are compared, and its own parameters."""
    after = 0 if inspect.isclass(entry.target) else 2
    fields = signature_fields(entry.target, after=after)
    more = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(entry.target).parameters.values())
    kinds = METRIC_LEARNING_SIMILARITIES if entry.path.startswith(METRIC_LEARNING) else ("own", "cosine")
    compared = one_of(f"similarity of {entry.path}", f"similarities of {entry.path}", kinds)
    return parameters_class(entry.path.rpartition(":")[2], {"similarity": (compared, "cosine"), **fields}, more=more)


@dataclass(frozen=True)
class ExternalLoss:
    """An external loss of embeddings and labels, called like ours: checked, in float32 or float64, and in a process
    group on the joined batch."""

    name: str
    function: Callable[[Tensor, Tensor], Any]

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], instance_ids: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, ""]:
        with torch.autocast(embeddings.device.type, enabled=False):
            z, labels = joined(embeddings, labels, instance_ids, lambda labels, _: labels)
            value = self.function(z, labels)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise SpecError(f"{self.name} must give one number", value=value)
        return value.reshape(())


def build(entry: External, similarity: str, parameters: Config) -> ExternalLoss:
    """An embedding-level loss with its parameters."""
    path, target, parameters = entry.path, entry.target, dict(parameters)
    if "reduction" in parameters and "reduction" not in signature_fields(target, after=0):
        raise SpecError(
            f"{path} reduces by itself: leave reduction out, or give it the parameters it knows",
            place="reduction",
            value=parameters["reduction"],
        )
    if path.startswith(METRIC_LEARNING) and similarity != "own" and "distance" not in parameters:
        parameters["distance"] = _distance(similarity)
    if not inspect.isclass(target):
        return ExternalLoss(path, partial(target, **parameters))
    try:
        loss: Any = target(**parameters)
    except (TypeError, ValueError, AssertionError) as error:
        raise SpecError(f"{path} cannot be built: {error}", value=parameters) from None
    if isinstance(loss, torch.nn.Module) and any(True for _ in loss.parameters()):
        raise SpecError(
            f"{path} has weights of its own, which no trainable here would train",
            hint="use a loss of embeddings and labels alone",
        )
    return ExternalLoss(path, loss)


def _distance(similarity: str) -> Any:
    name, options = DISTANCES[similarity]
    return getattr(importlib.import_module(f"{METRIC_LEARNING}.distances"), name)(**options)
