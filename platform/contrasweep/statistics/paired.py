"""Does A beat B, by how much, how sure, and what would it take to know."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from contrasweep.errors import SpecError
from contrasweep.statistics.checks import Floats, group_means, level, overlap, pairs, replicates, weighting
from contrasweep.statistics.intervals import constant, linearised, mean_interval
from contrasweep.statistics.power import replicates_for
from contrasweep.statistics.resampling import TIE, bca_interval, sign_flip_p, smallest_p

Verdict = Literal["better", "worse", "undecided"]
SIGN_FLIP = "sign-flip test"


@dataclass(frozen=True)
class Comparison:
    """A against B over paired replicates.

    `difference` is the mean of a - b in units of the metric, `low` to `high` its 1 - alpha interval by
    `interval`, `p_value` the two-sided p of `test`; `verdict` is about A. `probability_of_improvement` is the
    share of replicates where A beats B (ties half), `probability_low` to `probability_high` its Wilson
    interval. `sign_flip_p` and `smallest_p` belong to the exact test, whichever test decided; `n` counts
    replicates after averaging within `groups`; `deviation` is the standard deviation of the paired
    differences; `family` is the number of comparisons that `p_value` is adjusted for.
    """

    difference: float
    low: float
    high: float
    p_value: float
    verdict: Verdict
    probability_of_improvement: float
    probability_low: float
    probability_high: float
    n: int
    deviation: float
    alpha: float
    test: str
    interval: str
    sign_flip_p: float
    smallest_p: float
    train_fraction: float | None = None
    family: int = 1
    mode: Literal["max", "min"] = "max"
    differences: tuple[float, ...] = field(default=(), repr=False)

    @cached_property
    def replicates_needed(self) -> int | None:
        """Total number of replicates with which a true difference as large, relative to the noise, as the one
        seen is decided in 80 % of studies (at alpha / family, Holm's first step); None where no number is."""
        if self.n == 1 or self.difference == 0:
            return None
        effect = abs(self.difference) / self.deviation if self.deviation > 0 else math.inf
        needed = replicates_for(effect, alpha=self.alpha / self.family, train_fraction=self.train_fraction)
        return needed if needed is None or self.verdict != "undecided" else max(needed, self.n + 1)

    @cached_property
    def wilcoxon_p(self) -> float:
        """Two-sided p of Wilcoxon's signed-rank test of the same differences (SciPy's)."""
        if not np.any(self.differences):
            return 1.0
        return float(stats.wilcoxon(np.asarray(self.differences)).pvalue)

    @cached_property
    def bca(self) -> tuple[float, float]:
        """BCa interval (expanded) of the mean difference, for n replicates taken as independent."""
        return bca_interval(np.asarray(self.differences), self.alpha, expanded=True)

    @property
    def more_needed(self) -> int | None:
        """Replicates still missing for a decision; 0 when it is made, None when no number is enough."""
        if self.verdict != "undecided":
            return 0
        return None if self.replicates_needed is None else self.replicates_needed - self.n

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know beside the verdict, as sentences."""
        if self.n == 1:
            return ("one replicate tells nothing about noise",)
        if self.smallest_p > self.alpha:
            rest = "it cannot decide" if self.test == SIGN_FLIP else f"the {self.test} and its normality alone decide"
            return (f"with {self.n} replicates the exact test reaches no p below {self.smallest_p:.4g}: {rest}",)
        return ()

    def adjusted(self, p_value: float, family: int) -> "Comparison":
        """The same comparison judged by its adjusted p among a `family` of comparisons."""
        verdict = _verdict(self.difference, self.low, self.high, p_value, self.alpha, self.mode)
        return Comparison(**self._fields() | {"p_value": p_value, "verdict": verdict, "family": family})

    def reversed(self) -> "Comparison":
        """B against A."""
        turned = {"better": "worse", "worse": "better", "undecided": "undecided"}[self.verdict]
        return Comparison(
            **self._fields()
            | {
                "difference": -self.difference,
                "low": -self.high,
                "high": -self.low,
                "verdict": turned,
                "probability_of_improvement": 1 - self.probability_of_improvement,
                "probability_low": 1 - self.probability_high,
                "probability_high": 1 - self.probability_low,
                "differences": tuple(-d for d in self.differences),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields and derived numbers but the single differences, as JSON has them: None for an infinite end."""
        fields = {name: _plain(value) for name, value in self._fields().items() if name != "differences"}
        return fields | {
            "replicates_needed": self.replicates_needed,
            "wilcoxon_p": self.wilcoxon_p,
            "bca_low": _plain(self.bca[0]),
            "bca_high": _plain(self.bca[1]),
            "more_needed": self.more_needed,
            "notes": list(self.notes),
        }

    def sentence(self, a: str = "A", b: str = "B", metric: str = "") -> str:
        """The verdict in words, for people."""
        unit = f" {metric}" if metric else ""
        span = f"{self.difference:+.3g} [{self.low:+.3g}, {self.high:+.3g}]{unit}"
        p = f"p {_p_text(self.p_value)}{' by Holm' if self.family > 1 else ''}, n = {self.n}"
        if self.verdict != "undecided":
            return f"{a} is {self.verdict} than {b}: {span}, {p}."
        return f"{a} against {b} is undecided: {span}, {p}; {self._remedy()}."

    def _remedy(self) -> str:
        if self.n == 1:
            return "one replicate tells nothing about noise"
        if self.more_needed is not None:
            more = "1 more replicate" if self.more_needed == 1 else f"{self.more_needed} more replicates"
            return f"{more} would decide a difference this large"
        if self.difference == 0:
            return "no difference to decide"
        return "no number of further folds of this data would decide a difference of this size, it takes more data"

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        return self.sentence()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isinf(value) else value


def _p_text(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"= {p:.2g}"


def _verdict(difference: float, low: float, high: float, p: float, alpha: float, mode: str) -> Verdict:
    if p > alpha or low <= 0 <= high or difference == 0:
        return "undecided"
    return "better" if (difference > 0) == (mode == "max") else "worse"


def compare_paired(
    a: ArrayLike,
    b: ArrayLike,
    *,
    train_fraction: float | None = None,
    alpha: float = 0.05,
    mode: Literal["max", "min"] = "max",
    groups: Sequence[Any] | None = None,
    weights: ArrayLike | None = None,
) -> Comparison:
    """Compare A with B over paired replicates: `a[i]` and `b[i]` [n] are from the same fold and seed.

    What decides, and why:

    - `train_fraction` None (replicates are independent: fresh seeds): the sign-flip test, exact for
      n <= 14, with the interval that inverts it, so the two never disagree. It needs no normality and
      rejects in at most alpha of the null studies at every n; the price is that 5 replicates reach no p
      below 0.0625 and stay undecided. From 100 replicates on the interval is BCa and the verdict needs both.
    - `train_fraction` given (the share of rows a fold trains on, 0.8 for 5 folds): folds share training
      rows, and tests that take them as independent reject up to a quarter of true nulls. Nadeau and
      Bengio's (2003) corrected t decides, with its interval. It is exact when replicates correlate by
      1 - train_fraction and are normal.

    Several seeds on one fold share its test rows: give `groups` (the fold of each replicate), and the seeds
    of a fold are averaged before anything else. Replicates of unequal sizes (scenes of so many items) have `weights`:
    the difference is then the weighted mean, the sign-flip test and its interval are of it. `mode` says whether larger
    or smaller is better. Raises `SpecError` for unequal lengths, no replicate, or values that are not finite.
    """
    first, second = pairs(a, b)
    alpha, correction = level(alpha), overlap(train_fraction)
    if mode not in ("max", "min"):
        raise SpecError("mode says which is better", place="mode", value=mode, hint="'max' or 'min'")
    d = group_means(first - second, groups)
    w = weighting(
        None if weights is None else group_means(replicates(weights, "weights"), groups), len(d), train_fraction
    )
    if np.abs(d).max() <= TIE * max(np.abs(first).max(), np.abs(second).max(), 1e-300):
        d = np.zeros_like(d)
    n, mean = len(d), float(np.average(d, weights=w))
    spread = 0.0 if constant(d) else float(linearised(d, w).std(ddof=1))
    exact_p, interval = (
        sign_flip_p(d if w is None else d * w),
        mean_interval(d, train_fraction=train_fraction, alpha=alpha, weights=w),
    )
    p, test = exact_p, SIGN_FLIP
    if train_fraction is not None and n > 1 and spread > 0:
        t = mean / (spread * math.sqrt(1 / n + correction))
        p, test = float(2 * special.stdtr(n - 1, -abs(t))), "Nadeau-Bengio t-test"
    verdict = _verdict(mean, interval.low, interval.high, p, alpha, mode)
    won, low, high = _probability(d if mode == "max" else -d, alpha)
    return Comparison(
        difference=mean,
        low=interval.low,
        high=interval.high,
        p_value=p,
        verdict=verdict,
        probability_of_improvement=won,
        probability_low=low,
        probability_high=high,
        n=n,
        deviation=spread,
        alpha=alpha,
        test=test,
        interval=interval.method,
        sign_flip_p=exact_p,
        smallest_p=smallest_p(n),
        mode=mode,
        train_fraction=train_fraction,
        differences=tuple(float(x) for x in d),
    )


def _probability(d: Floats, alpha: float) -> tuple[float, float, float]:
    """Share of positive differences, zeros half, with Wilson's (1927) score interval."""
    n = len(d)
    share = float(((d > 0) + 0.5 * (d == 0)).mean())
    z = -float(special.ndtri(alpha / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return share, max(0.0, centre - half), min(1.0, centre + half)
