"""Replay a campaign of real trainings: forty candidates on digits with a long tail, thirty of which change nothing.

    python -m benchmarks.campaign_replay [--seconds 500] [--pool build/campaign_replay.jsonl]   # goes on if interrupted

Ten candidates change a setting of the incumbent. Thirty train the incumbent's settings under another name. Each arm has
random numbers of its own, so that what changes nothing scores differently too. One split; the metric is macro F1.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.campaigns import RULES, Campaign
from benchmarks.resumable import write_lines

from contrasweep import AblationGrid, Arm
from contrasweep.planning.planner import plan

TRAIN = "contrasweep.trainables.contrastive:train"
BASE: dict[str, Any] = {
    "encoder": {"name": "cnn", "width": 8},
    "loss": {"name": "supcon", "temperature": 0.2},
    "epochs": 6,
    "evaluate_every": 6,
    "batch_size": 128,
    "learning_rate": 0.1,
    "checkpoint_every": 0,
    "retrieval": False,
}
CHANGES: dict[str, dict[str, Any]] = {
    "batch size 64": {"batch_size": 64},
    "batch size 256": {"batch_size": 256},
    "temperature .1": {"loss": {"name": "supcon", "temperature": 0.1}},
    "temperature .5": {"loss": {"name": "supcon", "temperature": 0.5}},
    "SINCERE": {"loss": {"name": "sincere", "temperature": 0.2}},
    "learning rate .2": {"learning_rate": 0.2},
    "learning rate .05": {"learning_rate": 0.05},
    "9 epochs": {"epochs": 9, "evaluate_every": 9},
    "3 epochs": {"epochs": 3, "evaluate_every": 3},
    "width 16": {"encoder": {"name": "cnn", "width": 16}},
}
NOTHING = 30
FRESH = 24
"""Seeds by which it is judged afterwards what a kept candidate is worth."""
FIRST_FRESH = 500
METRIC = "f1_macro"


class Candidate(NamedTuple):
    name: str
    changes: bool


class RealArm(NamedTuple):
    names: tuple[str, ...]
    """Whose changes it has, in the order in which they were kept; each name has random numbers of its own."""


class TimeIsOver(Exception):
    """The trainings so far are in the pool, and the same command goes on."""


class Pool:
    """Scores by arm and seed in a file; what is missing is trained."""

    def __init__(self, file: Path, seconds: float) -> None:
        self.file, self.end = file, time.monotonic() + seconds
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text().splitlines() if file.exists() else []
        self.scores = {(tuple(names), seed): score for names, seed, score in map(json.loads, lines)}

    def score(self, arm: RealArm, seed: int) -> float:
        key = (arm.names, seed)
        if key not in self.scores:
            if time.monotonic() > self.end:
                raise TimeIsOver
            self.scores[key] = self._train(arm, seed)
            with self.file.open("a") as sink:
                sink.write(json.dumps([*key, self.scores[key]]) + "\n")
        return self.scores[key]

    def _train(self, arm: RealArm, seed: int) -> float:
        from contrasweep.trainables.contrastive import train

        config = dict(BASE)
        for name in arm.names:
            config |= CHANGES.get(name, {})
        own = sum(1 + NAMES.index(name) for name in arm.names[-1:]) + 100 * len(arm.names)
        study = AblationGrid(
            "replay", {"a": Arm(TRAIN, config=config)}, "digits-lt", folds=5, seeds=[seed + 1000 * own]
        )
        trial = next(one for one in plan(study, storage=str(self.file.parent)).trials if one.fold == 0)
        return float(list(train(trial))[-1].metrics[METRIC])


NAMES = [*CHANGES, *(f"nothing {i}" for i in range(NOTHING))]


class Scores:
    """Scores of an arm from a seed on, trained when they are read."""

    def __init__(self, pool: Pool, arm: RealArm, first: int) -> None:
        self.pool, self.arm, self.first = pool, arm, first

    def __getitem__(self, part: slice) -> np.ndarray:
        return np.array([self.pool.score(self.arm, self.first + i) for i in range(part.stop)])


class RealWorld:
    """What the rules of `benchmarks.campaigns` play in; seeds are handed out once."""

    fresh = False
    first = RealArm(())

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
    found, before = [], RealArm(())
    scores = {before: np.array([pool.score(before, FIRST_FRESH + i) for i in range(FRESH)])}
    for name, _, claim in campaign.kept:
        after = RealArm((*before.names, name))
        scores[after] = np.array([pool.score(after, FIRST_FRESH + i) for i in range(FRESH)])
        gains = scores[after] - scores[before]
        found.append((name, claim, float(gains.mean()), float(gains.std(ddof=1) / FRESH**0.5)))
        before = after
    gains = scores[before] - scores[RealArm(())]
    total = sum(claim for *_, claim in campaign.kept)
    return [*found, ("all that was kept", total, float(gains.mean()), float(gains.std(ddof=1) / FRESH**0.5))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--pool", type=Path, default=Path("build/campaign_replay.jsonl"))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "campaign_replay.md")
    options = parser.parse_args()
    pool, lines = Pool(options.pool, options.seconds), [f"# {(__doc__ or '').splitlines()[0]}", ""]
    lines += [
        "`python -m benchmarks.campaign_replay`. Ten candidates change one setting of the incumbent, thirty change "
        f"nothing but the random numbers. digits-lt, one split, {METRIC}. The incumbent: "
        "SupCon, temperature .2, batch size 128, 6 epochs. Worth: the mean gain on "
        f"{FRESH} seeds of both arms that no rule has seen, ± one standard error.",
        "",
        "| rule | trials | kept | claimed | worth on fresh seeds |",
        "|---|---:|---|---:|---:|",
    ]
    try:
        for rule in ("referee, `family`", "greedy: higher mean"):
            campaign = RULES[rule](RealWorld(pool), np.random.default_rng(0))
            for name, claim, gain, error in worth(pool, campaign):
                told = f"{rule} | {campaign.trials} | {name} | {claim:+.3f} | {gain:+.3f} ± {error:.3f}"
                lines.append(f"| {told} |")
    except TimeIsOver:
        print(f"{len(pool.scores)} trainings so far; the same command goes on")
        return
    write_lines(options.output, lines)


if __name__ == "__main__":
    main()
