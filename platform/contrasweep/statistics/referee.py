"""Whether a change is better and may be kept, with the error held over a whole stream of candidates.

A candidate is *screened* on few seeds and, where it looks better, *confirmed* on seeds that neither arm has used
before. Only confirmations may keep a candidate, so only they have a level, and the level is shared out over the stream
(`Rule.granted`). Their p-values are valid whatever the screen and the earlier candidates came to, because their seeds
are new.

Both stages count the Walsh averages (of two differences, or of one with itself) that are above 0: that is Wilcoxon's
signed-rank test, which is exact where an arm that changes nothing may be swapped with the incumbent in any seed. The
estimate is their median (Hodges and Lehmann 1963), and the interval's ends are two of them, so verdict, estimate and
interval cannot disagree, and a seed that collapses to chance counts as one seed and no more. `benchmarks/campaigns.py`
compares the rule with others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from contrasweep.errors import SpecError
from contrasweep.statistics.checks import Floats, checked_level
from contrasweep.statistics.group_sequential import FUTILE_BELOW, POWER_WANTED, conditional_power, power_family
from contrasweep.statistics.resampling import sign_flip_p

Verdict = Literal["keep", "discard", "undecided", "equivalent", "more"]
RESERVE = 0.1
"""The share of a confirmation's level that is left for seeds beyond `most`."""
HOPELESS = 0.5
"""A candidate whose one-sided p on the first seeds is above it is not screened further."""
COLLAPSED = 6.0
"""A difference this many robust standard deviations from the centre is of a seed in which one arm collapsed."""
OBJECTION = 0.05
"""The one-sided level at which more collapsed seeds, or a lower mean, object to a candidate."""
DRAWS = 400


@dataclass(frozen=True)
class Confirmation:
    """A confirmation in the ledger: the level that it was granted, and whether it kept the candidate."""

    level: float
    kept: bool
    p: float


@dataclass(frozen=True)
class Ruling:
    """What a look at a confirmation says.

    `estimate` is the typical gain in the metric's unit (larger is better only for mode `max`), `low` to `high` its
    interval of coverage `confidence`, `p` the one-sided p of "no better". `why` says what stood against a candidate
    whose p alone would have kept it.
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
    """

    alpha: float = 0.05
    error: Literal["family", "fdr"] = "family"
    first: int = 4
    step: int = 4
    most: int = 24
    margin: float | None = None
    mode: Literal["max", "min"] = "max"
    screen_level: float = 0.15

    def __post_init__(self) -> None:
        checked_level(self.alpha)
        checked_level(self.screen_level)
        if self.error not in ("family", "fdr"):
            raise SpecError("the error that alpha bounds is family or fdr", place="error", value=self.error)
        if self.mode not in ("max", "min"):
            raise SpecError("larger or smaller values are better: max or min", place="mode", value=self.mode)
        if min(self.first, self.step) < 1 or self.first + self.step > self.most:
            raise SpecError(
                "seeds have a first number, a step and a most that is at least first + step",
                place="seeds",
                value=f"first {self.first}, step {self.step}, most {self.most}",
                hint="for example first: 4, step: 4, most: 24",
            )
        if 0.5 ** (self.first + self.step) > self.screen_level:
            raise SpecError(
                "no candidate can pass the screen on so few seeds",
                place="seeds",
                value=f"first {self.first}, step {self.step}",
                hint="for example first: 4, step: 4",
            )
        if self.margin is not None and not 0 < self.margin < math.inf:
            raise SpecError("the smallest difference is a positive number", place="margin", value=self.margin)

    def screen(self, differences: ArrayLike) -> Literal["pass", "stop", "more"]:
        """Return what the screening seeds so far say: confirm the candidate, stop, or train more seeds.

        Args:
            differences: Candidate minus incumbent by seed; NaN where the candidate failed and the incumbent did not.
        """
        walsh = self._walsh(differences)
        n = _count(walsh)
        if n < self.first:
            return "more"
        p = _p(walsh)
        if n < self.first + self.step:
            return "more" if p <= HOPELESS else "stop"
        return "pass" if p <= self.screen_level else "stop"

    def granted(self, past: Sequence[Confirmation]) -> float:
        """Return the one-sided level of the next confirmation.

        `family`: the k-th share alpha / (k (k + 1)), where k - 1 confirmations kept nothing. What is kept gives its
        level back: levels until the first wrong keep are those of different k, whose sum is at most alpha (the online
        fallback of Tian and Ramdas 2021 is of this kind). `fdr`: LORD++ (Ramdas et al. 2017) with the same shares.

        Args:
            past: All earlier confirmations of the stream, in the order of the ledger.
        """
        kept = [i for i, one in enumerate(past) if one.kept]
        if self.error == "family":
            level = self.alpha * _share(len(past) - len(kept) + 1)
            left = self.alpha - sum(one.level for one in past if not one.kept)
        else:
            now, half = len(past), self.alpha / 2
            level = half * _share(now + 1)
            level += sum((half if i == kept[0] else self.alpha) * _share(now - i) for i in kept)
            left = self.alpha * max(1, len(kept)) - sum(one.level for one in past)
        return max(0.0, min(level, left))

    def looks(self) -> tuple[int, ...]:
        """Return the numbers of seeds at which a confirmation is judged; further looks follow in the same steps."""
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

    def confirm(self, differences: ArrayLike, level: float, look: int) -> Ruling:
        """Return what the seeds of a confirmation say at one of its looks.

        Args:
            differences: As for `screen`, of all seeds of the confirmation so far and of no others.
            level: What the confirmation was granted.
            look: The position of the look, from 0: there are `looks()[look]` seeds.
        """
        walsh = self._walsh(differences)
        n, p, now = _count(walsh), _p(walsh), self.look_level(level, look)
        low, high = _interval(walsh, now)
        why = _objection(walsh[0], float(np.median(walsh[1]))) if p <= now else ""
        verdict: Verdict = "more"
        if p <= now and not why:
            verdict = "keep"
        elif self.margin is not None and -self.margin < low and high < self.margin:
            verdict = "equivalent"
        elif look >= len(self.looks()) - 1:
            verdict = "undecided" if not why and self.chance(differences, level, n) >= FUTILE_BELOW else "discard"
        elif self._futile(p, n, level):
            verdict = "discard"
        low, estimate, high = sorted(self._sign * end + 0.0 for end in (low, float(np.median(walsh[1])), high))
        return Ruling(verdict, estimate, low, high, p, n, 1 - 2 * now, why)

    def chance(self, differences: ArrayLike, level: float, more: int) -> float:
        """Return the chance that `more` seeds keep the candidate, or show it to be equivalent.

        The seeds to come are drawn from those that there are, with weights from the Bayesian bootstrap (Rubin 1981),
        so that it is not taken for known how good the candidate is. The draws are the same on every machine.
        """
        d = self._walsh(differences)[0]
        n = len(d) + more
        level = self.look_level(level, max(0, math.ceil((n - self.looks()[0]) / self.step)))
        rng = np.random.default_rng(0)
        shares = rng.dirichlet(np.ones(len(d)), DRAWS).cumsum(axis=1)
        drawn = (rng.uniform(size=(DRAWS, more, 1)) > shares[:, None, :-1]).sum(axis=2)
        all_seeds = np.concatenate([np.broadcast_to(d, (DRAWS, len(d))), d[drawn]], axis=1)
        i, j = np.triu_indices(n)
        averages = (all_seeds[:, i] + all_seeds[:, j]) / 2
        critical, margin = _critical(n, level), self.margin or 0.0
        decided = (averages > 0).sum(axis=1) >= critical
        same = ((averages > -margin).sum(axis=1) >= critical) & ((averages < margin).sum(axis=1) >= critical)
        return float((decided | same).mean())

    @property
    def _sign(self) -> int:
        return 1 if self.mode == "max" else -1

    def _walsh(self, differences: ArrayLike) -> tuple[Floats, Floats]:
        """Gains by seed and their Walsh averages, both in rising order; a candidate that failed gains -infinity."""
        d = self._sign * np.asarray(differences, np.float64)
        if d.ndim != 1 or not len(d):
            raise SpecError("differences are a list of one number a seed", place="differences", value=differences)
        d = np.sort(np.where(np.isnan(d), -np.inf, d))
        i, j = np.triu_indices(len(d))
        return d, np.sort((d[i] + d[j]) / 2)

    def _futile(self, p: float, n: int, level: float) -> bool:
        """Whether even a difference that is worth finding would hardly be found by the last look."""
        critical = -float(special.ndtri(self.look_level(level, len(self.looks()) - 1)))
        drift = critical + float(special.ndtri(POWER_WANTED))
        z = -float(special.ndtri(min(p, 1 - 1e-12)))
        return bool(conditional_power(z, n / self.looks()[-1], critical, drift) < FUTILE_BELOW)


def _share(k: int) -> float:
    """The k-th of shares 1/2, 1/6, 1/12, ...: all of them together come to 1."""
    return 1 / (k * (k + 1))


def _count(walsh: tuple[Floats, Floats]) -> int:
    return len(walsh[0])


@lru_cache(maxsize=256)
def _tail(n: int) -> Floats:
    """P(at least c of the Walsh averages of n symmetric differences are above 0), c = 0 to n (n + 1) / 2 + 1."""
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.concatenate([ways, np.zeros(rank)]) / 2
        ways[rank:] += ways[: len(ways) - rank].copy()
    return np.append(np.cumsum(ways[::-1])[::-1], 0.0)


def _critical(n: int, level: float) -> int:
    """How many Walsh averages of n differences must be above 0 for a p of at most `level`."""
    return int(np.searchsorted(-_tail(n), -level))


def _p(walsh: tuple[Floats, Floats]) -> float:
    """The one-sided p of "no better"; averages of exactly 0 count against the candidate, so ties cost, never gain."""
    return float(_tail(_count(walsh))[np.count_nonzero(walsh[1] > 0)])


def _interval(walsh: tuple[Floats, Floats], level: float) -> tuple[float, float]:
    """The gains that neither one-sided test rejects at `level`: `low` is above 0 exactly where `_p` <= level."""
    averages, critical = walsh[1], _critical(_count(walsh), level)
    if critical > len(averages):
        return -math.inf, math.inf
    return float(averages[len(averages) - critical]), float(averages[critical - 1])


def _objection(d: Floats, centre: float) -> str:
    """What stands against a candidate that is typically better: it collapses more often, or its mean is lower."""
    scale = 1.4826 * float(np.median(np.abs(d - centre)))
    worse, better = int((d < centre - COLLAPSED * scale).sum()), int((d > centre + COLLAPSED * scale).sum())
    if scale and special.bdtr(better, worse + better, 0.5) <= OBJECTION:
        return f"it failed or collapsed in {worse} of {len(d)} seeds, and the incumbent in {better}"
    finite = d[np.isfinite(d)]
    if finite.sum() < 0 and sign_flip_p(finite) <= 2 * OBJECTION:
        return "it is better in most seeds and so much worse in others that its mean is lower"
    return ""
