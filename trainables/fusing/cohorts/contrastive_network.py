"""The networks of contrastive trials as one: what `contrastive.method.Contrastive` does in a step, for all members."""

from collections.abc import Mapping

import torch
from torch import Tensor

from contrasweep.trainables import seeding
from contrasweep.trainables.contrastive import method as contrastive_method
from contrasweep.trainables.contrastive.method import Contrastive, Epoch
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.fusing.cohorts.buffers import batch_buffer
from contrasweep.trainables.fusing.cohorts.cohort import Batch
from contrasweep.trainables.fusing.cohorts.sums import Sums
from contrasweep.trainables.fusing.folding import (
    FoldedAverage,
    FoldedLoss,
    FoldedOptimizer,
    FoldedTemperature,
    Slots,
    Step,
    fold,
    fold_optimizer,
)
from contrasweep.trainables.losses import ComposedLoss
from contrasweep.trainables.losses.negatives import has_signed_scores


class ContrastiveNetwork:
    """Weights, optimizer, loss parameters and batches of K slots, and the sums that their reports are made of."""

    def __init__(self, settings: Settings, shape: Shape, device: torch.device, count: int, engine: str) -> None:
        self.slots, self.device, self.autocast = Slots(count, device), device, settings.autocast
        self.going: tuple[int, ...] = tuple(range(count))
        model = contrastive_method.network(settings, shape).to(device).train()
        self.network = fold(model, self.slots, engine)
        of_trial = settings.build_loss()
        self.loss = FoldedLoss(of_trial, self.slots, learnable_temperature=settings.learnable_temperature)
        self.temperature = FoldedTemperature(self.slots) if settings.learnable_temperature else None
        self.average = FoldedAverage(self.network) if settings.ema else None
        self.clip = torch.zeros(count, dtype=torch.float64, device=device)
        self.optimizer = self._optimizer(settings)
        counted = of_trial if isinstance(of_trial, ComposedLoss) and has_signed_scores(of_trial) else None
        self.step_of = Step(self.network, self.loss, self.optimizer, self.temperature, self.average, self.clip, counted)
        rows = 2 * settings.batch_size
        self.views = batch_buffer(self.network, (rows, *shape))
        self.labels = torch.zeros(count, rows, dtype=torch.int64, device=device)
        self.rows = torch.zeros(count, rows, dtype=torch.int64, device=device)
        self.sums = Sums(count, device)

    def put(self, slot: int, method: Contrastive) -> None:
        """Copy weights, optimizer and loss parameters of a member into a slot."""
        self.network.put(slot, method.model.state_dict())
        self.optimizer.put(slot, method.settings.optimizer.parameters, method.optimizer.state_dict())
        self.loss.put(slot, method.loss)
        self.clip[slot] = method.settings.clip
        if self.temperature is not None and method.temperature is not None:
            self.temperature.put(slot, method.temperature)
        if self.average is not None and method.average is not None:
            self.average.put(slot, method.average.decay, method.average.state_dict())

    def take(self, slot: int, method: Contrastive) -> None:
        """Copy weights and optimizer of a slot into its member."""
        method.model.load_state_dict(self.network.take(slot))
        method.optimizer.load_state_dict(self.optimizer.take(slot))
        if self.average is not None and method.average is not None:
            method.average.load_state_dict(self.average.take(slot))
        self._take_temperature(slot, method)

    def begin(self, slot: int, method: Contrastive, running: Epoch) -> None:
        """Forget the sums of the slot's last epoch, and let dropout draw from the epoch's own seed."""
        self.sums.clear(slot)
        generator = torch.Generator(self.device).manual_seed(seeding.derive(*running.key))
        self.slots.generators[slot] = generator

    def step(self, batches: Mapping[int, Batch[Contrastive]]) -> None:
        """A step of these slots, each on its views of images and their rows; the others stand still."""
        rates = [0.0] * self.slots.count
        for slot, batch in batches.items():
            method, (views, rows) = batch.method, batch.values
            here = rows.to(self.device)
            self.views[slot].copy_(views)
            self.rows[slot].view(2, -1).copy_(here)
            self.labels[slot].view(2, -1).copy_(method.train.labels[here])
            method.optimizer.lr = rates[slot] = method.rate(batch.running)
        self.optimizer.lr.copy_(torch.tensor(rates, dtype=torch.float64))
        if self.going != (going := tuple(batches)):
            self.slots.activate(going)
            self.going = going
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outcome = self.step_of(self.views, self.labels, self.rows)
        self.sums.add(outcome, [outcome.losses, outcome.embeddings, self.labels, self.rows])

    def finish(self, slot: int, method: Contrastive, running: Epoch) -> dict[str, float]:
        """The metrics of a slot's epoch, as the member itself computes them from what its steps left."""
        taken, means, kept, negatives = self.sums.of(slot)
        method.guard.nonfinite_steps += running.count - taken
        last = None
        if kept:
            loss, embeddings, labels, rows = kept
            last = contrastive_method.Step(loss, embeddings, labels, rows, {})
        self._take_temperature(slot, method)
        return method.finish(running, means, last, negatives)

    def _take_temperature(self, slot: int, method: Contrastive) -> None:
        if self.temperature is not None and method.temperature is not None:
            method.temperature.load_state_dict(self.temperature.take(slot))

    def _optimizer(self, settings: Settings) -> FoldedOptimizer:
        """Of the network's parameters that are trained, and of the temperature's after them."""
        stacked: list[Tensor] = [*self.network.parameters()]
        plain = self.network.templates
        if self.temperature is not None:
            stacked.append(self.temperature.log_scale)
            plain.append(torch.zeros((), device="meta"))
        decay_on = settings.optimizer.parameters.get("decay_on", "all")
        return fold_optimizer(settings.optimizer.entry, stacked, self.slots, plain, decay_on=decay_on)
