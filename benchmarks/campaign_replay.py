"""Replay campaigns of real trainings: forty candidates on images with a long tail, thirty of which change nothing.

    python -m benchmarks.campaign_replay --cifar10-lt FILE      # goes on if interrupted

Ten candidates change a setting of the incumbent. Thirty train the incumbent's settings under another name. Each arm has
random numbers of its own, so that what changes nothing scores differently too. What is trained is a network of two
layers with the supervised contrastive loss; its score is the macro F1 of the nearest class mean on one test split. Of
`cifar10-lt` it gets 1,000 images to learn from and 1,000 to be tested on, each of 8 x 8 pixels.

The referee's rows are decided by `Campaign.decide` itself, with its ledger and its studies in a storage; their trials
are trained in this process, one after the other, where Ray would start workers. Scores are kept in a file, so that no
arm is trained twice on one seed.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from benchmarks.campaigns import RULES
from benchmarks.campaigns import Campaign as Found
from benchmarks.resumable import write_lines
from tests.support.calm import calm_run
from torch import Tensor

from contrasweep import Arm, Campaign, Report, Trial
from contrasweep.campaign import campaign as deciding
from contrasweep.data import open_dataset, stage
from contrasweep.data.manifest import Manifest
from contrasweep.data.reading import Part
from contrasweep.data.resolving import default_place, resolve
from contrasweep.results.ledger import Ledger
from contrasweep.trainables.paired.metrics import scores

NOTHING = 30
FRESH = 60
FIRST_FRESH = 500
"""Candidates that change nothing; seeds of the judgement of what was kept, and the first of them."""
ORDERS = {"digits-lt": 2, "cifar10-lt": 1}
"""Orders in which all are tried."""
METRIC = "f1_macro"
SHOWN = {"digits-lt": "digits with a long tail", "cifar10-lt": "CIFAR-10 with a long tail, reduced"}
REDUCED = 1_000


@dataclass(frozen=True)
class Settings:
    batch_size: int = 64
    temperature: float = 0.5
    learning_rate: float = 0.3
    epochs: int = 6
    width: int = 32
    noise: float = 0.3


START = {"digits-lt": Settings(), "cifar10-lt": Settings(learning_rate=0.02, epochs=4)}
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

    def settings(self, data: str) -> Settings:
        settings = START[data]
        for name in self.names:
            settings = replace(settings, **CHANGES.get(name, {}))  # type: ignore[arg-type]
        return settings

    def random(self, seed: int) -> list[int]:
        return [seed, *(NAMES.index(name) + 1 for name in self.names)]


def pixels(part: Part) -> tuple[Tensor, Tensor]:
    """Images of a part as rows of numbers [n d]. Larger ones are scaled to 8 x 8 pixels, and some thousand taken."""
    images = torch.tensor(part.array("image"))
    labels = torch.tensor(part.labels)
    if images.shape[1] > 8:
        chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:REDUCED]
        images = images[chosen].float().movedim(3, 1)
        labels = labels[chosen]
        images = torch.nn.functional.avg_pool2d(images, images.shape[2] // 8)
    return images.float().flatten(1) / 255, labels


@cache
def split(digest: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels and labels of the training and of the test part."""
    (x, y), (test, truth) = map(pixels, open_dataset(MANIFESTS[digest]).parts(None))
    mean = x.mean(0)
    return x - mean, y, test - mean, truth


MANIFESTS: dict[str, Manifest] = {}


def score(arm: RealArm, seeds: Sequence[int], digest: str) -> list[float]:
    """Train an arm on each of these seeds and return the test scores, in the order of the seeds."""
    s = arm.settings(MANIFESTS[digest].name)
    x, y, test, truth = split(digest)
    draws = [np.random.default_rng(arm.random(seed)) for seed in seeds]
    sizes = [(x.shape[1], s.width), (1, s.width), (s.width, 16)]
    weights = [
        torch.tensor(
            np.stack([rng.normal(size=size) / size[0] ** 0.5 for rng in draws]), dtype=torch.float32
        )
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
            positive = (y[rows][:, :, None] == y[rows][:, None, :]) & ~torch.eye(
                s.batch_size, dtype=torch.bool
            )
            held = positive.sum(2)
            loss = -(logits.log_softmax(2) * positive).sum(2) / held.clamp(min=1)
            optimizer.zero_grad()
            ((loss * (held > 0)).sum(1) / (held > 0).sum(1)).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        z = embed(x.expand(len(seeds), -1, -1))
        classes = int(y.max()) + 1
        means = torch.stack([z[:, y == c].mean(1) for c in range(classes)], dim=1)
        predicted = (embed(test.expand(len(seeds), -1, -1)) @ means.transpose(1, 2)).argmax(2)
    counts = torch.bincount(y, minlength=classes)
    return [float(scores(labels_of_seed, truth, counts)[METRIC]) for labels_of_seed in predicted]


class Pool:
    """Scores by arm and seed, kept in a file. A score that the file lacks is computed by training."""

    def __init__(self, file: Path, digest: str) -> None:
        self.file = file
        self.digest = digest
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text().splitlines() if file.exists() else []
        self.scores = {(tuple(names), seed): score for names, seed, score in map(json.loads, lines)}

    def read(self, arm: RealArm, seeds: Sequence[int]) -> np.ndarray:
        missing = [seed for seed in seeds if (arm.names, seed) not in self.scores]
        if missing:
            found = score(arm, missing, self.digest)
            self.scores |= {
                (arm.names, seed): value for seed, value in zip(missing, found, strict=True)
            }
            with self.file.open("a") as sink:
                sink.writelines(
                    json.dumps([arm.names, *one]) + "\n" for one in zip(missing, found, strict=True)
                )
        return np.array([self.scores[arm.names, seed] for seed in seeds])


POOLS: dict[str, Pool] = {}


def train(trial: Trial, resume: Path | None = None) -> Iterator[Report]:
    """The trainable of the referee's campaigns."""
    pool = POOLS[trial.data.digest]
    yield Report(
        1, {METRIC: float(pool.read(RealArm(tuple(trial.config["names"])), [trial.seed])[0])}
    )


def decided(
    world: "RealWorld", data: str, error: Literal["family", "fdr"], order: int, storage: str
) -> Found:
    """Play a campaign through `Campaign.decide`, with candidates in this order, and return what it kept."""
    campaign = Campaign("replay", Arm(train, {"names": []}), data, metric=METRIC, error=error)
    found = Found()
    for candidate in world.candidates(np.random.default_rng(order)):
        now = campaign.incumbent_now(storage=storage)
        arm = Arm(train, {"names": [*now.config["names"], candidate.name]})
        decision = campaign.decide(
            arm, candidate.name.replace(" ", "-"), storage=storage, tracking=None
        )
        if decision.kept:
            found.kept.append((*candidate, decision.estimate))
    ledger = Ledger(storage, campaign.name).read()
    found.trials = ledger.spent.trials
    found.confirmations = len(ledger.confirmations)
    return found


class Scores:
    """Scores of an arm from one seed on. Each is trained when it is first read."""

    def __init__(self, pool: Pool, arm: RealArm, first: int) -> None:
        self.pool = pool
        self.arm = arm
        self.first = first

    def __getitem__(self, part: slice) -> np.ndarray:
        return self.pool.read(self.arm, range(self.first, self.first + part.stop))


class RealWorld:
    """The world of `benchmarks.campaigns` with trained networks instead of simulated ones.

    No seed of an arm is used twice.
    """

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


def worth(pool: Pool, campaign: Found) -> list[tuple[str, float, float, float]]:
    """Rows (name, claimed gain, gain on fresh seeds, its standard error), one for each candidate that was kept, then
    one for all.
    """

    def gain(after: RealArm, before: RealArm) -> tuple[float, float]:
        seeds = range(FIRST_FRESH, FIRST_FRESH + FRESH)
        gains = pool.read(after, seeds) - pool.read(before, seeds)
        return float(gains.mean()), float(gains.std(ddof=1) / FRESH**0.5)

    arms = [
        RealArm(tuple(name for name, *_ in campaign.kept[:i]))
        for i in range(len(campaign.kept) + 1)
    ]
    found = [
        (name, claim, *gain(after, before))
        for (name, _, claim), before, after in zip(campaign.kept, arms, arms[1:], strict=False)
    ]
    return [
        *found,
        ("all of it", sum(claim for *_, claim in campaign.kept), *gain(arms[-1], arms[0])),
    ]


def tables(data: str, pool: Pool, folder: str) -> list[str]:
    """Markdown tables of the campaigns on one dataset."""
    means = []
    first = []
    for rule in (
        "referee, `family`",
        "referee, `fdr`",
        "each better at .05",
        "greedy: higher mean",
    ):
        campaigns = []
        for order in range(ORDERS[data]):
            if rule.startswith("referee"):
                error: Literal["family", "fdr"] = "fdr" if "fdr" in rule else "family"
                campaigns.append(
                    decided(RealWorld(pool), data, error, order, f"{folder}/{data}-{error}-{order}")
                )
            else:
                campaigns.append(RULES[rule](RealWorld(pool), np.random.default_rng(order)))
        found = [worth(pool, one) for one in campaigns]
        nothing = np.mean([sum(not changes for _, changes, _ in one.kept) for one in campaigns])
        changes = np.mean([sum(changes for _, changes, _ in one.kept) for one in campaigns])
        claimed, gained = np.mean([one[-1][1:3] for one in found], axis=0)
        trials = np.mean([one.trials for one in campaigns])
        means.append(
            f"| {rule} | {trials:.0f} | {nothing:.1f} | {changes:.1f} | {claimed:+.3f} | {gained:+.3f} |"
        )
        first += [
            f"| {rule} | {name} | {claim:+.3f} | {x:+.3f} ± {error:.3f} |"
            for name, claim, x, error in found[0]
        ]
    return [
        f"## {SHOWN[data]}",
        "",
        f"The forty in {ORDERS[data]} orders, means:"
        if ORDERS[data] > 1
        else "The forty in one order:",
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
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cifar10-lt", type=Path, help="its published file; without it, digits alone"
    )
    parser.add_argument("--pools", type=Path, default=Path("build/campaign_replay"))
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "campaign_replay.md"
    )
    options = parser.parse_args()
    os.environ["CONTRASWEEP_DATA"] = str(options.pools.resolve() / "datasets")
    if options.cifar10_lt:
        stage(
            "cifar10-lt",
            default_place("cifar10-lt", storage=str(options.pools.resolve())),
            source=options.cifar10_lt,
        )
    deciding.run = lambda study, storage, **_: calm_run(study, storage)  # type: ignore[assignment,attr-defined]
    lines = ["# Campaigns of real trainings", "", *(__doc__ or "").strip().splitlines(), ""]
    lines += [
        f"Worth: the mean gain in {METRIC} on {FRESH} seeds of both arms that no rule has seen.",
        "",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for data in SHOWN if options.cifar10_lt else ["digits-lt"]:
            manifest = resolve(data, folds=None, storage=folder)
            MANIFESTS[manifest.digest] = manifest
            POOLS[manifest.digest] = pool = Pool(options.pools / f"{data}.jsonl", manifest.digest)
            lines += tables(data, pool, folder)
    write_lines(options.output, lines[:-1])


if __name__ == "__main__":
    from benchmarks import campaign_replay

    campaign_replay.main()  # under the name by which trials find their trainable
