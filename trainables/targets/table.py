"""The table of targets, and which losses go with each."""

from contrasweep.components import Component, Table
from contrasweep.errors import SpecError
from contrasweep.trainables.losses import AnyLoss, ComposedLoss
from contrasweep.trainables.targets.batch import Batch
from contrasweep.trainables.targets.byol import Byol
from contrasweep.trainables.targets.moco import Moco
from contrasweep.trainables.targets.protocol import Targets
from contrasweep.trainables.targets.xbm import CrossBatchMemory

TARGETS: Table[type[Targets]] = Table(
    "targets", {"batch": Batch, "moco": Moco, "xbm": CrossBatchMemory, "byol": Byol}, plural="targets"
)
"""name -> (network, number of steps, dimension of the embeddings, its own parameters) -> targets."""


def check(targets: Component, loss: AnyLoss) -> None:
    """`SpecError` where `loss` cannot be taken against rows of other matrices, as a queue needs it."""
    if targets.name not in ("moco", "xbm"):
        return
    if not isinstance(loss, ComposedLoss) or loss.loss.all_pairs:
        name = loss.name if hasattr(loss, "name") else loss.loss.name
        raise SpecError(
            f"targets {targets.name!r} need a loss whose value for an anchor comes from its own scores",
            place="loss",
            value=name,
            hint="take one of infonce, supcon, sincere, ocl, margin_contrastive, triplet, batch_hard",
        )
