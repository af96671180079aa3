"""Losses of two views: functions of the embeddings of the first and of the second view of each image.

They compare dimensions rather than rows with rows, so they know no similarity and no negatives, and need no labels.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from contrasweep.config import Config
from contrasweep.trainables.fields import NotNegative
from contrasweep.trainables.losses.batch import BatchLoss, Ids, Scalar, require_instance_ids
from contrasweep.trainables.losses.loss import FunctionLoss
from contrasweep.trainables.pytorch import Bool, Float, Int, Matrix, Tensor, torch

if TYPE_CHECKING:
    from torch import nn

View = Float[Tensor, "b d"]


def barlow_twins(
    first: View, second: View, *, redundancy: NotNegative = 0.005, epsilon: NotNegative = 1e-5
) -> Scalar:
    """Barlow Twins: sum_i (1 - C_ii)^2 + redundancy * sum_{i != j} C_ij^2 (Zbontar et al. 2021, equations 1, 2).

    C is the cross-correlation of the dimensions of the two views over the batch.

    `epsilon` is added to each dimension's variance, as the authors' batch normalisation does; the paper has none.
    """
    # The cross-correlation [d d]: 1 is wanted on its diagonal, 0 beside it.
    c = _standardised(first, epsilon).T @ _standardised(second, epsilon) / len(first)
    diagonal = c.diagonal()
    off_diagonal = (c - torch.diag(diagonal)).square().sum()
    return (1 - diagonal).square().sum() + redundancy * off_diagonal


def vicreg(
    first: View,
    second: View,
    *,
    invariance: NotNegative = 25.0,
    variance: NotNegative = 25.0,
    covariance: NotNegative = 1.0,
    target: NotNegative = 1.0,
    epsilon: NotNegative = 1e-4,
    form: Literal["code", "paper"] = "code",
) -> Scalar:
    """VICReg: invariance * s(Z, Z') + variance * [v(Z) + v(Z')] + covariance * [c(Z) + c(Z')] (Bardes et al. 2022).

    Equations 1 to 6 of the views Z = `first` and Z' = `second`: s is their squared distance, v a hinge that keeps each
    dimension's standard deviation at `target`, c the squared covariances between dimensions.

    `form` "code" is what the authors ran; the weights 25, 25, 1 belong to it. There s is divided by the number of
    dimensions, and v(Z) + v(Z') by 2. "paper" is the equations as printed.
    """
    # s is the distance of the views; v says how far standard deviations are below the target.
    distance = (first - second).square().sum(1).mean()
    hinges = _hinge(first, target, epsilon) + _hinge(second, target, epsilon)
    if form == "code":
        distance = distance / first.shape[1]
        hinges = hinges / 2
    return (
        invariance * distance
        + variance * hinges
        + covariance * (_off_diagonal(first) + _off_diagonal(second))
    )


def _standardised(view: View, epsilon: float) -> View:
    """Return the view with mean 0 and variance 1 of each dimension over the batch; `epsilon` is added to variances."""
    centred = view - view.mean(0)
    return centred / (centred.square().mean(0) + epsilon).sqrt()


def _hinge(view: View, target: float, epsilon: float) -> Scalar:
    """Return v(Z): the mean over dimensions of how far the standard deviation stays below `target`."""
    deviation = (_covariance(view).diagonal() + epsilon).sqrt()
    return (target - deviation).clamp(min=0).mean()


def _off_diagonal(view: View) -> Scalar:
    """Return c(Z): the sum of the squared covariances of different dimensions, over the number of dimensions."""
    squares = _covariance(view).square()
    return (squares.sum() - squares.diagonal().sum()) / view.shape[1]


def _covariance(view: View) -> Float[Tensor, "d d"]:
    """Return the covariances of the dimensions over the batch, divided by the rows less one."""
    centred = view - view.mean(0)
    return centred.T @ centred / max(1, len(view) - 1)


class ViewsLoss(FunctionLoss):
    """A row of `LOSSES`: `function(first [b d], second [b d], **parameters)` gives the loss of the batch."""

    inputs = 2


@dataclass(frozen=True)
class ComposedViewsLoss(BatchLoss):
    """A loss of two views with the arguments of all losses: embeddings [n d], unused labels, instance ids [n].

    The rows of one instance are taken in pairs in their order: a first and a second view. A row that is left over
    counts nowhere; without a pair the loss is 0. In a process group the loss is that of the joined batch.
    """

    definition: ViewsLoss
    params: Config
    weights: "nn.Module | None" = None
    """The function itself where it is a module with weights or buffers."""

    def of_rows(self, z: Matrix, ids: Ids) -> Scalar:
        """Compute the loss of first against second views, which are paired by `ids`; 0 without a pair."""
        first, second = paired_rows(ids)
        # Where there is no pair, the 0 has a gradient, so that the step goes on as any other.
        if not len(first):
            return 0 * z.sum()
        return self.definition.function(z[first], z[second], **self.params)

    def ids(self, labels: Ids, instance_ids: Ids | None) -> Ids:
        """Return the instance ids, which the two views of an image share; `SpecError` where they are None."""
        return require_instance_ids(instance_ids, self.definition.name)


def paired_rows(ids: Ids) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"]]:
    """Return the rows of first and of second views: of each id its first and second row, its third and fourth, ..."""
    # Rows sorted by id, those of one id in their order: `rows` are their numbers in the batch.
    sorted_ids, rows = torch.sort(ids, stable=True)
    _, counts = torch.unique_consecutive(sorted_ids, return_counts=True)
    # The number of each sorted row within its id: 0, 1, ...
    starts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    number = torch.arange(len(ids), device=ids.device) - starts
    # A row with an even number is a first view, if the id has a row after it, which is then the second view.
    is_first: Bool[Tensor, " n"] = (number % 2 == 0) & (
        number + 1 < counts.repeat_interleave(counts)
    )
    first = is_first.nonzero().flatten()
    return rows[first], rows[first + 1]
