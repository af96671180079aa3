"""A trial of `trainables.contrastive` in training; its epochs are run by `loop`."""

from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from contrasweep.data import open_dataset
from contrasweep.data.reading import Part
from contrasweep.errors import SpecError
from contrasweep.trainables import (
    augmentations,
    checkpoint,
    diagnostics,
    evaluation,
    images,
    joined_batch,
    loop,
    losses,
    optimisation,
    process_group,
    seeding,
)
from contrasweep.trainables.contrastive import transfer
from contrasweep.trainables.contrastive.averaging import Averaged
from contrasweep.trainables.contrastive.gradcache import chunked_step
from contrasweep.trainables.contrastive.sampling import SAMPLINGS
from contrasweep.trainables.contrastive.settings import Settings, initial_temperature
from contrasweep.trainables.contrastive.targets import Targets, looks_at_loss
from contrasweep.trainables.contrastive.temperature import LearnableTemperature
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.evaluation import pictures, target_noise
from contrasweep.trainables.losses import distributed
from contrasweep.trainables.losses.negatives import has_signed_scores, with_tally
from contrasweep.trainables.losses.tiled import Counts
from contrasweep.trainables.losses.weights import LearnedNumbers
from contrasweep.trainables.precision import full_precision
from contrasweep.trial import Trial


@dataclass(frozen=True)
class StepForReport:
    """One training step, as the report on it needs it: its loss without graph, its batch, and its counts."""

    loss: Tensor
    embeddings: Tensor
    """The embeddings of all views [n d], without graph; `labels` and `rows` [n] are those of their images."""
    labels: Tensor
    rows: Tensor
    negatives: Counts | None
    """Negatives with a score below 0, and all of them; None where the loss's scores have no sign."""
    chunks: dict[str, float]
    """Metrics of a batch that was encoded in chunks (see `gradcache`); empty where it was not."""


class Contrastive(loop.Trained):
    """A trial in training: data, network and optimizer on the device."""

    settings: Settings
    model: nn.Sequential

    def __init__(self, trial: Trial, settings: Settings) -> None:
        self.trial = trial
        self.settings = settings = settings.resolve(trial.data)
        # All draws follow from this key, but the order of rows may have a seed that several trials share.
        self.key = (trial.seed, trial.fold)
        order_seed = trial.seed if settings.order_seed is None else settings.order_seed
        self.order_key = (order_seed, trial.fold)
        self.device = process_group.device_of_rank(
            seeding.prepare_device(settings.device, settings.threads)
        )
        # The data: images of both parts, and the augmentation of each view.
        opened = [
            images.open_images(part, self.device, settings.resident_gib, settings.view_size)
            for part in parts_of(trial)
        ]
        # Images without labels may have one part only, which is then both.
        self.train = opened[0]
        self.test = opened[-1]
        self.normalise = images.Normalise(self.train)
        # Without named classes, the largest label says how many there are.
        self.classes = len(trial.data.classes) or 1 + int(max(part.labels.max() for part in opened))
        self.policies = [augmentations.policy_of(chosen) for chosen in settings.augmentations]
        # What is trained. The order is that of the draws: first the network, then the loss's weights and the targets.
        self.model = self._initial_network()
        self.loss = self._built_loss()
        per_epoch = max(1, len(self.train) // settings.batch_size)
        self.schedule = optimisation.Schedule.of(
            settings, per_epoch, constant=settings.schedule == "constant"
        )
        self.targets = self._targets()
        self.temperature: LearnableTemperature | None = None
        if settings.learnable_temperature:
            initial = initial_temperature(self.loss)
            self.temperature = LearnableTemperature(initial).to(self.device)
        # Targets may have a trained part (a predictor), and the temperature may be learned: one optimizer has all.
        trained = (self.model, self.targets.trained, self.temperature)
        self.trained = nn.ModuleList([part for part in trained if part is not None])
        self.optimizer = self._optimizer()
        self.average = Averaged(self.model, settings.ema) if settings.ema else None
        # The guard advises to raise the loss's temperature, but not where the targets do not use that loss.
        loss_in_use = settings.loss if looks_at_loss(settings.targets) else None
        self.guard = loop.Guard(settings.learning_rate, loss_in_use)

    def _initial_network(self) -> nn.Sequential:
        """Return the network on the device, with new random weights.

        If the trial starts from the checkpoint of another trial (`start_folder`), the encoder has the weights of that
        checkpoint.
        """
        # Seeded here, so that the initial weights depend on nothing that was drawn before.
        seeding.reseed(*self.key, "weights")
        model = network(self.settings, self.train.shape)
        # The network is the encoder, then the projection head.
        if self.trial.start_folder is not None:
            checkpoint.load_encoder(self.trial.start_folder, model[0])
        if distributed.processes() > 1:
            joined_batch.convert(model)
        return model.to(self.device)

    def _built_loss(self) -> losses.AnyLoss:
        """Return the loss, its own weights and buffers (if any) on the device."""
        loss = self.settings.build_loss()
        # Our losses without weights need no sizes; a loss of another package may ask for them.
        if self.settings.loss.name in losses.LOSSES and not loss.has_weights:
            return loss
        # The built network says the dimension of the embeddings.
        loss = self.settings.build_loss(self._dim(), self.classes)
        if loss.weights is not None:
            loss.weights.to(self.device)
        return loss

    def _optimizer(self) -> optimisation.Optimizer:
        """Return the optimizer of the network, joined with one of the loss's own weights where it has any."""
        s = self.settings
        optimizer: optimisation.Optimizer = s.optimizer.build(
            self.trained.parameters(), s.learning_rate
        )
        if self.loss.weights is None or not self.loss.has_weights:
            return optimizer
        rate = s.loss_learning_rate or s.learning_rate
        loss_optimizer = s.optimizer.build(self.loss.weights.parameters(), rate)
        return optimisation.WithOwnRates([optimizer, loss_optimizer], [1.0, rate / s.learning_rate])

    def _dim(self) -> int:
        """The dimension of the embeddings, found by embedding one black image."""
        with torch.no_grad():
            embeddings: Tensor = self.model.eval()(
                torch.zeros(1, *self.train.shape, device=self.device)
            )
        return embeddings.shape[1]

    def _targets(self) -> Targets:
        """Build the targets (momentum encoders, queues, predictors) for this network, and return them on the device."""
        dim = self._dim() if self.settings.targets.name != "batch" else 0
        # A momentum encoder is a copy of the network as it is now: in training mode, so that both normalise by batches.
        self.model.train()
        targets: Targets = self.settings.targets.build(self.model, self.schedule.steps, dim)
        # Targets that take any number of views have an attribute for it (see `Targets`).
        if hasattr(targets, "n_views"):
            targets.n_views = self.settings.n_views
        if distributed.processes() > 1:
            joined_batch.convert(targets.trained)
        # Parts that are no modules, such as queues, move to the device by themselves.
        for part in (targets.trained, *targets.parts.values()):
            if isinstance(part, nn.Module):
                part.to(self.device)
        return targets

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves and restores: name -> object with a `state_dict`."""
        optional = {
            "temperature": self.temperature,
            "average": self.average,
            "loss": self.loss.weights,
        }
        return {
            **super().parts,
            **self.targets.parts,
            **{name: part for name, part in optional.items() if part is not None},
        }

    def epoch(self, report: int) -> dict[str, float]:
        """Train the steps that belong to the report of this number, from 1, and return the report's metrics.

        The steps are those of a whole epoch. With `reports_per_epoch` n above 1 they are those of one of its n parts:
        for n = 2, report 3 is on the first half of epoch 2.
        """
        # What the loop numbers as epochs are reports here. Epochs count from 1, and the parts of an epoch from 0.
        parts = self.settings.reports_per_epoch
        epoch = (report - 1) // parts + 1
        part = (report - 1) % parts
        # Seeded anew, so that a resumed trial draws what an uninterrupted one does. The first part of an epoch draws
        # what a whole epoch without parts does.
        key = (*self.key, epoch, part) if part else (*self.key, epoch)
        seeding.reseed(*key)
        first, batches = self._batches_of_part(epoch, part)
        self.trained.train()
        # Loss and gradient norm of each step stay on the device, so that no step waits for it.
        measured: list[Tensor] = []
        negatives: list[Counts] = []
        last: StepForReport | None = None
        with closing(batches):
            for step, norm, last in self.steps(first, batches, self._gradients):
                measured.append(torch.stack([last.loss, norm]))
                if last.negatives is not None:
                    negatives.append(last.negatives)
                self._after_step(step)
        metrics = self.guard.means(measured, epoch) | {"learning_rate": self.optimizer.lr}
        assert last is not None  # a report has at least one step
        # Numbers that are learned beside the network, as they are now.
        if self.temperature is not None:
            metrics["temperature"] = self.temperature.value
        if isinstance(self.loss.weights, LearnedNumbers):
            metrics |= self.loss.weights.metrics()
        # How many negatives had a score below 0, over all steps of a loss in use; then the last batch's diagnostics.
        is_signed = has_signed_scores(self.loss) and looks_at_loss(self.settings.targets)
        counts = {"negative_cosines": negatives} if is_signed else {}
        negative_metrics = self.negative_metrics(self.loss, counts, report)
        return metrics | last.chunks | self._diagnose(last, report) | negative_metrics

    def _batches_of_part(
        self, epoch: int, part: int
    ) -> tuple[int, Generator[tuple[Tensor, Tensor]]]:
        """Return the first step and the batches of a part (0, 1, ...) of an epoch (1, 2, ...).

        Steps are those of the whole training, from 0. A batch is the views [n c h w] and the rows of their images, of
        which this process has its share. `SpecError` where an epoch has fewer batches than parts, or the processes
        cannot share a batch equally.
        """
        s = self.settings
        parts = s.reports_per_epoch
        # The rows of the whole epoch in the order of its batches.
        order = SAMPLINGS[s.sampling](
            self.train.labels.cpu(),
            seeding.generator(*self.order_key, epoch, "order"),
            s.batch_size,
            s.per_class,
        )
        size = min(s.batch_size, len(order))
        count = len(order) // size
        s.check_reports(count)
        # The numbers of the batches of this part: the epoch's batches are divided as evenly as they can be.
        batch_numbers = range(count * part // parts, count * (part + 1) // parts)
        rank, processes = distributed.rank_and_count()
        if size % processes:
            raise SpecError(
                f"a batch of {size} images is divided equally", place="resources", value=processes
            )
        stream = images.batches(
            self.train,
            self.normalise,
            self.policies,
            order,
            size,
            *self.key,
            epoch,
            batch_numbers=batch_numbers,
            share=(rank, processes),
        )
        # Every epoch has as many batches as this one.
        return (epoch - 1) * count + batch_numbers.start, stream

    def _after_step(self, step: int) -> None:
        """Update what follows the network after a step of this number (from 0): targets and averaged weights.

        A learned temperature that has fallen below its lower bound is put back to the bound.
        """
        self.targets.after_step(step)
        if self.average is not None:
            self.average.update()
        if self.temperature is not None:
            self.temperature.clip()

    def ends(self, report: int) -> bool:
        """Whether training ends after this report, which may be of a part of an epoch."""
        return report >= self.settings.epochs * self.settings.reports_per_epoch

    def _diagnose(self, last: StepForReport, report: int) -> dict[str, float]:
        """Return the metrics of `diagnostics.of_batch` for a report's last batch.

        A warning is logged the first time that all embeddings have collapsed (see `warn_if_stuck`).
        """
        # Other targets do not compare the batch with itself, so the loss has no collapse value for it.
        compared = self._loss() if self.settings.targets.name == "batch" else None
        batch = [last.embeddings, last.labels, last.rows]
        if distributed.processes() > 1:
            batch = [distributed.gather(values) for values in batch]
        metrics = diagnostics.of_batch(compared, last.loss, *batch)
        self.warn_if_stuck(metrics, report)
        return metrics

    def _gradients(
        self, batch: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, list[Tensor], StepForReport]:
        """Return the loss of a batch, its gradient for each parameter, and its `StepForReport`.

        `batch` is (views [n c h w], rows [n / n_views]): all first views, then all second ones, and so on, and the row
        of each image in the training part. Where several processes train the trial, it is the share of this process;
        loss and gradients are those of the whole batch.
        """
        views, rows = batch
        # Every view has the label and the row of its image.
        n_views = self.settings.n_views
        rows = rows.to(self.device).repeat(n_views)
        labels = self.train.labels[rows]
        # The tally counts negatives with a score below 0 while the loss is computed.
        loss, tally = with_tally(self._loss())

        def objective(embeddings: Tensor) -> Tensor:
            """Return the loss of the embeddings of all chunks, in full precision."""
            with full_precision(embeddings):
                value: Tensor = loss(embeddings.float(), labels, rows)
                return value

        chunk = self.settings.chunk_rows
        chunks: dict[str, float] = {}
        # Chunks do not use the targets: the settings allow chunks with `targets: batch` alone.
        if 0 < chunk < len(views):
            with self.autocast():
                chunked = chunked_step(
                    self.model, views, objective, self.optimizer.parameters, chunk
                )
            value, gradients, embeddings = chunked.loss, chunked.gradients, chunked.embeddings
            chunks = chunked.metrics
        else:
            with self.autocast():
                value, embeddings = self.targets.step(views, labels, rows, loss)
            gradients = optimisation.gradients_of(self.optimizer, value)
        # Each process has the gradient through its own rows, times the number of processes: their mean is that of all.
        if distributed.processes() > 1:
            gradients = process_group.average(gradients)
        step = StepForReport(
            value.detach(), embeddings.detach(), labels, rows, tally.counts, chunks
        )
        return value, gradients, step

    def _loss(self) -> losses.AnyLoss:
        """The loss, at the temperature as it is now."""
        if self.temperature is None or not isinstance(self.loss, losses.ComposedLoss):
            return self.loss
        return self.temperature.applied_to(self.loss)

    def embed(self, blocks: Iterable[Tensor]) -> Tensor:
        """Return features or embeddings (setting `evaluate_on`) of images without augmentation, float32 [n d].

        The images are uint8 [n c h w], in `blocks` of any number of images.
        """
        # With `ema`, the averaged weights are evaluated in place of the last.
        model = (self.model if self.average is None else self.average.model).eval()
        chunks = self.normalise.chunks(blocks, self.settings.evaluated_rows)
        return self.outputs(evaluated_network(model, self.settings), chunks)

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Return the scores of the held-out part.

        With `final` also the costlier scores (probe, retrieval), scores on other datasets, the score of each test item,
        and figures, which are written to `folder`. For images without labels there are scores on other datasets alone.
        """
        s = self.settings
        # The frozen network on other datasets, which needs no labels of its own training data.
        scores_elsewhere: dict[str, float] = {}
        if final:
            for other in transfer.open_others(s.transfer, self.trial.data, self.trial.fold):
                scores_elsewhere |= transfer.scores(other, self.embed, self.train.shape)
        if not self.train.labelled:
            return loop.Evaluation(scores_elsewhere)
        train = self.embed(self.train.blocks())
        test = self.embed(self.test.blocks())
        # `retrieval` is "always", or whether the last evaluation has it.
        wants_retrieval = s.retrieval == "always" or (final and s.retrieval)
        scores = evaluation.evaluate(
            train,
            self.train.labels,
            test,
            self.test.labels,
            self.classes,
            classifier=s.classifier,
            retrieval=wants_retrieval,
            probe=final,
            extra=s.extra_scores if final else (),
        )
        if not final:
            return loop.Evaluation(scores.metrics)
        # The first fold is 0; a trial without folds has None, and counts as one of the first fold.
        figures: dict[str, Path] = {}
        if s.figures is True or (s.figures == "first_fold" and not self.trial.fold):
            figures = self._figures(scores, train, test, folder)
        return loop.Evaluation(
            {**scores.metrics, **scores_elsewhere}, {**scores.items, **self.test.grouping}, figures
        )

    def _figures(
        self, scores: evaluation.EncoderScores, train: Tensor, test: Tensor, folder: Path
    ) -> dict[str, Path]:
        """Draw pictures of the embeddings of both parts, and histograms of similarities; return file name -> file.

        `train` and `test` are the embeddings [n d], or the features, that were scored. `scores` has the test items'
        similarities.
        """
        folder.mkdir(parents=True, exist_ok=True)
        trial = self.trial
        data = trial.data
        # The trial's id says which cell of its arm it is of.
        fold = "" if trial.fold is None else f", fold {trial.fold}"
        title = f"{trial.arm} on {data.name}{fold}, seed {trial.seed} ({trial.id})"
        # Some images, evenly spaced in the part's order, and their views as training draws them, but not normalised.
        # They are those of an epoch 0, which is never trained.
        rows = torch.linspace(0, len(self.train) - 1, pictures.VIEWED).long()
        batches = images.batches(self.train, None, self.policies, rows, len(rows), *self.key, 0)
        values, _ = next(batches)
        views = torch.split((values * 255).round().clamp(0, 255).byte(), len(rows))
        drawn = dict(
            pictures.draw(
                pictures.ShownPart(train, self.train.labels, self.train.take),
                pictures.ShownPart(test, self.test.labels, self.test.take),
                [self.train.take(rows), *views],
                data.classes,
                folder,
                title,
            )
        )
        return drawn | self._histograms(scores, folder, title)

    def _histograms(
        self, scores: evaluation.EncoderScores, folder: Path, title: str
    ) -> dict[str, Path]:
        """Draw histograms of the test items' similarities to target and noise (see `Neighbours`); return name -> file.

        There are four files: cosines over all items (`similarities_cosine.png`) and by each item's own class
        (`similarities_cosine_by_class.png`), and the same for arc lengths (`neg_arc_length`). `title` stands above
        each.
        """
        drawn: dict[str, Path] = {}
        cosines = [scores.items[f"{name}_similarity"] for name in ("target", "noise")]
        arc_lengths = [target_noise.arc_length(values) for values in cosines]
        for name, (target, noise) in (("cosine", cosines), ("neg_arc_length", arc_lengths)):
            text = {"title": title, "axis": f"{name} similarity"}
            overall = target_noise.histogram(target, noise)
            classes = target_noise.by_class(target, noise, self.test.labels.cpu().numpy())
            file = f"similarities_{name}.png"
            drawn[file] = target_noise.figure(overall, folder / file, **text)
            file = f"similarities_{name}_by_class.png"
            drawn[file] = target_noise.class_figure(
                classes, self.trial.data.classes, folder / file, **text
            )
        return drawn


def build(trial: Trial) -> Contrastive:
    """Return the method of a trial, ready to train; each process of a trial calls this."""
    return Contrastive(trial, Settings(**trial.config))


def parts_of(trial: Trial) -> list[Part]:
    """Return the training part and the test part: those of the trial's fold, or without one the dataset's own.

    A dataset without a test split gives its training part alone.
    """
    data = open_dataset(trial.data)
    if trial.fold is None and not trial.data.rows("test"):
        return [data.split("train")]
    return list(data.parts(trial.fold))


def network(settings: Settings, shape: Shape) -> nn.Sequential:
    """Return encoder and projection head for images of `shape` (channels, height, width).

    Their memory layout is channels last.
    """
    model = settings.build_network(shape)
    # Channels last saves a quarter of the time on CPUs.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def evaluated_network(model: nn.Sequential, settings: Settings) -> nn.Module:
    """Return the network that is evaluated: the encoder, or the encoder with its head (`evaluate_on`)."""
    return model[0] if settings.evaluate_on == "features" else model
