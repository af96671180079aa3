"""What the steps of an epoch leave for its report, for all slots at once and on their device."""

import torch
from torch import Tensor

from trainables.contrastive_method import Step
from trainables.folding import Outcome
from trainables.folding.slots import like
from trainables.losses.negatives import Counts


class Sums:
    """Of each slot: how many steps it took since `clear`, the sums of their losses and gradient norms in float64, and
    the last of them with its batch, and what they had of negatives. Steps that were not taken count nowhere, as in
    `loop.Guard`."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self.negatives = torch.zeros(slots, 2, dtype=torch.int64, device=device)
        self.taken = torch.zeros(slots, dtype=torch.int64, device=device)
        self.totals = torch.zeros(slots, 2, dtype=torch.float64, device=device)
        self.last: list[Tensor] = []

    def clear(self, slot: int) -> None:
        """An epoch of this slot begins."""
        self.taken[slot] = 0
        self.totals[slot] = 0
        self.negatives[slot] = 0

    def add(self, outcome: Outcome, labels: Tensor, rows: Tensor) -> None:
        """A step of all slots on batches with these labels and rows [k n]."""
        taken = outcome.taken
        values = torch.stack([outcome.losses, outcome.norms], 1).double()
        self.taken += taken
        self.totals += torch.where(taken[:, None], values, 0.0)
        self.negatives += torch.where(taken[:, None], outcome.negatives, 0)
        batch = [outcome.losses, outcome.embeddings, labels, rows]
        if not self.last:
            self.last = [values.clone() for values in batch]
        else:
            for kept, new in zip(self.last, batch, strict=True):
                torch.where(like(taken, new), new, kept, out=kept)

    def of(self, slot: int) -> tuple[int, list[float] | None, Step | None, list[Counts]]:
        """How many steps a slot took, the means of loss and gradient norm over them, the last one (None for both where
        there was none), and the counts of their negatives."""
        taken = int(self.taken[slot])
        if not taken:
            return 0, None, None, []
        means = (self.totals[slot] / taken).tolist()
        loss, embeddings, labels, rows = (values[slot].clone() for values in self.last)
        return taken, means, Step(loss, embeddings, labels, rows, {}), [self.negatives[slot].clone()]
