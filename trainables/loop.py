"""The training loop that the methods share, and its one guard against steps that are not finite.

A trainable builds its method (data, network and optimiser of one trial) and hands it over:

    yield from loop.run(Contrastive(trial, settings), trial, resume, evaluate_every=5, checkpoint_every=5)

The loop counts epochs, resumes, says when an evaluation or a checkpoint is due, and makes the reports. A method says
what an epoch, an evaluation and the end of training are (`Method`).
"""

import logging
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from contrasweep.components import Component
from contrasweep.processes import scratch_prefix
from contrasweep.rows import ItemColumns
from contrasweep.trainables import checkpoint, torch_internals
from contrasweep.trainables.diagnostics import gradient_norm
from contrasweep.trainables.losses.batch import NotFiniteError
from contrasweep.trainables.losses.negatives import share_below
from contrasweep.trainables.losses.tiled import Counts
from contrasweep.trainables.optimisation import Optimizer, Schedule
from contrasweep.trial import Report, Trial

B = TypeVar("B")
R = TypeVar("R")
log = logging.getLogger(__name__)
OCL_IS_SCL = "OCL equals SCL at every step: no cosine of two negatives was negative"
KEPT_OF_GUARD = ("nonfinite_steps", "warned", "below_zero", "untrained")
"""What a checkpoint keeps of the guard."""


class Guard:
    """Takes only the optimiser steps whose loss and gradient are finite; counts the others as `nonfinite_steps`.

    It also remembers three facts about the training so far:

    - `warned`: the warning that all embeddings have collapsed was given already;
    - `below_zero`: a step had a negative with a cosine below 0, without which the loss OCL equals SCL;
    - `untrained`: no epoch has had a gradient and changed a weight yet.

    A checkpoint keeps them and the count. `remedy` is advice for a trial that diverges, such as `lower learning_rate
    (0.5)`; of the temperature it speaks only if `loss` has one.
    """

    def __init__(self, learning_rate: float, loss: Component | None = None) -> None:
        has_temperature = loss is not None and "temperature" in loss.parameters
        or_temperature = " or raise loss.temperature" if has_temperature else ""
        self.remedy = f"lower learning_rate ({learning_rate}){or_temperature}"
        # The class's docstring says what these are; they are kept in checkpoints (`KEPT_OF_GUARD`).
        self.nonfinite_steps = 0
        self.warned = False
        self.below_zero = False
        self.untrained = True

    def step(
        self,
        optimizer: Optimizer,
        compute: Callable[[], tuple[Tensor, list[Tensor], R]],
        clip: float = 0.0,
    ) -> tuple[Tensor, R] | None:
        """Take one optimiser step, unless loss or gradient is not finite: then no weight changes.

        `compute` returns the loss, the gradients, and what the method wants to keep of the batch. It may raise
        `NotFiniteError`. `clip` is the largest norm of all gradients together (0: any).

        Returns:
            The norm of all gradients before clipping, and what the method wants to keep; None if no step was taken.
        """
        try:
            loss, gradients, to_keep = compute()
        except NotFiniteError:
            self.nonfinite_steps += 1
            return None
        norm = gradient_norm(gradients)
        # The sum is finite only if both are; a GPU is waited for once.
        if not torch.isfinite(loss.detach() + norm):
            self.nonfinite_steps += 1
            return None
        # Gradients are scaled down to a norm of `clip`, never up.
        if clip:
            torch_internals.mul_(gradients, (clip / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step(gradients)
        return norm, to_keep

    def require_steps(self, taken: int, epoch: int) -> None:
        """Raise `FloatingPointError` with the `remedy` where `taken`, the number of steps of this epoch, is 0."""
        if not taken:
            rule = f"every step of epoch {epoch} had a loss or gradient that is not finite"
            raise FloatingPointError(f"{rule}: {self.remedy}")

    def means(self, measured: list[Tensor], epoch: int) -> dict[str, float]:
        """Return `loss` and `grad_norm`: the means over the steps of an epoch that were taken.

        `measured` has a tensor [loss, gradient norm] for each of these steps. Raises what `require_steps` raises.
        """
        self.require_steps(len(measured), epoch)
        loss, norm = torch.stack(measured).double().mean(0).tolist()
        return {"loss": loss, "grad_norm": norm}

    def require_finite(self, values: Tensor, what: str) -> None:
        """Raise `FloatingPointError` with the `remedy` where `values`, named `what`, are not all finite."""
        if not torch.isfinite(values).all():
            raise FloatingPointError(
                f"the network gives {what} that are not finite after {self.nonfinite_steps} steps that were skipped "
                f"for that: {self.remedy}"
            )


class Evaluation(NamedTuple):
    """The additions of an evaluation to its epoch's report.

    `metrics` is name -> value, `items` name -> a value for each test item, `artifacts` name -> file.
    """

    metrics: Mapping[str, float]
    items: ItemColumns = {}  # noqa: RUF012  # a read-only mapping, as its alias says
    artifacts: Mapping[str, Path] = {}


@runtime_checkable
class Method(Protocol):
    """A trial in training, as the loop sees it."""

    @property
    def guard(self) -> Guard:
        """Return the guard that takes the optimiser steps."""

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves; everything else follows from the trial and the epoch's number."""

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train the epoch of this number, from 1, and return its metrics.

        All that is random in an epoch is seeded by the method, so that training can be resumed.
        """

    def ends(self, epoch: int) -> bool:
        """Whether training ends after this epoch; may depend on what was learned so far (early stopping)."""

    def evaluate(self, final: bool, folder: Path) -> Evaluation:
        """Return scores of the test part, after an epoch where they are due and after the last one (`final`).

        Files are written to `folder`. The epoch's checkpoint is written before: the last evaluation may load other
        weights (the best epoch's).
        """


class Trained:
    """A base class of methods whose epochs are steps of one network under a schedule of the learning rate."""

    trial: Trial
    settings: Any
    model: Any
    optimizer: Optimizer
    schedule: Schedule
    guard: Guard
    device: torch.device

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves and restores: name -> object with a `state_dict`."""
        return {"model": self.model, "optimizer": self.optimizer}

    def ends(self, epoch: int) -> bool:
        """Whether training ends after this epoch."""
        return epoch >= self.settings.epochs  # type: ignore[no-any-return]

    def reports(self: Any, resume: Path | None) -> Generator[Report]:
        """Train from the checkpoint folder `resume` (None: from the beginning), and yield a report per epoch."""
        return run(
            self,
            self.trial,
            resume,
            evaluate_every=self.settings.evaluate_every,
            checkpoint_every=self.settings.checkpoint_every,
        )

    @property
    def name(self) -> str:
        """Return what warnings call the trial."""
        return f"{self.trial.arm} (trial {self.trial.id})"

    def autocast(self) -> torch.autocast:
        """Return a context in which the network computes in the settings' precision."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.autocast)

    @torch.no_grad()
    def outputs(
        self, network: Callable[[Any], Tensor], chunks: Iterable[Tensor], what: str = "values"
    ) -> Tensor:
        """Return what a network gives for all chunks of an input, one chunk at a time, in float32 and without graph.

        `FloatingPointError` where it is not finite; the error calls it `what`.
        """
        with self.autocast():
            outputs = torch.cat([network(chunk) for chunk in chunks]).float()
        self.guard.require_finite(outputs, what)
        return outputs

    def warn_if_stuck(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Warn that all embeddings have collapsed, the first time that `collapsed` is 1 in `metrics`.

        `metrics` are those that `diagnostics.of_batch` returned after `epoch`.
        """
        if metrics.get("collapsed") and not self.guard.warned:
            self.guard.warned = True
            log.warning(
                "%s: after epoch %d the loss stands at its collapse value %.4f and all embeddings coincide: %s, "
                "or check the augmentations",
                self.name,
                epoch,
                metrics["collapse_value"],
                self.guard.remedy,
            )

    def negative_metrics(
        self, loss: Any, counts: Mapping[str, Sequence[Counts]], epoch: int
    ) -> dict[str, float]:
        """Return the metrics of an epoch, by name, from the negatives that `losses.negatives` has counted in its steps.

        `counts` has for each metric, such as `negative_cosines`, the counts of each step; `counts` is empty for a loss
        whose scores have no sign. The metric is the share of negatives with a cosine below 0. The metric is missing
        where no step had negatives. For OCL there is also `ocl_equals_scl`: 1 as long as no negative of the whole
        training had a cosine below 0. If none has had one when the training ends, a warning says that OCL was the same
        as SCL.
        """
        # One share above 0 is enough to say that the training had a negative cosine below 0.
        shares = {key: share_below(steps) for key, steps in counts.items()}
        metrics = {key: share for key, share in shares.items() if share is not None}
        self.guard.below_zero |= any(metrics.values())
        if not counts or loss.definition.name != "ocl":
            return metrics
        if self.ends(epoch) and not self.guard.below_zero:
            log.warning("%s: %s", self.name, OCL_IS_SCL)
        return metrics | {"ocl_equals_scl": float(not self.guard.below_zero)}

    def steps(
        self,
        first: int,
        batches: Iterable[B],
        compute: Callable[[B], tuple[Tensor, list[Tensor], R]],
    ) -> Iterator[tuple[int, Tensor, R]]:
        """Take a step for each batch, unless `compute` gives a loss or gradient that is not finite.

        `first` is the number of the first step in the whole training. `compute` returns what `Guard.step` says: the
        loss, the gradients, and what the method keeps of the batch.

        Yields:
            The number of each step that was taken, its gradient norm, and what the method keeps of the batch.
        """
        for step, batch in enumerate(batches, first):
            self.optimizer.lr = self.schedule.at(step)
            taken = self.guard.step(self.optimizer, partial(compute, batch), self.settings.clip)
            # None: the guard took no step, as loss or gradient is not finite.
            if taken is not None:
                yield step, *taken


def run(
    method: Method,
    trial: Trial,
    resume: Path | None = None,
    *,
    evaluate_every: int = 0,
    checkpoint_every: int = 1,
) -> Generator[Report]:
    """Train `method` to its end and report once an epoch (`step`, from 1).

    `resume` is the folder of a checkpoint to go on from; None: train from the beginning. `evaluate_every` and
    `checkpoint_every` are in epochs, 0 for the last one only. A trial without a fold is evaluated once, at the end: its
    test part is the dataset's own. Until an epoch has a gradient and changes a weight, each report has `untrained` 1.
    """
    evaluate_every = 0 if trial.fold is None else evaluate_every
    epoch = 0 if resume is None else restore(resume, method)
    guard = method.guard
    # Weights are compared only until an epoch has trained anything: later a gradient of 0 may mean that all is learned.
    sum_before = _sum_of_squared_weights(method) if guard.untrained else None
    # A checkpoint may be of the last epoch: then nothing is left to train.
    final = epoch > 0 and method.ends(epoch)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix("training")) as scratch:
        while not final:
            epoch += 1
            metrics = {**method.epoch(epoch), "nonfinite_steps": float(guard.nonfinite_steps)}
            if guard.untrained:
                unchanged = sum_before is not None and sum_before == _sum_of_squared_weights(method)
                guard.untrained = unchanged or metrics.get("grad_norm") == 0
                if guard.untrained:
                    metrics["untrained"] = 1.0
                    log.warning(
                        "%s: in epoch %d the gradient was 0, or no weight changed", trial.arm, epoch
                    )
            # The checkpoint is written before the evaluation, which may load other weights.
            final = method.ends(epoch)
            saved = None
            if final or _due(epoch, checkpoint_every):
                state = {name: getattr(guard, name) for name in KEPT_OF_GUARD}
                saved = checkpoint.save(
                    Path(scratch, "checkpoint"), method.parts, epoch=epoch, **state
                )
            if final or _due(epoch, evaluate_every):
                scores = method.evaluate(final, Path(scratch, "artifacts"))
                yield Report(
                    epoch, metrics | dict(scores.metrics), saved, scores.items, scores.artifacts
                )
            else:
                yield Report(epoch, metrics, saved)


def _sum_of_squared_weights(method: Method) -> float | None:
    """Return the sum of the squared weights of all networks that the method saves; None where it saves none.

    Two equal sums say that no weight has changed.
    """
    squares = []
    for part in method.parts.values():
        if isinstance(part, nn.Module):
            squares += [weight.detach().double().square().sum() for weight in part.parameters()]
    return float(torch.stack(squares).sum()) if squares else None


def _due(epoch: int, every: int) -> bool:
    """Whether `epoch` is one of those after which an action is due that is done once in `every` epochs.

    With `every` 3 these are epochs 3, 6, 9, ... With 0 it is done only after the last epoch: the answer is always
    False.
    """
    return every > 0 and epoch % every == 0


def restore(folder: Path, method: Method) -> int:
    """Restore the method from a checkpoint, and return the number of epochs that it was trained for."""
    state = checkpoint.restore(folder, method.parts)
    for name in KEPT_OF_GUARD:
        setattr(method.guard, name, state[name])
    epochs: int = state["epoch"]
    return epochs
