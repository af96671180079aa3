"""Simulate campaigns of 40 candidates with a known truth and count what each rule of keeping gets right.

    python -m benchmarks.campaigns simulate --seconds 1500    # goes on if interrupted
    python -m benchmarks.campaigns write                      # writes benchmarks/results/campaigns.md

The unit is the standard deviation of the difference of two trainings with one seed (collapsed trainings left out). A
candidate's effect is its gain over the incumbent of its time. The rules of `contrasweep.statistics.referee` are called
as `contrasweep decide` calls them; beside them are three rules in common use, at eight seeds a candidate.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from benchmarks.resumable import main

from contrasweep.statistics.referee import Confirmation, Gains, Rule
from contrasweep.statistics.resampling import sign_flip_p

CANDIDATES = 40
SEEDS = 8
"""Seeds a candidate of the rules in common use: 40 candidates of two arms are 640 trials, the unit of costs."""
CHANCE = -10.0
"""What a collapsed training scores, in standard deviations from the first incumbent."""


class Arm(NamedTuple):
    quality: float
    collapses: float
    """The probability that a seed collapses to chance."""


class Candidate(NamedTuple):
    gain: float
    good: bool


@dataclass(frozen=True)
class World:
    """A simulated world: how scores scatter and what candidates are worth.

    A share of `good` candidates gains `effect`, the rest gain `others`. The rest also collapse in a share `failing` of
    their seeds, every other arm in .1 if noise is `collapsing`, else in none. `fresh` gives the incumbent new trials
    for each candidate; otherwise candidates share those that it has. With `floor` the score of a collapsed training is
    the metric's worst value, and rules know that.
    """

    noise: str
    effect: float = 0.0
    good: float = 0.0
    others: float = 0.0
    failing: float = 0.0
    fresh: bool = False
    floor: float = 0.0

    @property
    def first(self) -> Arm:
        return Arm(0.0, 0.1 if self.noise == "collapsing" else 0.0)

    def train(self, rng: np.random.Generator, arm: Arm, n: int) -> np.ndarray:
        if self.noise == "t3":
            noise = rng.standard_t(3, size=n) / math.sqrt(6)
        elif self.noise == "log-normal":  # a long tail of lucky trainings
            noise = (rng.lognormal(size=n) - math.exp(0.5)) / math.sqrt(2 * (math.e - 1) * math.e)
        else:
            noise = rng.normal(size=n) / math.sqrt(2)
        return np.where(rng.uniform(size=n) < arm.collapses, CHANCE, arm.quality + noise)

    def candidates(self, rng: np.random.Generator) -> list[Candidate]:
        """Draw the candidates of one campaign, in the order in which they are tried."""
        good = rng.permutation(CANDIDATES) < round(self.good * CANDIDATES)
        return [
            Candidate(self.effect if is_good else self.others, bool(is_good)) for is_good in good
        ]

    def arm(self, incumbent: Arm, candidate: Candidate) -> Arm:
        collapses = self.first.collapses
        return Arm(
            incumbent.quality + candidate.gain,
            collapses if candidate.good else max(self.failing, collapses),
        )


@dataclass
class Campaign:
    """Outcome of one campaign. Each of `kept` is a candidate that was kept, followed by the gain that was claimed."""

    kept: list[Any] = field(default_factory=list)
    trials: int = 0
    confirmations: int = 0


Keeper = Callable[[Any, np.random.Generator], Campaign]
"""Plays a campaign in a `World`, or in one of real trainings (`benchmarks.campaign_replay`)."""


def referee(rule: Rule) -> Keeper:
    """The product's rule: screen each candidate, confirm those that pass on fresh seeds of both arms, and keep what it
    keeps.
    """

    def run(world: Any, rng: np.random.Generator) -> Campaign:
        found = Campaign()
        incumbent = world.first
        ledger = list[Confirmation]()
        screening = None
        trained = 0
        most = rule.screens()[-1]
        falls = list[float]()
        for candidate in world.candidates(rng):
            arm = world.arm(incumbent, candidate)
            if world.fresh or screening is None:
                screening = world.train(rng, incumbent, most)
                trained = 0
            scores = world.train(rng, arm, most)
            for n in rule.screens():
                answer = rule.screen(scores[:n] - screening[:n])
                if answer != "more":
                    break
            screened = scores[:n] - screening[:n]
            found.trials += n + max(0, n - trained)
            trained = max(trained, n)
            if answer == "stop":
                falls.append(Gains(screened).collapse_depth)
                continue
            level = rule.granted(ledger)
            looks = rule.looks()
            # benchmarks.campaign_replay has none
            depth = arm.quality - CHANCE if getattr(world, "floor", 0.0) else 0.0
            known = [*falls, Gains(screened).collapse_depth]
            scores = world.train(rng, arm, looks[-1])
            theirs = world.train(rng, incumbent, looks[-1])
            for look, n in enumerate(looks):
                differences = scores[:n] - theirs[:n]
                ruling = rule.confirm(
                    differences, level, look, screened=screened, falls=known, depth=depth
                )
                if ruling.verdict != "more":
                    break
            falls.append(Gains(differences).collapse_depth or Gains(screened).collapse_depth)
            found.trials += 2 * n
            found.confirmations += 1
            ledger.append(Confirmation(level, ruling.verdict == "keep", ruling.p))
            if ruling.verdict == "keep":
                found.kept.append((*candidate, ruling.estimate))
                incumbent = arm
                screening = None
        return found

    return run


def one_by_one(keeps: Callable[[np.ndarray], bool]) -> Keeper:
    """A rule that tries candidates in turn and keeps each for whose differences [seeds] `keeps` is true."""

    def run(world: Any, rng: np.random.Generator) -> Campaign:
        found = Campaign(trials=0 if world.fresh else SEEDS)
        incumbent = world.first
        scores = world.train(rng, incumbent, SEEDS)
        for candidate in world.candidates(rng):
            arm = world.arm(incumbent, candidate)
            scores = world.train(rng, incumbent, SEEDS) if world.fresh else scores
            arm_scores = world.train(rng, arm, SEEDS)
            found.trials += SEEDS * (2 if world.fresh else 1)
            gains = arm_scores[:SEEDS] - scores[:SEEDS]
            if keeps(gains):
                found.kept.append((*candidate, float(gains.mean())))
                incumbent = arm
                scores = arm_scores
        return found

    return run


def best_of(world: World, rng: np.random.Generator) -> Campaign:
    """A rule that trains all candidates and keeps the best, if its mean is above the incumbent's."""
    candidates = world.candidates(rng)
    means = [
        world.train(rng, world.arm(world.first, candidate), SEEDS).mean()
        for candidate in candidates
    ]
    best = int(np.argmax(means))
    claim = float(means[best] - world.train(rng, world.first, SEEDS).mean())
    return Campaign([(*candidates[best], claim)] if claim > 0 else [], SEEDS * (CANDIDATES + 1))


RULES: dict[str, Keeper] = {
    "referee, `family`": referee(Rule(error="family")),
    "referee, `fdr`": referee(Rule(error="fdr")),
    "each better at .05": one_by_one(lambda d: d.mean() > 0 and sign_flip_p(d) <= 0.05),
    "greedy: higher mean": one_by_one(lambda d: bool(d.mean() > 0)),
    "best of 40": best_of,
}
TRUTHS: dict[str, dict[str, float]] = {
    "nothing to find": {},
    "4 of 40 gain 1.5 sd": {"effect": 1.5, "good": 0.1},
    "4 of 40 gain 1 sd": {"effect": 1.0, "good": 0.1},
    "4 of 40 gain 1.5 sd, the others lose .5 sd": {"effect": 1.5, "good": 0.1, "others": -0.5},
    "4 of 40 gain 1.5 sd, the others too, but they collapse in 4 of 10 seeds": {
        "effect": 1.5,
        "good": 0.1,
        "others": 1.5,
        "failing": 0.4,
    },
    **{
        f"all 40 gain .53 sd, but collapse in 1 of 20 seeds, so that no mean is higher; {what}": {
            "others": 0.53,
            "failing": 0.05,
            "floor": floor,
        }
        for what, floor in (("a metric without bounds", 0.0), ("its worst value is known", 1.0))
    },
    "4 of 40 gain 1.5 sd; the metric's worst value is known": {
        "effect": 1.5,
        "good": 0.1,
        "floor": 1.0,
    },
}
NOISES = ("normal", "t3", "log-normal", "collapsing")


KINDS = {
    f"{truth}/{rule}/{noise}/{incumbent}": (truth, rule, noise, incumbent)
    for truth, what in TRUTHS.items()
    for rule in RULES
    for noise in (NOISES[:1] if {"failing", "floor"} & set(what) else NOISES)
    for incumbent in ("shared", "fresh")
    if rule != "best of 40" or incumbent == "shared"
}


def study(kind: str, seed: int) -> dict[str, Any]:
    """Simulate one campaign of a kind, as a mapping of counts. The same seed gives all rules the same trainings."""
    truth, rule, noise, incumbent = KINDS[kind]
    rng = np.random.default_rng([list(TRUTHS).index(truth), NOISES.index(noise), seed])
    return asdict(RULES[rule](World(noise, fresh=incumbent == "fresh", **TRUTHS[truth]), rng))


def row(kind: str, campaigns: list[dict[str, Any]]) -> str:
    """One Markdown row: rates over campaigns. Only a candidate that is truly better counts as rightly kept."""
    truth, rule, noise, incumbent = KINDS[kind]
    good = CANDIDATES * TRUTHS[truth].get("good", 0.0) * len(campaigns)
    kept = np.array([len(campaign["kept"]) for campaign in campaigns])
    false = np.array([sum(not good for _, good, _ in campaign["kept"]) for campaign in campaigns])
    gain = sum(gain for campaign in campaigns for gain, _, _ in campaign["kept"])
    wrong = float((false > 0).mean())
    told = [
        f"{wrong:.3f} ± {math.sqrt(wrong * (1 - wrong) / len(campaigns)):.3f}",
        f"{false.mean():.2f}",
        f"{(false / np.maximum(1, kept)).mean():.3f}",
        f"{(kept - false).sum() / good:.3f}" if good else "-",
        f"{sum(claim for campaign in campaigns for *_, claim in campaign['kept']) / gain:.2f}"
        if gain > 0
        else "-",
        f"{np.mean([campaign['trials'] for campaign in campaigns]) / (2 * SEEDS * CANDIDATES):.2f}",
        f"{np.mean([campaign['confirmations'] for campaign in campaigns]):.1f}"
        if rule.startswith("referee")
        else "-",
    ]
    return "| " + " | ".join([rule, noise, incumbent, *told]) + " |"


def lines(came: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Lines of the results page, from the campaigns of each kind."""
    rule = Rule()
    counts = [len(campaigns) for campaigns in came.values()]
    text = [
        "# Campaigns of 40 candidates by simulation",
        "",
        f"`python -m benchmarks.campaigns`: {min(counts):,} campaigns a row.",
        "",
        f"The referee screens on {', '.join(map(str, rule.screens()))} seeds and confirms on "
        f"{', '.join(map(str, rule.looks()))} fresh seeds of both arms; alpha is {rule.alpha:g} for the whole stream. "
        f"The other rules train {SEEDS} seeds a candidate. The unit (sd) is the standard deviation of the difference "
        "of two trainings with one seed. In collapsing noise each seed of either arm scores as chance, "
        f"{-CHANCE:g} sd below the first incumbent, with probability .1. A shared incumbent has one set of screening "
        "trials for all candidates; a fresh one has new trials for each.",
        "",
        "any false: share of campaigns that keep anything wrongly, ± one standard error. false: kept wrongly in a "
        "campaign. FDR: mean share of what is kept that is wrong. true kept: share of the good ones. claim: the gains "
        "that the kept ones were said to bring, over those that they bring. trials: over 640, which are 40 candidates "
        "of two arms at eight seeds.",
    ]
    for truth in TRUTHS:
        text += ["", f"## {truth}", ""]
        text.append(
            "| rule | noise | incumbent | any false | false | FDR | true kept | claim | trials | confirmations |"
        )
        text.append("|---|---|---|" + "---:|" * 7)
        text += [
            row(kind, campaigns) for kind, campaigns in came.items() if KINDS[kind][0] == truth
        ]
    return text


if __name__ == "__main__":
    main(__doc__, "campaigns", KINDS, study, lines)
