"""The default: the rows of a batch are compared with each other."""

from collections.abc import Mapping

from jaxtyping import Float

from contrasweep.trainables import checkpoint
from contrasweep.trainables.losses import AnyLoss
from contrasweep.trainables.losses.ids import Ids
from contrasweep.trainables.pytorch import Tensor, nn, torch
from contrasweep.trainables.targets.protocol import Embedded, precise


class Batch:
    """The batch itself: all views of it, by the network that is trained."""

    def __init__(self, model: "nn.Module", steps: int, dim: int) -> None:
        self.model, self.trained = model, nn.Module()

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """Nothing."""
        return {}

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Embedded:
        """The loss of the embeddings of all views."""
        embeddings = self.model(views)
        with torch.autocast(views.device.type, enabled=False):
            return Embedded(loss(precise(embeddings), labels, rows), embeddings)

    def after_step(self, step: int) -> None:
        """Nothing."""
