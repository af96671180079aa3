"""Whether a change is better and may be kept, with the error held over a whole stream of candidates.

A candidate is *screened* on few seeds and, where it looks better, *confirmed* on seeds that neither arm has used
before. Only confirmations may keep a candidate, so only they have a level, and the level is shared out over the stream
(`Rule.granted`). Their p-values are valid whatever the screen and the earlier candidates came to, because their seeds
are new.

Both stages count the Walsh averages (of two differences, or of one with itself) that are above 0. That is Wilcoxon's
signed-rank test, which is exact where an arm that changes nothing may be swapped with the incumbent in any seed. The
estimate is the median of the averages (Hodges and Lehmann 1963), and two of them are the ends of the interval, so that
verdict, estimate and interval cannot disagree.

Trainings collapse now and then, in either arm, and a few such seeds hide any gain from a mean and from ranks alike. So
differences that are far larger than most are left out, whichever side they are on, which leaves the test exact. They
are counted by side instead: a candidate that collapses or fails more often than the incumbent is not kept. Where the
incumbent did not collapse, the gain must also outweigh collapses of the candidate that may not have shown.
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
from contrasweep.rows import Mode
from contrasweep.statistics.checks import Floats, floats
from contrasweep.statistics.group_sequential import POWER_WANTED, conditional_power, power_family
from contrasweep.statistics.resampling import constant, sign_flip_p

Verdict = Literal["keep", "discard", "undecided", "equivalent", "more"]
RESERVE = 0.1
"""The share of a confirmation's level that is left for seeds beyond `most`."""
HOPELESS_FIRST = 0.7
"""One-sided p above which a candidate is not screened further on the first seeds."""
HOPELESS_LATER = 0.5
"""One-sided p above which a candidate is not screened further from the second step on."""
FUTILE = 0.1
"""A confirmation ends where the chance of being kept by the last look is below this."""
COLLAPSED = 4.0
"""One arm has collapsed in a seed whose gain is larger than this many times the typical one. The typical gain is the
(lower) median size of all gains that are not 0."""
DEEP = 8.0
"""Gains this many times as far from the median gain as is typical tell how deep collapses are. Heavy tails hardly reach
so far."""
OBJECTION_EARLY = 0.3
"""One-sided level at which more collapsed seeds (2 against 0), or a lower mean, object to keeping a candidate before
the last look, where seeds to come may settle it."""
OBJECTION_LAST = 0.1
"""The same level at the last look (4 collapses against 0)."""
SURELY = 0.02
"""The level at which more collapsed seeds (6 against 0) end a confirmation; a screen ends at `OBJECTION_LAST`. It is
also the chance that `unseen` is too low a bound."""
PRESUMED = 16.0
"""How deep collapses are taken to be where none was seen: this many times the `Gains.spread`."""
DRAWS = 200
"""The number of draws of `Rule.chance`."""


@dataclass(frozen=True)
class Confirmation:
    """A confirmation in the ledger: the level that it was granted, whether it kept the candidate, and its p."""

    level: float
    kept: bool
    p: float


@dataclass(frozen=True)
class Ruling:
    """What a look at a confirmation says.

    `estimate` is the typical difference candidate - incumbent, in units of the metric, and `low` to `high` its interval
    of coverage `confidence`. `p` is the one-sided p of "no better", over `seeds`. `why` says what stood against a
    candidate whose p alone would have kept it. For a kept candidate it says how many unseen collapses would
    overturn that.
    """

    verdict: Verdict
    estimate: float
    low: float
    high: float
    p: float
    seeds: int
    confidence: float
    why: str


@dataclass(frozen=True)
class Rule:
    """When a campaign keeps a candidate.

    Args:
        alpha: The level of the whole stream.
        error: The error that `alpha` bounds. `family`: the chance that any candidate is kept wrongly; `fdr`: the
            expected share of wrong ones among the candidates that are kept.
        first: The number of seeds on which a candidate is screened first.
        step: The number of seeds that are added at a time.
        most: The most seeds of a confirmation.
        margin: The smallest difference that matters, in units of the metric; None: nothing is called equivalent.
        mode: Whether larger or smaller values are better.
        screen_level: The one-sided p up to which a screened candidate is confirmed.
        simpler: Whether the candidate is simpler than the incumbent and need not be better. The test is then whether it
            is worse by `margin` or more, and a verdict of `equivalent` may keep it.
    """

    alpha: float = 0.05
    error: Literal["family", "fdr"] = "family"
    first: int = 4
    step: int = 4
    most: int = 32
    margin: float | None = None
    mode: Mode = "max"
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
        # A candidate may pass from first + step seeds on. The smallest p of n seeds, where every gain is above 0, is
        # 1 / 2^n.
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
            differences: Candidate minus incumbent [seeds], of several folds or datasets their mean. NaN where the
                candidate failed for a cause of its own and the incumbent did not.
        """
        gains = self._gains(differences)
        # A candidate may be stopped at any of three numbers of seeds, and pass from the second on.
        first, second, last = self.screens()
        if gains.seeds < first:
            return "more"
        if gains.seeds >= second:
            # Collapses stop a screen at the level of their objection at the last look, such as 4 against 0.
            if gains.collapses_p <= OBJECTION_LAST:
                return "stop"
            if gains.p <= self.screen_level:
                return "pass"
        hopeless = HOPELESS_FIRST if gains.seeds < second else HOPELESS_LATER
        return "stop" if gains.seeds >= last or gains.p > hopeless else "more"

    def screens(self) -> tuple[int, int, int]:
        """Return the numbers of seeds at which a candidate is screened; it may pass from the second on."""
        return self.first, self.first + self.step, self.first + 2 * self.step

    def granted(self, past: Sequence[Confirmation]) -> float:
        """Return the one-sided level of the next confirmation.

        With `family` it is the k-th share of alpha, alpha / (k (k + 1)), where k - 1 confirmations kept nothing. A
        candidate that is kept gives its level back. So the levels up to the first wrong keep have different k, and
        their sum is at most alpha (the online fallback of Tian and Ramdas 2021 is of this kind). With `fdr` it is the
        level of LORD++ (Ramdas et al. 2017) with the same shares.

        Args:
            past: All earlier confirmations of the stream, in the order of the ledger.
        """
        # The method's level, but at most what is left of alpha. With `fdr` each keep after the first adds to alpha.
        keeps = [i for i, confirmation in enumerate(past) if confirmation.kept]
        if self.error == "family":
            level = self.alpha * _share(len(past) - len(keeps) + 1)
            spent = sum(confirmation.level for confirmation in past if not confirmation.kept)
            level_left = self.alpha - spent
        else:
            level = self.alpha / 2 * _share(len(past) + 1)
            # The first keep adds half of alpha, each later one alpha, in shares over the confirmations after it.
            added = [self.alpha / 2, *[self.alpha] * len(keeps)]
            level += sum(
                alpha * _share(len(past) - keep) for alpha, keep in zip(added, keeps, strict=False)
            )
            spent = sum(confirmation.level for confirmation in past)
            level_left = self.alpha * max(1, len(keeps)) - spent
        return max(0.0, min(level, level_left))

    def looks(self) -> tuple[int, ...]:
        """Return the numbers of seeds at which a confirmation is judged, up to `most`.

        If the confirmation is extended, further looks follow in the same steps.
        """
        return tuple(range(self.first + self.step, self.most + 1, self.step))

    def look_level(self, level: float, look: int) -> float:
        """Return the level that a confirmation of `level` spends at `look`, which counts from 0.

        All looks together spend at most `level`, so that the test is exact however its looks depend on each other. What
        is spent grows as the square of the seeds (`power_family`). Looks beyond `most` seeds divide the `RESERVE`.
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
            differences: Candidate minus incumbent as in `screen`, of the confirmation's own seeds so far.
            level: The level that the confirmation was granted.
            look: The number of the look, from 0: there are `looks()[look]` seeds.
            screened: The differences of the candidate's screen, which count for its collapses alone.
            falls: The depths of collapses in the campaign so far, also in this candidate's screen; each is a
                `Gains.collapse_depth`.
            depth: How far the candidate could fall, down to the worst value of its metric. 0 where nobody knows: a
                depth is then presumed until the campaign shows one. A candidate whose gain would not outweigh collapses
                of this depth in seeds to come is kept at the last look at the earliest.
        """
        # All gains have the allowance added, which is subtracted from the interval again. A candidate passes where the
        # interval with the allowance is above 0, at the level that this look may spend.
        gains = self._gains(differences)
        level_now = self.look_level(level, look)
        low, high = (end - self.allowance for end in gains.interval(level_now))
        passes = low > -self.allowance
        last = look >= len(self.looks()) - 1

        # What stands against the candidate: collapses, at weaker signs before the last look, as later seeds may clear
        # them; and collapses that may not have shown.
        surely_collapses = gains.collapses_p <= SURELY
        possible_depth = depth
        if not depth and not any(falls):
            possible_depth = PRESUMED * gains.spread
        all_gains = gains.all
        if len(screened):
            all_gains = np.concatenate([all_gains, self._gains(screened).all])
        objection = ""
        if passes or surely_collapses:
            objection = gains.objection(OBJECTION_LAST if last else OBJECTION_EARLY)
        if passes and not objection:
            # Unseen collapses are taken to be as deep as the campaign has shown, and before the last look also as deep
            # as is possible.
            known_depths = [known for known in (*falls, gains.collapse_depth) if known]
            taken_depth = float(np.median(known_depths)) if known_depths else 0.0
            if not last:
                taken_depth = max(taken_depth, possible_depth)
            if overturned(gains.estimate, all_gains, taken_depth):
                share = f"{unseen(all_gains, taken_depth):.0%}"
                objection = (
                    f"up to {share} of its seeds may collapse, which would outweigh its gain"
                )

        # Keep what passes, or call it equivalent where only the allowance made it pass. Discard what surely collapses,
        # and stop early what has hardly a chance.
        within_margin = self.margin is not None and -self.margin < low and high < self.margin
        verdict: Verdict = "more"
        why = objection
        if passes and not objection:
            verdict = "keep" if low > 0 else "equivalent"
            if overturned(gains.estimate, all_gains, possible_depth):
                share = f"{unseen(all_gains, possible_depth):.0%}"
                why = f"up to {share} of its seeds may collapse unseen"
        elif surely_collapses:
            verdict = "discard"
        elif within_margin and not self.simpler:
            verdict = "equivalent"
        elif last:
            hopeful = not objection and self.chance(differences, level, gains.seeds) >= FUTILE
            verdict = "undecided" if hopeful else "discard"
        elif self._futile(gains.p, gains.seeds, level):
            verdict = "discard"

        # Back to the metric's own direction, in which ends may change places; + 0.0 makes 0 of -0.
        ends = (low, gains.estimate - self.allowance, high)
        low, estimate, high = sorted(self._sign * end + 0.0 for end in ends)
        return Ruling(verdict, estimate, low, high, gains.p, gains.seeds, 1 - 2 * level_now, why)

    def chance(self, differences: ArrayLike, level: float, more: int) -> float:
        """Return the chance that `more` seeds keep the candidate or show it to be equivalent, by a test of `level`.

        The seeds to come are drawn from the present ones, with random weights by the Bayesian bootstrap (Rubin 1981),
        so that how good the candidate is does not count as known. The draws are the same on every machine.
        """
        d = self._gains(differences).all
        n = len(d) + more
        # The look at which all n seeds are there.
        look = max(0, math.ceil((n - self.looks()[0]) / self.step))
        spent = self.look_level(level, look)
        rng = np.random.default_rng(0)
        # In each draw the present gains have random weights, by which `more` of them are drawn as the seeds to come.
        shares = rng.dirichlet(np.ones(len(d)), DRAWS).cumsum(axis=1)
        # `shares` are the running sums of the weights. A uniform number picks the first gain whose sum is not below it.
        uniform = rng.uniform(size=(DRAWS, more, 1))
        following = d[(uniform > shares[:, None, :-1]).sum(axis=2)]
        all_seeds = np.concatenate([np.broadcast_to(d, (DRAWS, len(d))), following], axis=1)
        # The test of `confirm` on all seeds of each draw: it counts Walsh averages of seeds that have not collapsed.
        within_bound = np.abs(all_seeds) <= _bound(all_seeds)[:, None]
        critical_of_count = np.array([_critical(k, spent) for k in range(n + 1)])
        critical = critical_of_count[within_bound.sum(axis=1)]
        i, j = _pairs(n)
        pair_used = within_bound[:, i] & within_bound[:, j]
        averages = (all_seeds[:, i] + all_seeds[:, j]) / 2
        margin = self.margin or 0.0
        allowed = self.allowance
        better = ((averages > 0) & pair_used).sum(axis=1) >= critical
        no_worse = ((averages > allowed - margin) & pair_used).sum(axis=1) >= critical
        no_better = ((averages < allowed + margin) & pair_used).sum(axis=1) >= critical
        return float((better | (no_worse & no_better)).mean())

    @property
    def _sign(self) -> int:
        """1 where larger values of the metric are better, else -1; a gain is the difference times this factor."""
        return 1 if self.mode == "max" else -1

    @property
    def allowance(self) -> float:
        """How much a simpler candidate may lose and still be kept: `margin`. For any other candidate it is 0.

        Tests are of gains to which the allowance was added.
        """
        return self.margin if self.simpler and self.margin is not None else 0.0

    def _gains(self, differences: ArrayLike) -> "Gains":
        """Return the candidate's gains: the `differences`, turned so that larger ones are better, plus the allowance.

        A NaN in `differences` is a failed candidate, whose gain is minus infinity.
        """
        d = self._sign * floats(differences)
        return Gains(np.where(np.isnan(d), -np.inf, d) + self.allowance)

    def _futile(self, p: float, n: int, level: float) -> bool:
        """Whether the confirmation is hopeless: the last look would hardly find a difference that is worth finding.

        `p` is the p of the present look, at n seeds, and `level` is that of the confirmation.
        """
        if level <= 0:  # the ledger has no level left to grant
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

    Attributes:
        all: All gains, sorted.
        bound: The size of a gain beyond which one arm collapsed or failed.
        averages: The Walsh averages of the gains within the bound, sorted.
        seeds: The number of all gains.
        used: The number of gains within the bound.
    """

    def __init__(self, gains: ArrayLike) -> None:
        self.all: Floats = np.sort(floats(gains))
        self.bound = float(_bound(self.all)) if len(self.all) else 0.0
        inner = self.all[np.abs(self.all) <= self.bound]
        i, j = _pairs(len(inner))
        self.averages = np.sort((inner[i] + inner[j]) / 2)
        self.seeds = len(self.all)
        self.used = len(inner)

    @property
    def p(self) -> float:
        """The one-sided p of "no better"; averages of exactly 0 count as not better, so that ties never help."""
        return float(_tail(self.used)[np.count_nonzero(self.averages > 0)])

    @property
    def estimate(self) -> float:
        """The median of the Walsh averages (Hodges and Lehmann 1963)."""
        middle = len(self.averages) - 1
        return float(self.averages[middle // 2] + self.averages[(middle + 1) // 2]) / 2

    def interval(self, level: float) -> tuple[float, float]:
        """Return the interval of the gains that neither one-sided test rejects at `level`.

        It is above 0 exactly where `p` <= `level`.
        """
        critical = _critical(self.used, level)
        if critical > len(self.averages):
            return -math.inf, math.inf
        return float(self.averages[-critical]), float(self.averages[critical - 1])

    @property
    def collapses(self) -> tuple[int, int]:
        """The numbers of seeds that are left out: because the candidate, and because the incumbent, was far worse."""
        return int((self.all < -self.bound).sum()), int((self.all > self.bound).sum())

    @property
    def collapse_depth(self) -> float:
        """How deep collapses are: the median distance of deep gains from the median gain; 0 without any.

        Deep gains are more than `DEEP` times as far from the median gain as the `spread`.
        """
        deep = self._distances[self._distances > DEEP * self.spread]
        return float(np.median(deep)) if len(deep) else 0.0

    @property
    def spread(self) -> float:
        """The median distance of the gains from the median gain; 0 where all are equal."""
        return float(np.median(self._distances)) if len(self._distances) else 0.0

    @property
    def _distances(self) -> Floats:
        """The distances of the gains from their median, without failed seeds and without zeros."""
        finite = self.all[np.isfinite(self.all)]
        distances: Floats = np.abs(finite - np.median(finite)) if len(finite) else finite
        return distances[distances > 0]

    @property
    def collapses_p(self) -> float:
        """The one-sided p of a sign test that the candidate collapses no more often than the incumbent.

        It is 1 where the candidate never collapsed.
        """
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


def surely_smaller(savings: ArrayLike, level: float) -> bool:
    """Whether a candidate is surely smaller than the incumbent in some size, such as its number of parameters.

    `savings` [seeds] is the size of the incumbent less that of the candidate. It is surely smaller where the saving is
    above 0 and the same in every seed, or where the test at `level` shows savings above 0. False where no seed has a
    finite saving.
    """
    saved = floats(savings)
    saved = saved[np.isfinite(saved)]
    if not len(saved) or constant(saved):
        return bool(len(saved) and saved[0] > 0)
    return Gains(saved).p <= level


def unseen(gains: Floats, depth: float) -> float:
    """Return an upper bound on the share of seeds in which the candidate collapses by more than half of `depth`.

    The share is above the bound with a chance of at most `SURELY` (Clopper and Pearson 1934). If none of n `gains` is
    such a collapse, the bound is about 4/n.
    """
    worse = int((gains < -depth / 2).sum())
    return float(special.bdtri(worse, len(gains), SURELY)) if worse < len(gains) else 1.0


def overturned(gain: float, gains: Floats, depth: float) -> bool:
    """Whether collapses of this `depth`, in as many seeds as `unseen` bounds, would outweigh the typical `gain`.

    False where the incumbent collapsed in any seed: `Gains.objection` then compares how often both arms did.
    """
    return not (gains > depth / 2).any() and unseen(gains, depth) * depth > gain


def _share(k: int) -> float:
    """Return the k-th of the shares 1/2, 1/6, 1/12, ..., which sum to 1."""
    return 1 / (k * (k + 1))


def _bound(gains: Floats) -> Floats:
    """Return the size [...] above which gains [..., n] are of a seed in which one arm collapsed or failed.

    It is `COLLAPSED` times the lower median of the sizes that are not 0.
    """
    # Sorted sizes begin with the zeros; `middle` is where the lower median of the others stands.
    sizes = np.sort(np.abs(gains), axis=-1)
    zeros = np.count_nonzero(sizes == 0, axis=-1, keepdims=True)
    middle = zeros + (sizes.shape[-1] - zeros - 1) // 2
    bound: Floats = COLLAPSED * np.take_along_axis(sizes, middle, axis=-1)[..., 0]
    return bound


@lru_cache(maxsize=4096)
def _critical(n: int, level: float) -> int:
    """Return how many Walsh averages of n gains must be above 0 for a p of at most `level`."""
    # The tails fall as the count rises. `searchsorted` needs rising numbers: the first -tail that is at least -level.
    return int(np.searchsorted(-_tail(n), -level))


@lru_cache(maxsize=256)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indexes i <= j of all pairs of n gains, each gain with itself too."""
    return np.triu_indices(n)


@lru_cache(maxsize=256)
def _tail(n: int) -> Floats:
    """Return P(at least c of the Walsh averages of n symmetric differences are above 0), c = 0 to n (n + 1) / 2 + 1."""
    # The count is distributed as a sum of the ranks 1 to n, each of which is in the sum with a chance of a half. Rank
    # by rank its distribution is half that without the rank, and half the same moved up by the rank.
    chances = np.ones(1)
    for rank in range(1, n + 1):
        chances = np.concatenate([chances, np.zeros(rank)]) / 2
        chances[rank:] += chances[: len(chances) - rank]
    return np.append(np.cumsum(chances[::-1])[::-1], 0.0)
