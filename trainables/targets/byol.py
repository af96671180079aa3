"""BYOL: the projection of one view, by a momentum encoder, is predicted from the other view; there are no negatives."""

import math
from collections.abc import Mapping

from jaxtyping import Float

from contrasweep.trainables import checkpoint
from contrasweep.trainables.fields import BelowOne, Count
from contrasweep.trainables.losses import AnyLoss
from contrasweep.trainables.losses.ids import Ids
from contrasweep.trainables.pytorch import F, Tensor, nn, torch
from contrasweep.trainables.targets.protocol import Embedded, precise


def regression(predictions: Float[Tensor, "n d"], projections: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """|q/|q| - z/|z||^2 = 2 - 2 cos(q, z), the mean over rows (BYOL: Grill et al. 2020, equation 2)."""
    return (2 - 2 * F.cosine_similarity(predictions, projections, dim=1)).mean()


def rising(base: float, step: int, steps: int) -> float:
    """BYOL's momentum at step 0, 1, ..., `steps`: from `base` to 1 along a cosine (Grill et al. 2020, section 3.3)."""
    return 1 - (1 - base) * (math.cos(math.pi * min(step, steps) / steps) + 1) / 2


class Byol:
    """A momentum encoder's projections of the other view, which a predictor has to tell (BYOL: Grill et al. 2020).

    The loss is `regression` of first views on second ones plus that of second on first, whatever the trial's `loss`.
    The momentum rises from `momentum` to 1 along a cosine.
    """

    def __init__(
        self, model: "nn.Module", steps: int, dim: int, *, momentum: BelowOne = 0.996, width: Count = 512
    ) -> None:
        from contrasweep.trainables.targets.momentum import MomentumEncoder

        self.model, self.momentum, self.steps = model, momentum, steps
        self.encoder = MomentumEncoder(model)
        self.trained = nn.Sequential(
            nn.Linear(dim, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True), nn.Linear(width, dim)
        )

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """The momentum encoder and the predictor."""
        return {"momentum_encoder": self.encoder, "predictor": self.trained}

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Embedded:
        """The symmetric loss of both views."""
        first, second = views.chunk(2)
        embeddings = [self.model(first), self.model(second)]
        predictions = [self.trained(z) for z in embeddings]
        projections = [self.encoder(first), self.encoder(second)]
        with torch.autocast(views.device.type, enabled=False):
            q, z = ([precise(x) for x in each] for each in (predictions, projections))
            value = regression(q[0], z[1]) + regression(q[1], z[0])
        return Embedded(value, torch.cat(embeddings))

    def after_step(self, step: int) -> None:
        """The momentum encoder follows."""
        self.encoder.update(self.model, rising(self.momentum, step, self.steps))
