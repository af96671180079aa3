"""What targets are, as the contrastive trainable sees them."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float

from contrasweep.trainables import checkpoint
from contrasweep.trainables.losses import AnyLoss
from contrasweep.trainables.losses.ids import Ids
from contrasweep.trainables.pytorch import Tensor, nn


class Embedded(NamedTuple):
    """The loss of a step with its graph, and the embeddings of both views that diagnostics look at."""

    loss: Float[Tensor, ""]
    embeddings: Float[Tensor, "n d"]


@runtime_checkable
class Targets(Protocol):
    """Built with the network, the number of steps of the whole training and the embeddings' dimension, and with its own
    parameters."""

    @property
    def trained(self) -> "nn.Module":
        """What is trained beside the network: a predictor, for example; may be empty."""

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """What a checkpoint holds of it."""

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Embedded:
        """The loss of a batch: the first views of all images, then their second views; labels and numbers of the images
        in the same order. `loss` is the trial's, with the temperature as it is now."""

    def after_step(self, step: int) -> None:
        """The optimiser took step 0, 1, ...: move averages on and keep what the next steps compare with."""


def precise(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """In float32 or more: what a loss is computed in, whatever the autocast."""
    return embeddings if embeddings.dtype.itemsize > 4 else embeddings.float()
