"""The training loop of the LOCAL family, for any modality that fills `Inputs`."""

import math
import tempfile
import warnings
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from contrasweep.errors import DataError, SpecError
from contrasweep.trial import Report, Trial
from trainables import checkpoint, diagnostics, optimisation, seeding
from trainables.losses import NotFiniteError
from trainables.paired import artifacts, metrics
from trainables.paired.network import Joint
from trainables.paired.objective import Objective
from trainables.paired.samplers import SAMPLERS
from trainables.paired.schedules import alpha
from trainables.paired.settings import Recipe
from trainables.paired.tables import Embedded

COLLAPSED = 0.9
"""Mean cosine of the class centres of z above which the shift common to all pairs is all that z shows."""

EVAL_BATCH_ROWS = 256
"""Inputs per forward pass in an evaluation, and at most four batches: so it needs less memory than training does."""


class Inputs(Protocol):
    """A modality: its data on the device, its views, its network."""

    device: torch.device
    classes: int
    class_names: tuple[str, ...]
    train_labels: Tensor
    test_labels: Tensor
    test_rows: Any
    test_grouping: dict[str, Any]

    def model(self) -> Joint: ...
    def train_mode(self, model: Joint) -> None: ...
    def plain(self, split: str, rows: Tensor) -> tuple[Tensor, ...]: ...
    def epoch(self, *key: int | str | None) -> Callable[[Tensor, slice], tuple[Tensor, ...]]: ...


class Fit:
    """A trial in training."""

    def __init__(self, trial: Trial, recipe: Recipe, inputs: Inputs) -> None:
        self.trial, self.recipe, self.inputs, self.key = trial, recipe, inputs, (trial.seed, trial.fold)
        if len(inputs.train_labels) < recipe.batch_size:
            raise SpecError(
                "a batch must not be larger than the training part",
                place="batch_size",
                value=recipe.batch_size,
                hint=f"it has {len(inputs.train_labels)} rows",
            )
        if not len(inputs.test_labels):
            raise DataError(f"fold {trial.fold} of {trial.data.name} has no test rows")
        seeding.reseed(*self.key, "weights")
        self.model = inputs.model().to(inputs.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.objective = Objective(recipe, inputs.train_labels, inputs.classes, inputs.device)
        self.optimizer = optimisation.build_optimizer(
            recipe.optimizer, self.model.parameters(), recipe.learning_rate, recipe.weight_decay, recipe.momentum
        )
        self.per_epoch = len(inputs.train_labels) // recipe.batch_size
        self.schedule = optimisation.Schedule(
            recipe.learning_rate,
            recipe.epochs * self.per_epoch,
            min(recipe.warmup_epochs, recipe.epochs - 1) * self.per_epoch,
            warmup_from=recipe.learning_rate / 10,
        )
        self.nonfinite_steps, self.warned = 0, False
        self.last_batch: tuple[Tensor, Tensor, Tensor] | None = None  # contrastive loss on z, z, labels

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        return {"model": self.model, "optimizer": self.optimizer}

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train epoch 1, 2, ... and return the means over its steps."""
        seeding.reseed(*self.key, epoch)
        self.inputs.train_mode(self.model)
        order = SAMPLERS[self.recipe.sampler](
            self.inputs.train_labels, self.recipe.batch_size, seeding.generator(*self.key, epoch, "order")
        )
        views = [self.inputs.epoch(*self.key, epoch, f"view {i + 1}") for i in range(self.recipe.n_views)]
        weight = alpha(self.recipe.alpha_schedule, epoch - 1, self.recipe.epochs, self.recipe.alpha)
        taken = []
        for i, rows in enumerate(order):
            places = slice(i * len(rows), (i + 1) * len(rows))
            sides = [torch.cat(same) for same in zip(*(view(rows, places) for view in views), strict=True)]
            labels = self.inputs.train_labels[rows].repeat(self.recipe.n_views).to(self.inputs.device)
            self.optimizer.lr = self.schedule.at((epoch - 1) * self.per_epoch + i)
            taken.append(self.step(sides, labels, weight))
        return self._means([t for t in taken if t is not None], epoch) | {"alpha": weight}

    def step(self, sides: list[Tensor], labels: Tensor, weight: float) -> dict[str, Tensor] | None:
        """One optimiser step and its terms, or None where loss or gradient is not finite (then nothing moves)."""
        with torch.autocast(self.inputs.device.type, torch.bfloat16, enabled=self.recipe.autocast):
            out = self.model(*sides)
        try:
            loss, terms = self.objective(out, labels, weight)
        except NotFiniteError:
            self.nonfinite_steps += 1
            return None
        gradients = optimisation.gradients_of(self.optimizer, loss)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        if not torch.isfinite(loss + norm):
            self.nonfinite_steps += 1
            return None
        if self.recipe.clip:
            torch._foreach_mul_(gradients, (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step(gradients)
        self.last_batch = terms["contrast_z"].detach(), out.z.detach().float(), labels
        return {name: value.detach() for name, value in terms.items()} | {"loss": loss.detach(), "grad_norm": norm}

    def _means(self, taken: list[dict[str, Tensor]], epoch: int) -> dict[str, float]:
        if not taken:
            raise FloatingPointError(
                f"every step of epoch {epoch} had a loss or gradient that is not finite: lower learning_rate "
                f"({self.recipe.learning_rate}) or raise temperature ({self.recipe.temperature})"
            )
        means = {name: float(torch.stack([t[name] for t in taken]).double().mean()) for name in taken[0]}
        if self.last_batch is not None and self.last_batch[1].any():  # z is 0 by design for one side fed twice
            found = diagnostics.of_batch(self.objective.contrast, *self.last_batch)
            means |= {k: v for k, v in found.items() if math.isfinite(v)}  # a batch without pairs has no alignment
            if not self.warned:
                self.warned = diagnostics.warn_if_stuck(means, epoch, f"{self.trial.arm} (trial {self.trial.id})")
        return means | {
            "learning_rate": self.optimizer.lr,
            "nonfinite_steps": float(self.nonfinite_steps),
            "steps": float(epoch * self.per_epoch),
        }

    @torch.no_grad()
    def embed(self, split: str, rows: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> Embedded:
        """Rows of a split without augmentation."""
        self.model.eval()
        seen = []
        for chunk in torch.split(rows, min(EVAL_BATCH_ROWS, 4 * self.recipe.batch_size)):
            with torch.autocast(self.inputs.device.type, torch.bfloat16, enabled=self.recipe.autocast):
                out = self.model(*self.inputs.plain(split, chunk))
            seen.append((out.z, out.e_post, out.z_raw, out.logits.argmax(1)))
        z, e_post, z_raw, predicted = (torch.cat(column).cpu() for column in zip(*seen, strict=True))
        if not torch.isfinite(z_raw).all():
            raise FloatingPointError(
                f"the network gives embeddings that are not finite after {self.nonfinite_steps} steps that were "
                f"skipped for "
                f"that: lower learning_rate ({self.recipe.learning_rate}) or raise temperature "
                f"({self.recipe.temperature})"
            )
        return Embedded(z.float(), e_post.float(), z_raw.float(), predicted, labels[rows])

    def test(self) -> tuple[Embedded, dict[str, float]]:
        """The test part's embeddings, its scores and the geometry of its classes."""
        found = self.embed("test", torch.arange(len(self.inputs.test_labels)), self.inputs.test_labels)
        counts = torch.bincount(self.inputs.train_labels, minlength=self.inputs.classes)
        measured = metrics.scores(found.predicted, found.labels, counts)
        return found, measured | metrics.geometry(found.z, found.z_raw, found.labels, self.inputs.classes)

    def train_sample(self, limit: int = 2000) -> Embedded:
        """At most `limit` rows of the training part: what the contrastive loss itself has shaped."""
        rows = torch.randperm(len(self.inputs.train_labels), generator=seeding.generator(*self.key, "sample"))[:limit]
        return self.embed("train", rows.sort().values, self.inputs.train_labels)

    def final(self, folder: Path) -> tuple[dict[str, float], dict[str, Any], dict[str, Path]]:
        """Metrics, per-item values and artifacts of the last report."""
        found, measured = self.test()
        sample = self.train_sample()
        measured |= metrics.geometry(sample.z, sample.z_raw, sample.labels, self.inputs.classes, prefix="train_")
        if self.model.paired and measured.get("centre_cosine", 0.0) > COLLAPSED:
            warnings.warn(
                f"the class centres of z have a mean cosine of {measured['centre_cosine']:.2f}: z shows little "
                "but the shift common to all pairs; raise temperature or lower beta",
                stacklevel=2,
            )
        items = {**metrics.by_item(found.predicted, found.labels), **self.inputs.test_grouping}
        files = {}
        if self.recipe.artifacts != "none":
            names = self.inputs.class_names or tuple(str(k) for k in range(self.inputs.classes))
            files = artifacts.write(
                folder, found, sample, self.inputs.test_rows, names, figures=self.recipe.artifacts == "figures"
            )
        return measured, items, files


def fit(trial: Trial, recipe: Recipe, inputs: Inputs, resume: Path | None) -> Generator[Report, None, None]:
    """Train and report once an epoch; `step` is the epoch, from 1.

    A report has the means over its steps; where an evaluation was due also `accuracy`, `f1_macro`, F1 per class and
    the geometry of z. The last one has the geometry on training rows, per-item values and artifacts: what is
    reported is the last epoch, never the best.
    """
    run, done = Fit(trial, recipe, inputs), 0
    if resume is not None:
        facts = checkpoint.restore(resume, run.parts)
        done, run.nonfinite_steps, run.warned = facts["epoch"], facts["nonfinite_steps"], facts.get("warned", False)
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as name:
        folder = Path(name)
        for epoch in range(done + 1, recipe.epochs + 1):
            last = epoch == recipe.epochs
            measured, saved = run.epoch(epoch), None
            items: dict[str, Any] = {}
            files: dict[str, Path] = {}
            if last:
                scores, items, files = run.final(folder / "artifacts")
                measured |= scores
            elif trial.fold is not None and _due(epoch, recipe.evaluate_every):
                measured |= run.test()[1]
            if last or _due(epoch, recipe.checkpoint_every):
                facts = {"epoch": epoch, "nonfinite_steps": run.nonfinite_steps, "warned": run.warned}
                saved = checkpoint.save(folder / "checkpoint", run.parts, **facts)
            yield Report(epoch, measured, saved, items, files)


def _due(epoch: int, every: int) -> bool:
    return every > 0 and epoch % every == 0
