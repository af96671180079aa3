"""What the embeddings of a training step are compared with: each other, a queue of past ones, a momentum encoder's.

targets: batch                                    # the default: the rows of the batch with each other
targets: {name: moco, size: 4096, momentum: .999} # a momentum encoder's keys, and a queue of those of past steps
targets: {name: xbm, size: 8192}                  # the batch, and the embeddings of past steps
targets: {name: byol, momentum: .996}             # a momentum encoder's projections, predicted; no negatives
"""

from trainables.targets.batch import Batch
from trainables.targets.byol import Byol
from trainables.targets.moco import Moco
from trainables.targets.protocol import Embedded, Targets
from trainables.targets.table import TARGETS
from trainables.targets.xbm import CrossBatchMemory

__all__ = ["TARGETS", "Batch", "Byol", "CrossBatchMemory", "Embedded", "Moco", "Targets"]
