"""Contrastive losses: functions of a score matrix and two masks, composed with any similarity by `build`.

    loss = build("sincere", "neg_arc_length", temperature=0.1)
    loss(embeddings, labels).backward()

Adding a loss is a function and its line in `LOSSES`. Never rank trials by the value of a loss across losses,
temperatures, epsilons or batch sizes: rank them by a validation metric.
"""

from trainables.losses.build import build
from trainables.losses.checks import NotFiniteError
from trainables.losses.composed import Composed
from trainables.losses.reductions import REDUCTIONS, Terms
from trainables.losses.table import LOSSES, Loss

__all__ = ["LOSSES", "REDUCTIONS", "Composed", "Loss", "NotFiniteError", "Terms", "build"]
