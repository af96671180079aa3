"""Contrastive losses: functions of a score matrix and two masks, composed with any similarity by `build`.

    loss = build("sincere", "neg_arc_length", temperature=0.1)
    loss(embeddings, labels).backward()

Adding a loss is a function and its line in `LOSSES`: its keyword-only parameters are what can be set of it. Losses of
two views (`views`) are functions of two matrices of embeddings instead. Never
rank trials by the value of a loss across losses, temperatures, epsilons or batch sizes: rank them by a validation
metric.
"""

from contrasweep.trainables.losses.batches import NotFiniteError
from contrasweep.trainables.losses.build import AnyLoss, build, compose
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.external import ExternalLoss
from contrasweep.trainables.losses.loss import Loss
from contrasweep.trainables.losses.reductions import REDUCTIONS, Terms
from contrasweep.trainables.losses.table import LOSSES
from contrasweep.trainables.losses.views import ComposedViewsLoss, ViewsLoss

__all__ = [
    "LOSSES",
    "REDUCTIONS",
    "AnyLoss",
    "ComposedLoss",
    "ComposedViewsLoss",
    "ExternalLoss",
    "Loss",
    "NotFiniteError",
    "Terms",
    "ViewsLoss",
    "build",
    "compose",
]
