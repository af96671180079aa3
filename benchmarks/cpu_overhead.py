"""What training costs on a CPU against a plain PyTorch loop: ratios of processor seconds in one process, in turns.

    python -m benchmarks.cpu_overhead [--storage FOLDER] [--turns 3]

The plain loop has its own SupCon, steps and schedule, and torch.optim; it shares the network's architecture. Of images
it is measured twice: with torchvision's transforms for each image, as people write it, and with the very views of the
method. Of pairs and reviews it takes network, batches and losses from the method, since no other code has them. With
the same batches the ratio is what guards, diagnostics, counts and optimisers cost. Evaluations are left out.
"""

import argparse
import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torchvision.transforms import v2

from contrasweep import AblationGrid, Arm
from contrasweep.data import open_dataset
from contrasweep.planning.planner import plan
from contrasweep.search_spaces import local
from contrasweep.trainables import seeding
from contrasweep.trainables.contrastive import Settings as ContrastiveSettings
from contrasweep.trainables.contrastive.method import Contrastive, network
from contrasweep.trainables.paired.fitting import PairedTraining
from contrasweep.trainables.paired_images.inputs import ImageInputs
from contrasweep.trainables.paired_images.settings import Settings as PairSettings
from contrasweep.trainables.review_helpfulness.corpora import load
from contrasweep.trainables.review_helpfulness.settings import Settings as ReviewSettings
from contrasweep.trainables.review_helpfulness.studies import claims, tables
from contrasweep.trainables.review_helpfulness.trainer import Trainer

SUPCON = {"encoder": "cnn", "loss": {"name": "supcon", "temperature": 0.2}, "learning_rate": 0.1}
JITTER = v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8)
PHOTOS = [v2.RandomHorizontalFlip(), JITTER, v2.RandomGrayscale(0.2)]


Both = tuple[Callable[[], Any], Callable[[], Any]]
"""Two functions to time: the product's training, and a plain PyTorch loop."""


def trial_of(arm: Arm, data: str, storage: str, folds: int | None = None) -> Any:
    """The first trial of an arm on a data set."""
    study = AblationGrid("overhead", {"arm": arm}, data, folds=folds, metric="loss", mode="min")
    return next(iter(plan(study, storage=storage).trials))


def supcon(z: torch.Tensor, labels: torch.Tensor, temperature: float) -> torch.Tensor:
    """Khosla et al. 2020, equation 2."""
    z = F.normalize(z, dim=1)
    diagonal = torch.eye(len(z), dtype=torch.bool)
    scores = (z @ z.T / temperature).masked_fill(diagonal, -torch.inf)
    log_p = scores - scores.logsumexp(1, keepdim=True)
    same = (labels[:, None] == labels) & ~diagonal
    return -(log_p.masked_fill(~same, 0).sum(1) / same.sum(1).clamp(min=1)).mean()


def images(
    storage: str, data: str, epochs: int, batch: int, views: v2.Transform | None = None
) -> Both:
    """On a dataset of images; without `views` both train on the same ready-made views."""
    arm = Arm(
        "contrasweep.trainables.contrastive:train",
        config=SUPCON | {"epochs": epochs, "batch_size": batch},
    )
    trial = trial_of(arm, data, storage)
    settings = ContrastiveSettings(**trial.config)

    def ours() -> None:
        method = Contrastive(trial, settings)
        for epoch in range(1, epochs + 1):
            method.epoch(epoch)

    def plain() -> None:
        part = open_dataset(trial.data).parts(trial.fold)[0]
        pixels = torch.from_numpy(np.asarray(part.array("image"))).permute(0, 3, 1, 2)
        labels = torch.tensor(part.labels)
        channels, height, width = pixels.shape[1:]
        shape = (channels, height, width)
        model = network(settings.resolve(trial.data), shape).train()
        sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, epochs * (len(pixels) // batch))
        method = None if views else Contrastive(trial, settings)
        for epoch in range(1, epochs + 1):
            for both, rows in (
                viewed(pixels, batch, views)
                if method is None
                else method._batches_of_part(epoch, 0)[1]
            ):
                loss = supcon(model(both), labels[rows].repeat(2), 0.2)
                sgd.zero_grad()
                loss.backward()
                sgd.step()
                schedule.step()

    return ours, plain


def viewed(
    pixels: torch.Tensor, batch: int, views: v2.Transform | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches of two views of each image, with the row numbers of the images."""
    mean, std = (
        moment(pixels.float() / 255, dim=(0, 2, 3)).tolist() for moment in (torch.mean, torch.std)
    )
    transform = v2.Compose([views, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])
    for rows in torch.randperm(len(pixels))[: len(pixels) // batch * batch].split(batch):
        yield (
            torch.cat([torch.stack([transform(pixels[row]) for row in rows]) for _ in range(2)]),
            rows,
        )


def pairs(storage: str, epochs: int = 2) -> Both:
    """For LOCAL: the plain loop has the same network, views and losses, and AdamW."""
    config = local.PAIRS_SMALL.arms["local"].config | {"epochs": epochs}
    trial = trial_of(Arm(local.PAIRS, config=config), "ombria", storage, 5)

    def built() -> PairedTraining:
        settings = PairSettings(**trial.config)
        device = seeding.prepare_device(settings.device, settings.threads)
        return PairedTraining(trial, ImageInputs(trial, settings, device))

    def ours() -> None:
        run = built()
        for epoch in range(1, epochs + 1):
            run.epoch(epoch)

    def plain() -> None:
        run = built()
        s = run.settings
        model = run.model.train()
        adam = torch.optim.AdamW(model.parameters(), s.learning_rate, weight_decay=0.05)
        for epoch in range(1, epochs + 1):
            for sides, labels in run._batches(epoch):
                out = model(*sides)
                contrast = run.objective.contrast(out.z, labels) + s.beta * run.objective.contrast(
                    out.latent, labels
                )
                loss = 0.5 * contrast + 0.5 * F.cross_entropy(
                    out.logits, labels, run.objective.weights
                )
                adam.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                adam.step()

    return ours, plain


def reviews(storage: str) -> Both:
    """For review helpfulness: the plain loop has the same network and batches, and Adam."""
    trial = trial_of(claims.BASELINES.arms["proposed"], tables.PLANTED_DATA, storage)
    settings = ReviewSettings(**trial.config).resolve(trial.data)
    data = load(trial, settings)

    def ours() -> None:
        Trainer(settings, data, (trial.seed, trial.fold)).train_epoch(1)

    def plain() -> None:
        run = Trainer(settings, data, (trial.seed, trial.fold))
        adam = torch.optim.Adam(run.model.parameters(), settings.learning_rate)
        rng = np.random.default_rng(0)
        run.model.train()
        for groups in run.sampler.batches(0, settings.sampler.groups):
            rows = groups.reshape(-1)
            batch = run.train.batch(rows, np.repeat(np.arange(len(groups)), groups.shape[1]))
            output = run.model(run.model.augment(batch, run.train, rows, rng))
            ranking = settings.loss.build(
                output.score.view(groups.shape),
                batch.label.view(groups.shape),
                settings.helpful_threshold,
            )
            loss = ranking + sum(output.losses.values())
            adam.zero_grad()
            loss.backward()
            adam.step()

    return ours, plain


def measure(
    ours: Callable[[], Any], plain: Callable[[], Any], turns: int
) -> tuple[float, float, list[float]]:
    """Time both in turns: median processor seconds of each, and the ratio of each turn.

    The first turn warms up and is left out.
    """
    seconds = np.zeros((turns + 1, 2))
    for turn in range(turns + 1):
        for place, run in ((0, ours), (1, plain))[:: 1 if turn % 2 else -1]:
            began = time.process_time()
            run()
            seconds[turn, place] = time.process_time() - began
    kept = seconds[1:]
    return *np.median(kept, 0).tolist(), (kept[:, 0] / kept[:, 1]).tolist()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--storage", default="./contrasweep-runs")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--to", type=Path, default=Path("benchmarks/results/cpu_overhead.md"))
    chosen = options.parse_args()
    torch.set_num_threads(1)
    digits = (chosen.storage, "digits-lt", 20, 64)
    crops = (chosen.storage, "cifar10-lt", 1, 128)
    affine = v2.RandomAffine(10, (0.1, 0.1), (0.9, 1.1))
    photos = v2.Compose([v2.RandomResizedCrop(32, (0.2, 1.0)), *PHOTOS])
    cases: dict[str, Callable[[], Both]] = {
        "SupCon, 8x8 digits, the same views": lambda: images(*digits),
        "SupCon, 8x8 digits, torchvision's affine views": lambda: images(*digits, affine),
        "SupCon, CIFAR crops, the same views": lambda: images(*crops),
        "SupCon, CIFAR crops, torchvision's photo views": lambda: images(*crops, photos),
        "LOCAL, OMBRIA's pairs, the same batches": lambda: pairs(chosen.storage),
        "proposed review model, synthetic reviews, the same batches": lambda: reviews(
            chosen.storage
        ),
    }
    lines = [
        "# Training on a CPU against a plain PyTorch loop",
        "",
        f"{datetime.date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores (load average "
        f"{os.getloadavg()[0]:.1f}), torch {torch.__version__}, one thread. By `python -m benchmarks.cpu_overhead`: "
        f"processor seconds, medians of {chosen.turns} turns in one process; compare within a row only. Evaluations "
        "are left out.",
        "",
        "| | contrasweep, s | plain loop, s | ratio, each turn |",
        "|---|---:|---:|---|",
    ]
    for name, case in cases.items():
        first, second, ratios = measure(*case(), chosen.turns)
        lines.append(
            f"| {name} | {first:.2f} | {second:.2f} | {', '.join(f'{one:.2f}' for one in sorted(ratios))} |"
        )
        print(lines[-1], flush=True)
    chosen.to.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
