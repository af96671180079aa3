"""Whether a change is better and may be kept, with the error held over a whole stream of candidates.

A candidate is *screened* on few seeds and, where it looks better, *confirmed* on seeds that neither arm has used
before. Only confirmations may keep a candidate, so only they have a level, and the level is shared out over the stream
(`Rule.granted`). Their p-values are valid whatever the screen and the earlier candidates came to, because their seeds
are new.

Both stages count the Walsh averages (of two differences, or of one with itself) that are above 0: that is Wilcoxon's
signed-rank test, which is exact where an arm that changes nothing may be swapped with the incumbent in any seed. The
estimate is their median (Hodges and Lehmann 1963), and the interval's ends are two of them, so verdict, estimate and
interval cannot disagree.

Trainings collapse now and then, in either arm, and a few such seeds hide any gain from a mean and from ranks alike. So
differences that are far larger than most are left out whichever side they are on, which leaves the test exact; they are
counted by side instead, and a candidate that collapses or fails more often than the incumbent is not kept. Where the
incumbent did not collapse, the gain must also outweigh the collapses of the candidate that may not have shown.
`benchmarks/campaigns.py` compares the rule with others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from contrasweep.errors import SpecError
from contrasweep.statistics.checks import Floats
from contrasweep.statistics.group_sequential import POWER_WANTED, conditional_power, power_family
from contrasweep.statistics.resampling import constant, sign_flip_p

Verdict = Literal["keep", "discard", "undecided", "equivalent", "more"]
RESERVE = 0.1
"""The share of a confirmation's level that is left for seeds beyond `most`."""
HOPELESS = (0.7, 0.5)
"""A candidate whose one-sided p is above it on the first seeds, and a step later, is not screened further."""
FUTILE = 0.1
"""Below this chance of being kept by the last look a confirmation ends."""
COLLAPSED = 4.0
"""A gain this many times the (lower) median size of all that are not 0 is of a seed in which one arm collapsed."""
DEEP = 8.0
"""A gain so many times as far from the median as most tells how deep collapses are; heavy tails hardly reach it."""
OBJECTIONS = (0.3, 0.1)
"""One-sided levels at which more collapsed seeds, or a lower mean, object to keeping: 2 against 0 before the last look,
where seeds to come may settle it, and 4 against 0 at the last."""
SURELY = 0.02
"""The level at which more collapsed seeds (6 against 0) end a confirmation (a screen ends at `OBJECTIONS[1]`), and the
chance that more collapse than may be `unseen`."""
PRESUMED = 16.0
"""How deep collapses are taken to be, in the median distance from the median gain, where nobody knows and none was."""
DRAWS = 200


@dataclass(frozen=True)
class Confirmation:
    """A confirmation in the ledger: the level that it was granted, whether it kept the candidate, and its p."""

    level: float
    kept: bool
    p: float


@dataclass(frozen=True)
class Ruling:
    """What a look at a confirmation says.

    `estimate` is the typical gain in the metric's unit (larger is better only for mode `max`), `low` to `high` its
    interval of coverage `confidence`, `p` the one-sided p of "no better". `why` says what stood against a candidate
    whose p alone would have kept it, or which collapses could overturn that it is kept.
    """

    verdict: Verdict
    estimate: float
    low: float
    high: float
    p: float
    seeds: int
    confidence: float
    why: str = ""


@dataclass(frozen=True)
class Rule:
    """When a campaign keeps a candidate.

    Args:
        alpha: The level of the whole stream.
        error: What `alpha` bounds: `family`, the chance that anything is kept wrongly; `fdr`, the expected share of
            what is kept wrongly among all that is kept.
        first: Seeds on which a candidate is screened.
        step: Seeds that are added at a time.
        most: Seeds of a confirmation at most.
        margin: The smallest difference that matters, in the metric's unit; None: equivalence is not asked.
        mode: Whether larger or smaller values are better.
        screen_level: The one-sided p at which a screened candidate is confirmed.
        simpler: Whether the candidate is simpler than the incumbent and need not be better: then it is tested that it
            is not worse by `margin`, and a verdict of `equivalent` may keep it.
    """

    alpha: float = 0.05
    error: Literal["family", "fdr"] = "family"
    first: int = 4
    step: int = 4
    most: int = 32
    margin: float | None = None
    mode: Literal["max", "min"] = "max"
    screen_level: float = 0.1
    simpler: bool = False

    def __post_init__(self) -> None:
        if min(self.first, self.step) < 1 or self.first + self.step > self.most:
            raise SpecError(
                "seeds have a first number, a step and a most that is at least first + step",
                place="seeds",
                value=f"first {self.first}, step {self.step}, most {self.most}",
                hint="for example first: 4, step: 4, most: 32",
            )
        # The smallest p of n seeds, where every gain is above 0, is 1 / 2^n.
        if 0.5 ** (self.first + self.step) > self.screen_level:
            raise SpecError(
                "no candidate can pass the screen on so few seeds",
                place="seeds",
                value=f"first {self.first}, step {self.step}",
                hint="for example first: 4, step: 4",
            )

    def screen(self, differences: ArrayLike) -> Literal["pass", "stop", "more"]:
        """Return what the screening seeds so far say: confirm the candidate, stop, or train more seeds.

        Args:
            differences: Candidate minus incumbent, one number a seed (of several folds or datasets their mean); NaN
                where the candidate failed for a cause of its own and the incumbent did not.
        """
        gains = self._gains(differences)
        # A candidate may end at any of three numbers of seeds, and pass from the second on.
        first, second, last = self.screens()
        if gains.seeds < first:
            return "more"
        # Collapses end a screen at the level at which they object at a last look: 4 against 0, say.
        if gains.seeds >= second and gains.collapses_p <= OBJECTIONS[1]:
            return "stop"
        if gains.seeds >= second and gains.p <= self.screen_level:
            return "pass"
        hopeless = HOPELESS[0] if gains.seeds < second else HOPELESS[1]
        return "stop" if gains.seeds >= last or gains.p > hopeless else "more"

    def screens(self) -> tuple[int, int, int]:
        """Return the numbers of seeds at which a candidate is screened; it may pass from the second on."""
        return self.first, self.first + self.step, self.first + 2 * self.step

    def granted(self, past: Sequence[Confirmation]) -> float:
        """Return the one-sided level of the next confirmation.

        `family`: the k-th share alpha / (k (k + 1)), where k - 1 confirmations kept nothing. What is kept gives its
        level back: levels until the first wrong keep are those of different k, whose sum is at most alpha (the online
        fallback of Tian and Ramdas 2021 is of this kind). `fdr`: LORD++ (Ramdas et al. 2017) with the same shares.

        Args:
            past: All earlier confirmations of the stream, in the order of the ledger.
        """
        # What the method grants, and at most what is left of alpha, to which with `fdr` each keep after the first adds.
        keeps = [i for i, confirmation in enumerate(past) if confirmation.kept]
        if self.error == "family":
            level = self.alpha * _share(len(past) - len(keeps) + 1)
            level_left = self.alpha - sum(
                confirmation.level for confirmation in past if not confirmation.kept
            )
        else:
            now = len(past)
            half = self.alpha / 2
            level = half * _share(now + 1)
            level += sum((half if i == keeps[0] else self.alpha) * _share(now - i) for i in keeps)
            level_left = self.alpha * max(1, len(keeps)) - sum(
                confirmation.level for confirmation in past
            )
        return max(0.0, min(level, level_left))

    def looks(self) -> tuple[int, ...]:
        """Return the numbers of seeds at which a confirmation is judged.

        If it is extended, looks follow in the same steps.
        """
        return tuple(range(self.first + self.step, self.most + 1, self.step))

    def look_level(self, level: float, look: int) -> float:
        """Return what a confirmation of `level` spends at `look` (from 0): all looks together spend at most `level`.

        So the test is exact however its looks depend on each other. The share grows as the square of the seeds
        (`power_family`); looks beyond `most` divide what is in reserve.
        """
        looks = self.looks()
        if look >= len(looks):
            return RESERVE * level * _share(look - len(looks) + 1)
        spent = power_family((1 - RESERVE) * level, np.array([0, *looks]) / looks[-1])
        return float(spent[look + 1] - spent[look])

    def confirm(
        self,
        differences: ArrayLike,
        level: float,
        look: int,
        *,
        screened: Sequence[float] = (),
        falls: Sequence[float] = (),
        depth: float = 0.0,
    ) -> Ruling:
        """Return what the seeds of a confirmation say at one of its looks.

        Args:
            differences: As for `screen`, of all seeds of the confirmation so far and of no others.
            level: What the confirmation was granted.
            look: The position of the look, from 0: there are `looks()[look]` seeds.
            screened: The differences of the candidate's screen, which tell of its collapses alone.
            falls: How deep collapses of the campaign were so far (`Gains.fell`), those of this candidate's screen too.
            depth: How far the candidate could fall, down to the worst value of its metric; 0 where nobody knows, and
                a depth is presumed until the campaign shows one. Where seeds to come could collapse so deep that the
                gain is lost, the candidate is kept at the last look at the earliest.
        """
        gains = self._gains(differences)
        now = self.look_level(level, look)  # what this look may spend of it
        if not depth and not any(falls):
            depth = PRESUMED * gains.spread
        # A gain within the allowance counts as none: the interval is shifted by it.
        low, high = (end - self._allowance for end in gains.interval(now))
        passes = low > -self._allowance
        last = look >= len(self.looks()) - 1
        surely = gains.collapses_p <= SURELY
        # Before the last look weaker signs of collapses object too, because later seeds can still clear them.
        why = gains.objection(OBJECTIONS[last]) if passes or surely else ""
        known_falls = [fell for fell in (*falls, gains.fell) if fell]
        # Collapses are taken to be as deep as the campaign has shown, before the last look also as deep as presumed.
        deep = max(float(np.median(known_falls)) if known_falls else 0.0, 0.0 if last else depth)
        every = (
            np.concatenate([gains.all, self._gains(screened).all]) if len(screened) else gains.all
        )
        if passes and not why and overturned(gains.estimate, every, deep):
            why = f"up to {unseen(every, deep):.0%} of its seeds may collapse, which would outweigh its gain"
        # Keep or call equivalent what passes, discard what surely collapses, and stop early what has hardly a chance.
        verdict: Verdict = "more"
        if passes and not why:
            verdict = "keep" if low > 0 else "equivalent"
            if overturned(gains.estimate, every, depth):
                why = f"up to {unseen(every, depth):.0%} of its seeds may collapse unseen"
        elif surely:
            verdict = "discard"
        elif (
            self.margin is not None
            and not self.simpler
            and -self.margin < low
            and high < self.margin
        ):
            verdict = "equivalent"
        elif last:
            hopeful = not why and self.chance(differences, level, gains.seeds) >= FUTILE
            verdict = "undecided" if hopeful else "discard"
        elif self._futile(gains.p, gains.seeds, level):
            verdict = "discard"
        # Back to the metric's own direction, without the allowance.
        ends = (low, gains.estimate - self._allowance, high)
        low, estimate, high = sorted(self._sign * end + 0.0 for end in ends)
        return Ruling(verdict, estimate, low, high, gains.p, gains.seeds, 1 - 2 * now, why)

    def chance(self, differences: ArrayLike, level: float, more: int) -> float:
        """Return the chance that `more` seeds keep the candidate or show it to be equivalent.

        The seeds to come are drawn from those that there are, with weights from the Bayesian bootstrap (Rubin 1981),
        so that it is not taken for known how good the candidate is. The draws are the same on every machine.
        """
        # The level of the look at which all seeds are there.
        d = self._gains(differences).all
        n = len(d) + more
        level = self.look_level(level, max(0, math.ceil((n - self.looks()[0]) / self.step)))
        rng = np.random.default_rng(0)
        # Each draw: weights of the present gains, by which `more` of them are drawn again as the seeds to come.
        shares = rng.dirichlet(np.ones(len(d)), DRAWS).cumsum(axis=1)
        following = d[(rng.uniform(size=(DRAWS, more, 1)) > shares[:, None, :-1]).sum(axis=2)]
        all_seeds = np.concatenate([np.broadcast_to(d, (DRAWS, len(d))), following], axis=1)
        # Then the test of `confirm` on all seeds of each draw: Walsh averages of those that have not collapsed.
        within_bound = np.abs(all_seeds) <= _bound(all_seeds)[:, None]
        critical = np.array([_critical(k, level) for k in range(n + 1)])[within_bound.sum(axis=1)]
        i, j = _pairs(n)
        pair_used = within_bound[:, i] & within_bound[:, j]
        averages = (all_seeds[:, i] + all_seeds[:, j]) / 2
        margin = self.margin or 0.0
        allowed = self._allowance
        better = ((averages > 0) & pair_used).sum(axis=1) >= critical
        no_worse = ((averages > allowed - margin) & pair_used).sum(axis=1) >= critical
        no_better = ((averages < allowed + margin) & pair_used).sum(axis=1) >= critical
        return float((better | no_worse & no_better).mean())

    @property
    def _sign(self) -> int:
        return 1 if self.mode == "max" else -1

    @property
    def _allowance(self) -> float:
        """What a candidate may lose and still be kept; all tests are of gains with it added."""
        return self.margin if self.simpler and self.margin is not None else 0.0

    def _gains(self, differences: ArrayLike) -> "Gains":
        """Return the gains, larger is better and with the allowance; a candidate that failed has lost everything."""
        d = self._sign * np.asarray(differences, np.float64)
        return Gains(np.where(np.isnan(d), -np.inf, d) + self._allowance)

    def _futile(self, p: float, n: int, level: float) -> bool:
        """Whether even a difference that is worth finding would hardly be found by the last look, from p at n seeds."""
        if level <= 0:  # the ledger has nothing left
            return True
        # The critical value of the last look, and a true difference, in its standard errors, that reaches it with the
        # chance `POWER_WANTED`.
        critical = -float(special.ndtri(self.look_level(level, len(self.looks()) - 1)))
        drift = critical + float(special.ndtri(POWER_WANTED))
        z = -float(special.ndtri(min(p, 1 - 1e-12)))
        return bool(conditional_power(z, n / self.looks()[-1], critical, drift) < FUTILE)


class Gains:
    """Gains by seed (larger is better), and the Walsh averages of the seeds in which neither arm collapsed or failed.

    Which seeds are left out depends on the sizes of all gains and not on their signs. So if the candidate changes
    nothing, each remaining sign is still that of a fair coin.
    """

    def __init__(self, gains: ArrayLike) -> None:
        self.all: Floats = np.sort(np.asarray(gains, np.float64))
        self.bound = float(_bound(self.all))
        inner = self.all[np.abs(self.all) <= self.bound]
        i, j = _pairs(len(inner))
        self.averages = np.sort((inner[i] + inner[j]) / 2)
        self.seeds = len(self.all)
        self.used = len(inner)

    @property
    def p(self) -> float:
        """The one-sided p of "no better"; averages of exactly 0 count against it, so that ties cost and never gain."""
        return float(_tail(self.used)[np.count_nonzero(self.averages > 0)])

    @property
    def estimate(self) -> float:
        """The median of the Walsh averages (Hodges and Lehmann 1963)."""
        middle = len(self.averages) - 1
        return float(self.averages[middle // 2] + self.averages[(middle + 1) // 2]) / 2

    def interval(self, level: float) -> tuple[float, float]:
        """Return the gains that neither one-sided test rejects at `level`: above 0 exactly where `p` <= `level`."""
        critical = _critical(self.used, level)
        if critical > len(self.averages):
            return -math.inf, math.inf
        return float(self.averages[-critical]), float(self.averages[critical - 1])

    @property
    def collapses(self) -> tuple[int, int]:
        """Numbers of seeds that were left out because the candidate, and because the incumbent, was far worse."""
        return int((self.all < -self.bound).sum()), int((self.all > self.bound).sum())

    @property
    def fell(self) -> float:
        """Median distance of the collapsed seeds from the median gain; 0 without any.

        Collapsed are those that are `DEEP` times as far away as is typical.
        """
        deep = self._far[self._far > DEEP * self.spread]
        return float(np.median(deep)) if len(deep) else 0.0

    @property
    def spread(self) -> float:
        """Median distance of the seeds that have not collapsed from the median gain."""
        return float(np.median(self._far)) if len(self._far) else 0.0

    @property
    def _far(self) -> Floats:
        """Distances of the gains from their median, without failed seeds and without zeros."""
        finite = self.all[np.isfinite(self.all)]
        distances: Floats = np.abs(finite - np.median(finite)) if len(finite) else finite
        return distances[distances > 0]

    @property
    def collapses_p(self) -> float:
        """The one-sided p of the sign test that the candidate collapses no more often than the incumbent."""
        worse, better = self.collapses
        return float(special.bdtr(better, worse + better, 0.5)) if worse else 1.0

    def objection(self, level: float) -> str:
        """Return why a candidate that is typically better is not kept at `level`; "" where nothing is against it."""
        if self.collapses_p <= level:
            worse, better = self.collapses
            return f"it failed or collapsed in {worse} of {self.seeds} seeds, and the incumbent in {better}"
        finite = self.all[np.isfinite(self.all)]
        if finite.sum() < 0 and sign_flip_p(finite) <= 2 * level:
            return "it is better in most seeds and so much worse in others that its mean is lower"
        return ""


def smaller(savings: ArrayLike, level: float) -> bool:
    """Whether a size is surely smaller: by the same amount in every seed, or by more than noise at `level`."""
    saved = np.asarray(savings, np.float64)
    saved = saved[np.isfinite(saved)]
    if not len(saved) or constant(saved):
        return bool(len(saved) and saved[0] > 0)
    return Gains(saved).p <= level


def unseen(gains: Floats, depth: float) -> float:
    """Return an upper bound on the share of seeds in which the candidate collapses by half of `depth` or more.

    The bound fails with a chance of at most `SURELY`. If none of n `gains` is such a collapse it is about 4/n (Clopper
    and Pearson 1934).
    """
    worse = int((gains < -depth / 2).sum())
    return float(special.bdtri(worse, len(gains), SURELY)) if worse < len(gains) else 1.0


def overturned(gain: float, gains: Floats, depth: float) -> bool:
    """Whether collapses of this `depth`, in as many seeds as `unseen` allows, would outweigh the typical gain.

    Never where the incumbent collapsed too: `Gains.objection` then compares how often they did.
    """
    return not (gains > depth / 2).any() and unseen(gains, depth) * depth > gain


def _share(k: int) -> float:
    """The k-th of shares 1/2, 1/6, 1/12, ...: all of them together come to 1."""
    return 1 / (k * (k + 1))


def _bound(gains: Floats) -> Floats:
    """Return the size [...] above which gains [..., n] are of a seed in which one arm collapsed or failed.

    It is `COLLAPSED` times the lower median of the sizes that are not 0.
    """
    sizes = np.sort(np.abs(gains), axis=-1)
    zeros = np.count_nonzero(sizes == 0, axis=-1, keepdims=True)
    middle = np.minimum(zeros + (sizes.shape[-1] - zeros - 1) // 2, sizes.shape[-1] - 1)
    bound: Floats = COLLAPSED * np.take_along_axis(sizes, middle, axis=-1)[..., 0]
    return bound


@lru_cache(maxsize=4096)
def _critical(n: int, level: float) -> int:
    """Return how many Walsh averages of n gains must be above 0 for a p of at most `level`."""
    # Tails fall as counts rise: of their negatives, which rise, the first that is not below -level.
    return int(np.searchsorted(-_tail(n), -level))


@lru_cache(maxsize=256)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indexes i <= j of all pairs of n gains, each gain with itself too."""
    return np.triu_indices(n)


@lru_cache(maxsize=256)
def _tail(n: int) -> Floats:
    """P(at least c of the Walsh averages of n symmetric differences are above 0), c = 0 to n (n + 1) / 2 + 1."""
    # The count is a sum of ranks 1 to n, each there or not with a chance of a half: rank by rank, its distribution is
    # half that without the rank and half the same moved up by it.
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.concatenate([ways, np.zeros(rank)]) / 2
        ways[rank:] += ways[: len(ways) - rank].copy()
    return np.append(np.cumsum(ways[::-1])[::-1], 0.0)
