"""The networks of a cohort's slots as one: what a step and an epoch of all methods have in common."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from contrasweep.trainables import seeding
from contrasweep.trainables.fusing.folding import Folded, Outcome, Step
from contrasweep.trainables.fusing.folding.rules import like
from contrasweep.trainables.losses.tiled import Counts
from contrasweep.trainables.pytorch import Float

M = TypeVar("M")


@dataclass(frozen=True)
class Batch(Generic[M]):
    """A member's next batch."""

    method: M
    running: Any
    values: Any


class CohortNetwork(Generic[M]):
    """Weights, optimizer and hyperparameters of K slots, and the sums for their reports."""

    def __init__(self, step: Step, *, autocast: bool, terms: int = 1, compared: int = 1) -> None:
        """Sum `terms` of the loss for the report, and negatives of so many `compared` kinds of embeddings."""
        self.step_of, self.autocast = step, autocast
        self.network, self.optimizer, self.slots = step.network, step.optimizer, step.network.slots
        self.device = self.slots.active.device
        self.going = tuple(range(self.slots.count))
        self.sums = Sums(self.slots.count, self.device, terms, compared)

    @abstractmethod
    def put(self, slot: int, method: M) -> None:
        """Copy weights, optimizer and hyperparameters of a method into a slot."""

    @abstractmethod
    def step(self, batches: Mapping[int, Batch[M]]) -> None:
        """Train the slots of `batches`, each on its batch; the other slots do not change."""

    @abstractmethod
    def finish(self, slot: int, method: M, running: Any) -> dict[str, float]:
        """Return the metrics of a slot's epoch after its last step, as the method itself computes them.

        Raises what the method raises where the epoch failed.
        """

    def take(self, slot: int, method: Any) -> None:
        """Copy weights and optimizer of a slot into its method, in the plain form."""
        method.model.load_state_dict(self.network.take(slot))
        method.optimizer.load_state_dict(self.optimizer.take(slot))

    def begin(self, slot: int, method: M, running: Any) -> None:
        """Forget the sums of the slot's last epoch, and let dropout draw from the new epoch's own seed."""
        self.sums.clear(slot)
        self.slots.generators[slot] = torch.Generator(self.device).manual_seed(seeding.derive(*running.key))

    def train(
        self, batches: Mapping[int, Batch[Any]], inputs: Tensor | Sequence[Tensor], labels: Tensor, rows: Tensor
    ) -> Outcome:
        """Train the slots of `batches`, whose values lie in `inputs`, `labels` and `rows`."""
        rates = [0.0] * self.slots.count
        for slot, batch in batches.items():
            batch.method.optimizer.lr = rates[slot] = batch.method.rate(batch.running)
        self.optimizer.lr.copy_(torch.tensor(rates, dtype=torch.float64))
        if self.going != (going := tuple(batches)):
            self.slots.activate(going)
            self.going = going
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            return self.step_of(inputs, labels, rows)


def batch_buffer(network: Folded, shape: Sequence[int]) -> Float[Tensor, "k n ..."]:
    """Return zeros [k *shape] for a batch of `shape` (rows first) of each slot, in the type of the network's weights.

    Images [n c h w] lie in memory as the network's engine reads them.
    """
    weight = next(iter(network.parameters()))
    count = network.slots.count
    if len(shape) == 4 and network.engine.convolution == "products":
        rows, channels, height, width = shape
        return weight.new_zeros(count, rows, height, width, channels).movedim(4, 2)
    if len(shape) == 4:
        return weight.new_zeros(shape[0], count, *shape[1:]).transpose(0, 1)
    return weight.new_zeros(count, *shape)


class Sums:
    """Sums over the steps of an epoch for its report, for all slots at once and on their device.

    Of each slot: how many steps it took since `clear`, the sums of their terms and gradient norms in float64, what is
    kept of the last of them, and their counts of negatives. Steps that were not taken count nowhere, as in
    `loop.Guard`.
    """

    def __init__(self, slots: int, device: torch.device, terms: int = 1, compared: int = 1) -> None:
        self.negatives = torch.zeros(slots, 2 * compared, dtype=torch.int64, device=device)
        self.taken = torch.zeros(slots, dtype=torch.int64, device=device)
        self.totals = torch.zeros(slots, terms + 1, dtype=torch.float64, device=device)
        self.last: list[Tensor] = []

    def clear(self, slot: int) -> None:
        """Begin an epoch of this slot."""
        self.taken[slot] = 0
        self.totals[slot] = 0
        self.negatives[slot] = 0

    def add(self, outcome: Outcome, kept: Sequence[Tensor]) -> None:
        """Add a step of all slots; `kept` are tensors [k ...] that are needed if the step is an epoch's last."""
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
        """Return how many steps a slot took, and their sums.

        That is the means of terms and gradient norm over them (None where there was none), what was kept of the last
        one, and the counts of negatives of each kind of embeddings.
        """
        taken = int(self.taken[slot])
        if not taken:
            return 0, None, [], []
        means = (self.totals[slot] / taken).tolist()
        return taken, means, [values[slot].clone() for values in self.last], [*self.negatives[slot].clone().view(-1, 2)]
