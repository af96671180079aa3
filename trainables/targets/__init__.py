"""What the embeddings of a training step are compared with: each other, a queue of past ones, a momentum encoder's.

targets: batch                                    # the default: the rows of the batch with each other
targets: {name: moco, size: 4096, momentum: .999} # a momentum encoder's keys, and a queue of those of past steps
targets: {name: xbm, size: 8192}                  # the batch, and the embeddings of past steps
targets: {name: byol, momentum: .996}             # a momentum encoder's projections, predicted; no negatives
"""

from contrasweep.trainables.targets.batch import Batch
from contrasweep.trainables.targets.byol import Byol
from contrasweep.trainables.targets.moco import Moco
from contrasweep.trainables.targets.protocol import Embedded, Targets
from contrasweep.trainables.targets.table import TARGETS
from contrasweep.trainables.targets.xbm import CrossBatchMemory

__all__ = ["TARGETS", "Batch", "Byol", "CrossBatchMemory", "Embedded", "Moco", "Targets"]
