"""What the steps of an epoch leave for its report, for all slots at once and on their device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from contrasweep.trainables.fusing.folding import Outcome
from contrasweep.trainables.fusing.folding.rules import like
from contrasweep.trainables.losses.negatives import Counts


class Sums:
    """Of each slot: how many steps it took since `clear`, the sums of their terms and gradient norms in float64, what
    is kept of the last of them, and what they had of negatives. Steps that were not taken count nowhere, as in
    `loop.Guard`."""

    def __init__(self, slots: int, device: torch.device, terms: int = 1, compared: int = 1) -> None:
        self.negatives = torch.zeros(slots, 2 * compared, dtype=torch.int64, device=device)
        self.taken = torch.zeros(slots, dtype=torch.int64, device=device)
        self.totals = torch.zeros(slots, terms + 1, dtype=torch.float64, device=device)
        self.last: list[Tensor] = []

    def clear(self, slot: int) -> None:
        """An epoch of this slot begins."""
        self.taken[slot] = 0
        self.totals[slot] = 0
        self.negatives[slot] = 0

    def add(self, outcome: Outcome, kept: Sequence[Tensor]) -> None:
        """A step of all slots, of which tensors [k ...] are `kept` if it is an epoch's last."""
        taken = outcome.taken
        values = torch.cat([outcome.terms.double(), outcome.norms[:, None].double()], 1)
        self.taken += taken
        self.totals += torch.where(taken[:, None], values, 0.0)
        self.negatives += torch.where(taken[:, None], outcome.negatives, 0)
        if not self.last:
            self.last = [values.clone() for values in kept]
        else:
            for old, new in zip(self.last, kept, strict=True):
                torch.where(like(taken, old), new, old, out=old)

    def of(self, slot: int) -> tuple[int, list[float] | None, list[Tensor], list[Counts]]:
        """How many steps a slot took, the means of terms and gradient norm over them (None where there was none), what
        was kept of the last one, and the counts of negatives of each kind of embeddings."""
        taken = int(self.taken[slot])
        if not taken:
            return 0, None, [], []
        means = (self.totals[slot] / taken).tolist()
        return taken, means, [values[slot].clone() for values in self.last], [*self.negatives[slot].clone().view(-1, 2)]
