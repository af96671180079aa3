"""Losses of other packages, by dotted path `package.module:name`: pytorch-metric-learning's, or a user's own.

Three kinds work, told apart by the names of what they take:
- a function (scores, positives, negatives, **parameters), as ours are: with any similarity and reduction;
- a function (embeddings, labels, **parameters), or a class whose objects take these, built with the parameters;
- a function (first, second, **parameters) of the embeddings of two views, or a class whose objects take these.
Classes may be torch modules with weights, which are trained with the network; parameters called `dim` or
`embedding_size`, `classes` or `num_classes` are given to them. Losses of the second kind compare embeddings in their
own way, for which their defaults are meant: their similarity is "own".
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from contrasweep.components import External, one_of, parameters_class, signature_fields
from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_path, install_command
from contrasweep.trainables.losses.batch import BatchLoss, Ids, Scalar
from contrasweep.trainables.losses.loss import Loss
from contrasweep.trainables.losses.views import ComposedViewsLoss, ViewsLoss
from contrasweep.trainables.pytorch import Matrix, Tensor, torch

if TYPE_CHECKING:
    from torch import nn

SCORE_PARAMETERS = ("scores", "positives", "negatives")
"""The first parameters of a loss of scores, by their names."""
VIEW_PARAMETERS = ("first", "second")
"""Those of a loss of two views."""
DIMS = ("dim", "embedding_size")
"""Names that a class gives the dimension of embeddings."""
CLASSES = ("classes", "num_classes")
"""Names that a class gives the number of classes."""
METRIC_LEARNING = "pytorch_metric_learning"
"""A package that our extra `metric-learning` installs."""


class ExternalEntry(External):
    """A class or function of embeddings and labels, with the dotted path that names it."""

    @functools.cached_property
    def settings(self) -> type:
        """A class with a field for each parameter of the user's own loss, and its similarity.

        A target that takes `**kwargs` may be given any further parameter.
        """
        path = self.name
        # A function takes embeddings and labels first. A class gets dimension (`DIMS`) and number of classes
        # (`CLASSES`) from us. None of these is a setting.
        after = 0 if inspect.isclass(self.target) else 2
        fields = {
            name: field
            for name, field in signature_fields(self.target, after=after).items()
            if name not in (*DIMS, *CLASSES)
        }
        is_open = any(
            parameter.kind is parameter.VAR_KEYWORD
            for parameter in inspect.signature(self.target).parameters.values()
        )
        # It compares embeddings in its own way, and takes no other similarity.
        compared = one_of(f"similarity of {path}", f"similarities of {path}", ("own",))
        return parameters_class(
            path.rpartition(":")[2], {"similarity": (compared, "own"), **fields}, more=is_open
        )


def find(path: str) -> Any:
    """Return the loss at a dotted path, as a row such as those of `LOSSES`.

    It is a `Loss` if it works on scores, a `ViewsLoss` if on two views, else an `ExternalEntry`. `SpecError` where
    nothing is there.
    """
    missing_hint = install_command("metric-learning") if path.startswith(METRIC_LEARNING) else ""
    return _as_row(path, import_path(path, kind="loss", missing_hint=missing_hint))


@functools.cache
def _as_row(path: str, target: Callable[..., Any]) -> Loss | ViewsLoss | ExternalEntry:
    """Return the user's loss as a row such as those of `LOSSES`.

    The names of its first parameters tell whether it is a loss of scores or of two views; any other is one of
    embeddings and labels.
    """
    if inspect.isclass(target):
        return ExternalEntry(path, target)
    takes = tuple(inspect.signature(target).parameters)
    if takes[:3] == SCORE_PARAMETERS:
        return Loss(path, target)
    return ViewsLoss(path, target) if takes[:2] == VIEW_PARAMETERS else ExternalEntry(path, target)


@dataclass(frozen=True)
class ExternalLoss(BatchLoss):
    """A loss of another package, of embeddings and labels, called like ours."""

    name: str
    function: Callable[[Tensor, Tensor], Any]
    weights: "nn.Module | None" = None
    """The function itself where it is a module with weights or buffers."""

    def of_rows(self, z: Matrix, ids: Ids) -> Scalar:
        """Return the loss of embeddings `z` [n d] with labels `ids` [n]; `SpecError` where it is not one number."""
        value = self.function(z, ids)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise SpecError(f"{self.name} must give one number", value=value)
        return value.reshape(())


def build(
    entry: ExternalEntry, parameters: Config, dim: int, classes: int
) -> ExternalLoss | ComposedViewsLoss:
    """Build the loss of `entry` with `parameters`, for embeddings of `dim` dimensions and `classes` classes.

    A class whose objects take two views gives a `ComposedViewsLoss`. `SpecError` where the class cannot be built with
    these parameters.
    """
    path = entry.name
    target = entry.target
    parameters = dict(parameters)
    # With `**kwargs` a class or function would take our losses' setting `reduction` without using it.
    if "reduction" in parameters and "reduction" not in signature_fields(target, after=0):
        raise SpecError(
            f"{path} reduces by itself: leave reduction out, or give it the parameters it knows",
            place="reduction",
            value=parameters["reduction"],
        )
    # A function of two views is no `ExternalEntry` (see `find`): this one takes embeddings and labels.
    if not inspect.isclass(target):
        return ExternalLoss(path, partial(target, **parameters))
    # Classes take the embedding's dimensions and the number of classes under several names.
    parameter_names = _names_taken(target)
    sizes = {**dict.fromkeys(DIMS, dim), **dict.fromkeys(CLASSES, classes)}
    accepted = {name: value for name, value in sizes.items() if name in parameter_names}
    with errors_named(f"{path} cannot be built"):
        loss: Any = target(**(accepted | parameters))
        is_module = isinstance(loss, torch.nn.Module)
        # The names of the first two parameters tell a loss of two views; a module has them in `forward`.
        takes = tuple(inspect.signature(loss.forward if is_module else loss).parameters)
    weights = loss if is_module and loss.state_dict() else None
    if takes[:2] == VIEW_PARAMETERS:
        return ComposedViewsLoss(ViewsLoss(path, loss), {}, weights)
    return ExternalLoss(path, loss, weights)


def needs_dim(entry: object) -> bool:
    """Return whether an entry of `LOSSES` is a class that takes the dimension of the embeddings."""
    if not isinstance(entry, ExternalEntry) or not inspect.isclass(entry.target):
        return False
    return not _names_taken(entry.target).isdisjoint(DIMS)


def _names_taken(kind: type) -> set[str]:
    """Return the names of all parameters that the constructor of a class takes.

    Where the constructor has `**kwargs`, it is taken to pass them on, so the names of the base class's constructor are
    added; and so on, up to the first constructor without `**kwargs`.
    """
    names: set[str] = set()
    for base in inspect.getmro(kind):
        if "__init__" in vars(base):
            parameters = inspect.signature(base.__init__).parameters  # type: ignore[misc]
            names |= parameters.keys()
            if not any(
                parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
            ):
                break
    return names
