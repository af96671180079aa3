"""Replay a campaign of real trainings: forty candidates on digits with a long tail, thirty of which change nothing.

    python -m benchmarks.campaign_replay [--pool build/campaign_replay.jsonl]   # goes on if interrupted

Ten candidates change a setting of the incumbent. Thirty train the incumbent's settings under another name. Each arm has
random numbers of its own, so that what changes nothing scores differently too. What is trained is a network of two
layers with the supervised contrastive loss, all seeds that are asked for at once; its score is the macro F1 of the
nearest class mean on one test split.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.campaigns import RULES, Campaign
from benchmarks.resumable import write_lines
from torch import Tensor

from contrasweep import AblationGrid, Arm
from contrasweep.data import open_dataset
from contrasweep.planning.planner import plan
from contrasweep.trainables.paired.metrics import scores
from contrasweep.trainables.raw_pixels import _pixels

NOTHING, ORDERS, FRESH, FIRST_FRESH = 30, 4, 60, 500
"""Candidates that change nothing; orders in which all are tried; seeds of the judgement of what was kept, and the first
of them."""
METRIC = "f1_macro"


@dataclass(frozen=True)
class Settings:
    batch_size: int = 64
    temperature: float = 0.5
    learning_rate: float = 0.3
    epochs: int = 6
    width: int = 32
    noise: float = 0.3


CHANGES: dict[str, dict[str, float]] = {
    "batch size 32": {"batch_size": 32},
    "batch size 128": {"batch_size": 128},
    "temperature .2": {"temperature": 0.2},
    "temperature 1": {"temperature": 1.0},
    "learning rate .6": {"learning_rate": 0.6},
    "learning rate .1": {"learning_rate": 0.1},
    "9 epochs": {"epochs": 9},
    "4 epochs": {"epochs": 4},
    "width 64": {"width": 64},
    "noise .1": {"noise": 0.1},
}
NAMES = [*CHANGES, *(f"nothing {i}" for i in range(NOTHING))]


class Candidate(NamedTuple):
    name: str
    changes: bool


class RealArm(NamedTuple):
    names: tuple[str, ...] = ()
    """Whose changes it has, in the order in which they were kept; each name has random numbers of its own."""

    @property
    def settings(self) -> Settings:
        settings = Settings()
        for name in self.names:
            settings = replace(settings, **CHANGES.get(name, {}))  # type: ignore[arg-type]
        return settings

    def random(self, seed: int) -> list[int]:
        return [seed, *(NAMES.index(name) + 1 for name in self.names)]


@cache
def split(storage: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels and labels of the training and of the test part of fold 0 of 2."""
    study = AblationGrid(
        "replay", {"a": Arm("contrasweep.trainables.raw_pixels:train")}, "digits-lt", folds=5, seeds=[0]
    )
    fit, test = open_dataset(plan(study, storage=storage).trials[0].data).parts(0)
    mean = _pixels(fit).mean(0)
    return _pixels(fit) - mean, torch.tensor(fit.labels), _pixels(test) - mean, torch.tensor(test.labels)


def train(arm: RealArm, seeds: Sequence[int], storage: str) -> list[float]:
    """The score of each seed; a seed's training does not depend on those that are trained beside it."""
    s, (x, y, test, truth) = arm.settings, split(storage)
    draws = [np.random.default_rng(arm.random(seed)) for seed in seeds]
    sizes = [(x.shape[1], s.width), (1, s.width), (s.width, 16)]
    weights = [
        torch.tensor(np.stack([rng.normal(size=size) / size[0] ** 0.5 for rng in draws]), dtype=torch.float32)
        for size in sizes
    ]
    weights[1].zero_()
    for w in weights:
        w.requires_grad_()

    def embed(values: Tensor) -> Tensor:
        hidden = torch.relu(values @ weights[0] + weights[1])
        return torch.nn.functional.normalize(hidden @ weights[2], dim=-1)

    optimizer = torch.optim.SGD(weights, lr=s.learning_rate, momentum=0.9)
    for _ in range(s.epochs):
        orders = np.stack([rng.permutation(len(x)) for rng in draws])
        for first in range(0, len(x) - s.batch_size + 1, s.batch_size):
            rows = torch.tensor(orders[:, first : first + s.batch_size])
            noise = np.stack([rng.normal(size=(s.batch_size, x.shape[1])) for rng in draws])
            z = embed(x[rows] + s.noise * torch.tensor(noise, dtype=torch.float32))
            logits = z @ z.transpose(1, 2) / s.temperature - 1e9 * torch.eye(s.batch_size)
            positive = (y[rows][:, :, None] == y[rows][:, None, :]) & ~torch.eye(s.batch_size, dtype=torch.bool)
            held = positive.sum(2)
            loss = -(logits.log_softmax(2) * positive).sum(2) / held.clamp(min=1)
            optimizer.zero_grad()
            ((loss * (held > 0)).sum(1) / (held > 0).sum(1)).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        z, classes = embed(x.expand(len(seeds), -1, -1)), int(y.max()) + 1
        means = torch.stack([z[:, y == c].mean(1) for c in range(classes)], dim=1)
        predicted = (embed(test.expand(len(seeds), -1, -1)) @ means.transpose(1, 2)).argmax(2)
    counts = torch.bincount(y, minlength=classes)
    return [float(scores(one, truth, counts)[METRIC]) for one in predicted]


class Pool:
    """Scores by arm and seed in a file; what is missing is trained."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text().splitlines() if file.exists() else []
        self.scores = {(tuple(names), seed): score for names, seed, score in map(json.loads, lines)}

    def read(self, arm: RealArm, seeds: Sequence[int]) -> np.ndarray:
        missing = [seed for seed in seeds if (arm.names, seed) not in self.scores]
        if missing:
            found = train(arm, missing, str(self.file.parent))
            self.scores |= {(arm.names, seed): score for seed, score in zip(missing, found, strict=True)}
            with self.file.open("a") as sink:
                sink.writelines(json.dumps([arm.names, *one]) + "\n" for one in zip(missing, found, strict=True))
        return np.array([self.scores[arm.names, seed] for seed in seeds])


class Scores:
    """Scores of an arm from a seed on, trained when they are read."""

    def __init__(self, pool: Pool, arm: RealArm, first: int) -> None:
        self.pool, self.arm, self.first = pool, arm, first

    def __getitem__(self, part: slice) -> np.ndarray:
        return self.pool.read(self.arm, range(self.first, self.first + part.stop))


class RealWorld:
    """What the rules of `benchmarks.campaigns` play in; each seed of an arm is handed out once."""

    fresh = False
    first = RealArm()

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.next: dict[RealArm, int] = {}

    def candidates(self, rng: np.random.Generator) -> list[Candidate]:
        return [Candidate(NAMES[i], NAMES[i] in CHANGES) for i in rng.permutation(len(NAMES))]

    def arm(self, incumbent: RealArm, candidate: Candidate) -> RealArm:
        return RealArm((*incumbent.names, candidate.name))

    def train(self, rng: np.random.Generator, arm: RealArm, n: int) -> Scores:
        first = self.next.get(arm, 0)
        self.next[arm] = first + n
        return Scores(self.pool, arm, first)


def worth(pool: Pool, campaign: Campaign) -> list[tuple[str, float, float, float]]:
    """Name, claim, gain on fresh seeds of both arms, and its standard error, of each that was kept; then of all."""

    def gain(after: RealArm, before: RealArm) -> tuple[float, float]:
        seeds = range(FIRST_FRESH, FIRST_FRESH + FRESH)
        gains = pool.read(after, seeds) - pool.read(before, seeds)
        return float(gains.mean()), float(gains.std(ddof=1) / FRESH**0.5)

    arms = [RealArm(tuple(name for name, *_ in campaign.kept[:i])) for i in range(len(campaign.kept) + 1)]
    found = [
        (name, claim, *gain(after, before))
        for (name, _, claim), before, after in zip(campaign.kept, arms, arms[1:], strict=False)
    ]
    return [*found, ("all of it", sum(claim for *_, claim in campaign.kept), *gain(arms[-1], arms[0]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=Path, default=Path("build/campaign_replay.jsonl"))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "campaign_replay.md")
    options = parser.parse_args()
    pool, means, first = Pool(options.pool), [], []
    for rule in ("referee, `family`", "referee, `fdr`", "each better at .05", "greedy: higher mean"):
        campaigns = [RULES[rule](RealWorld(pool), np.random.default_rng(order)) for order in range(ORDERS)]
        found = [worth(pool, one) for one in campaigns]
        nothing = np.mean([sum(not changes for _, changes, _ in one.kept) for one in campaigns])
        changes = np.mean([sum(changes for _, changes, _ in one.kept) for one in campaigns])
        claimed, gained = np.mean([one[-1][1:3] for one in found], axis=0)
        trials = np.mean([one.trials for one in campaigns])
        means.append(f"| {rule} | {trials:.0f} | {nothing:.1f} | {changes:.1f} | {claimed:+.3f} | {gained:+.3f} |")
        first += [f"| {rule} | {name} | {claim:+.3f} | {x:+.3f} ± {error:.3f} |" for name, claim, x, error in found[0]]
    lines = ["# Campaigns of real trainings", "", *(__doc__ or "").strip().splitlines(), ""]
    lines += [
        f"Worth: the mean gain in {METRIC} on {FRESH} seeds of both arms that no rule has seen.",
        f"Means over {ORDERS} orders in which the forty are tried:",
        "",
        "| rule | trials | kept of the 30 that change nothing | kept of the 10 | gain claimed | worth |",
        "|---|---:|---:|---:|---:|---:|",
        *means,
        "",
        "The first order, ± one standard error:",
        "",
        "| rule | kept | claimed | worth |",
        "|---|---|---:|---:|",
        *first,
    ]
    write_lines(options.output, lines)


if __name__ == "__main__":
    main()
