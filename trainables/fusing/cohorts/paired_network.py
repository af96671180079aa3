"""The networks of paired trials as one: what `paired.fitting.Fit` does in a step, for all members."""

from collections.abc import Mapping

import torch
from torch import Tensor

from contrasweep.trainables import seeding
from contrasweep.trainables.fusing.cohorts.buffers import batch_buffer
from contrasweep.trainables.fusing.cohorts.cohort import Batch
from contrasweep.trainables.fusing.cohorts.paired_objective import FoldedObjective
from contrasweep.trainables.fusing.cohorts.sums import Sums
from contrasweep.trainables.fusing.folding import Slots, Step, fold, fold_optimizer
from contrasweep.trainables.fusing.folding.layers import FoldedBatchNorm
from contrasweep.trainables.losses import ComposedLoss
from contrasweep.trainables.losses.negatives import has_signed_scores
from contrasweep.trainables.paired import fitting
from contrasweep.trainables.paired.fitting import Epoch, Fit
from contrasweep.trainables.paired.network import Joint
from contrasweep.trainables.paired.objective import Objective
from contrasweep.trainables.paired.settings import Recipe


class PairedNetwork:
    """Weights, optimizer, objective and batches of K slots, and the sums that their reports are made of.

    `model` is the network of any member, on its device, which takes so many `inputs`; `frozen` says that its BatchNorm
    stays on its running statistics."""

    def __init__(
        self,
        model: Joint,
        objective: Objective,
        recipe: Recipe,
        *,
        slots: Slots,
        engine: str,
        inputs: int,
        frozen: bool = False,
    ) -> None:
        self.slots, self.autocast, self.frozen = slots, recipe.autocast, frozen
        self.device = slots.active.device
        self.going: tuple[int, ...] = tuple(range(slots.count))
        self.network = fold(model.train(), slots, engine, inputs=inputs)
        self.objective = FoldedObjective(objective, slots)
        decay_on = recipe.optimizer.parameters.get("decay_on", "all")
        self.optimizer = fold_optimizer(
            recipe.optimizer.entry, self.network.parameters(), slots, self.network.templates, decay_on=decay_on
        )
        self.clip = torch.zeros(slots.count, dtype=torch.float64, device=self.device)
        contrast = objective.contrast
        counted = contrast if isinstance(contrast, ComposedLoss) and has_signed_scores(contrast) else None
        self.step_of = Step(self.network, self.objective, self.optimizer, clip=self.clip, counted=counted)
        self.freeze()
        self.sides: list[Tensor] = []
        self.labels = torch.zeros(slots.count, recipe.n_views * recipe.batch_size, dtype=torch.int64).to(self.device)
        names = self.objective.names
        self.sums = Sums(slots.count, self.device, len(names), 2 if self.objective.with_latent else 1)

    def freeze(self) -> None:
        """Keep BatchNorm on its running statistics where it is to stay there; the network is in training mode."""
        for module in self.network.tree.modules() if self.frozen else ():
            if isinstance(module, FoldedBatchNorm):
                module.eval()

    def put(self, slot: int, method: Fit) -> None:
        """Copy weights, optimizer and objective of a member into a slot."""
        self.network.put(slot, method.model.state_dict())
        self.optimizer.put(slot, method.recipe.optimizer.parameters, method.optimizer.state_dict())
        self.objective.put(slot, method.objective)
        self.clip[slot] = method.recipe.clip

    def take(self, slot: int, method: Fit) -> None:
        """Copy weights and optimizer of a slot into its member."""
        method.model.load_state_dict(self.network.take(slot))
        method.optimizer.load_state_dict(self.optimizer.take(slot))

    def begin(self, slot: int, method: Fit, running: Epoch) -> None:
        """Forget the sums of the slot's last epoch, take its alpha, and let dropout draw from the epoch's own seed."""
        self.sums.clear(slot)
        self.objective.begin(slot, running.alpha)
        generator = torch.Generator(self.device).manual_seed(seeding.derive(*running.key))
        self.slots.generators[slot] = generator

    def step(self, batches: Mapping[int, Batch[Fit]]) -> None:
        """A step of these slots, each on its sides and labels; the others stand still."""
        rates = [0.0] * self.slots.count
        for slot, batch in batches.items():
            sides, labels = batch.values
            if not self.sides:
                self.sides = [batch_buffer(self.network, side.shape) for side in sides]
            for kept, side in zip(self.sides, sides, strict=True):
                kept[slot].copy_(side)
            self.labels[slot].copy_(labels)
            batch.method.optimizer.lr = rates[slot] = batch.method.rate(batch.running)
        self.optimizer.lr.copy_(torch.tensor(rates, dtype=torch.float64))
        if self.going != (going := tuple(batches)):
            self.slots.activate(going)
            self.going = going
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            given = self.sides if len(self.sides) > 1 else self.sides[0]
            outcome = self.step_of(given, self.labels, self.labels)
        self.sums.add(outcome, [outcome.terms, outcome.embeddings, self.labels])

    def finish(self, slot: int, method: Fit, running: Epoch) -> dict[str, float]:
        """The metrics of a slot's epoch, as the member itself computes them from what its steps left."""
        taken, means, kept, counts = self.sums.of(slot)
        method.guard.nonfinite_steps += running.count - taken
        if means is None:
            return method.finish(running, {}, None, {})
        names = self.objective.names
        terms, z, labels = kept
        last = fitting.Step(dict(zip(names, terms, strict=True)), z, labels, {})
        negatives = {}
        if has_signed_scores(method.objective.contrast):
            each = zip(("negative_cosines", "negative_cosines_l"), counts, strict=False)
            negatives = {name: [of_epoch] for name, of_epoch in each}
        return method.finish(running, dict(zip([*names, "grad_norm"], means, strict=True)), last, negatives)
