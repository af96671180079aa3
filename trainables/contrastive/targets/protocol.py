"""The protocol of targets, and the simplest targets: the batch itself."""

from typing import NamedTuple, Protocol, runtime_checkable

from contrasweep.trainables import checkpoint
from contrasweep.trainables.losses import AnyLoss, distributed
from contrasweep.trainables.losses.batch import Ids
from contrasweep.trainables.precision import full_precision, widened
from contrasweep.trainables.pytorch import Float, ImageBatch, Integers, Matrix, Tensor, nn


class Compared(NamedTuple):
    """The loss of a step with its graph, and the embeddings of all views [n d] that diagnostics look at."""

    loss: Float[Tensor, ""]
    embeddings: Matrix


@runtime_checkable
class Targets(Protocol):
    """The targets with which a step compares embeddings, built once for a trial.

    They are built as `Class(model, steps, dim, **parameters)`.

    The keyword-only parameters of the class are what a study can set (`targets: {name: moco, size: 64}`). A class may
    say more of itself by attributes:
    - `needs`: which losses go with it:
      - "any" (the default): all;
      - "pairs": losses whose value for an anchor comes from the anchor's own scores;
      - "instances": losses as for "pairs", whose positives are views of one image;
      - "nothing": the loss is not used;
    - `many_views`: whether an image may have more than two views; the object's `n_views` is set to their number;
    - `joined`: whether it computes the loss of all rows where several processes share a batch (see `together`).

    Args:
        model: The network that is trained, from images [n c h w] to embeddings [n dim].
        steps: The number of steps of the whole training.
        dim: The dimension of the embeddings; 0 for `batch`, which does not need it.

    Example:
        >>> import torch
        >>> from contrasweep.trainables.contrastive.targets import TARGETS
        >>> from contrasweep.trainables.losses import build
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
        >>> targets = TARGETS.choose({"name": "xbm", "size": 64}).build(network, 10, 5)
        >>> images, rows = torch.randn(8, 3, 2, 2), torch.arange(4).repeat(2)
        >>> targets.step(images, rows % 2, rows, build("supcon")).embeddings.shape
        torch.Size([8, 5])
        >>> targets.after_step(0)
    """

    @property
    def trained(self) -> "nn.Module":
        """Return the part that is trained beside the network, such as a predictor; it may be empty."""

    @property
    def parts(self) -> checkpoint.Parts:
        """The parts whose state a checkpoint saves and restores, by name; empty where there is no state."""

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of a batch.

        Args:
            views: The first views of all images, then their second views, and so on.
            labels: The label of each view's image, in the same order.
            rows: The row of each view's image in the training part, in the same order.
            loss: The trial's loss, at the temperature as it is now.

        Returns:
            The loss with its graph, and the embeddings of the views.
        """

    def after_step(self, step: int) -> None:
        """Update what the next steps compare with: momentum encoders, running means, queues of past embeddings.

        It is called after each step of the optimizer. Targets without a state do nothing.

        Args:
            step: The number of the step that the optimizer has just taken, from 0.
        """


class Batch:
    """The batch itself as targets: all of its views, embedded by the network that is trained."""

    many_views = joined = True

    def __init__(self, model: "nn.Module", steps: int, dim: int) -> None:
        self.model = model
        self.trained = nn.Module()

    @property
    def parts(self) -> checkpoint.Parts:
        """Return nothing: there is no state."""
        return {}

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of the embeddings of all views.

        For the arguments see `Targets.step`.
        """
        embeddings = self.model(views)
        with full_precision(views):
            return Compared(loss(widened(embeddings), labels, rows), embeddings)

    def after_step(self, step: int) -> None:
        """Do nothing: there is no state to update."""


def together(rows: Matrix, *ids: Integers) -> tuple[Tensor, ...]:
    """Return `rows` [n d] and each of `ids` [n] with those of all processes of the trial, in the order of their ranks.

    With a single process they come back unchanged. Gradients pass through the rows. Those of this process's rows are
    multiplied by the number of processes, because gradients of weights are averaged over processes afterwards (see
    `losses.distributed`).
    """
    if distributed.processes() == 1:
        return rows, *ids
    from contrasweep.trainables.joined_batch import gather_with_gradient

    return gather_with_gradient(rows), *(distributed.gather(values) for values in ids)
