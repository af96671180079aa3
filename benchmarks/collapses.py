"""Simulate studies some of whose trainings collapse, by the code that decides real ones.

    python -m benchmarks.collapses simulate [--studies 1000] [--seconds 500]   # goes on where it ended
    python -m benchmarks.collapses write       # benchmarks/results/collapses.md

Three arms are compared by an accuracy. A seed that collapses scores as chance; where one arm does so, the others are
lower by as much, so that all means are equal and every verdict is false.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from benchmarks.growing_studies import SPENDINGS, fixed, grow
from benchmarks.resumable import main

from contrasweep import Replicates
from contrasweep.statistics.comparison import Comparison, judge
from contrasweep.statistics.family import Family
from contrasweep.statistics.group_sequential import SpendingName

GOOD = 0.92
CHANCE = 0.10
NOISE = 0.01
"""The mean of seeds that do not collapse, that of those that do, and the standard deviation of both."""
BOUNDS = (0.0, 1.0)
LOOKS = {3: (10, 15), 8: (5, 5)}
"""By the number of looks the seeds at the first, and those added at each: the last is at 40."""
MOST = 40
RATES = (0.02, 0.05, 0.15, 0.30)
GAINS = (0.5, 0.75, 5.0, 20.0)


@dataclass(frozen=True)
class Row:
    """A row of the table: how its studies are drawn and looked at.

    The first arm collapses in a share `rate` of its seeds, or with `every` all arms do. Otherwise the third arm is
    better by `gain` standard deviations of a difference.
    """

    looks: int
    spending: SpendingName
    rate: float = 0.0
    every: bool = False
    gain: float = 0.0

    @property
    def means(self) -> Any:
        return np.array([[0.0, 0.0, self.gain * NOISE * math.sqrt(2)]])

    def study(self, seed: int) -> dict[str, Any]:
        """Simulate the study of this seed with looks, and the fixed design on the same draws."""
        rng = np.random.default_rng(seed)
        first_step = LOOKS[self.looks]
        others = self.rate if self.every else 0.0
        rates = np.array([self.rate, others, others])
        collapsed = rng.uniform(size=(1, 3, MOST)) < rates[:, None]
        # An arm that collapses less often is as much worse otherwise: but for the gain all means are equal.
        lower = (self.rate - rates) * (GOOD - CHANCE) - self.means[0] + self.means[0, 2]
        values = np.where(collapsed, CHANCE, (GOOD - lower)[:, None])
        values = values + NOISE * rng.normal(size=collapsed.shape)
        replicates = Replicates(
            first=first_step[0], step=first_step[1], most=MOST, spending=self.spending
        )
        grown = grow(values, self.means, replicates, None, None, BOUNDS)
        once = fixed(values, self.means, None)
        return {
            "wrong": grown.wrong(None),
            "unsaid": any(
                self.unsaid(*comparison)
                for comparison in zip(grown.truths, grown.decisions, grown.evidence, strict=True)
            ),
            "fixed": once.wrong(None),
            "decided": [grown.counts(None)["decided"][0], once.counts(None)["decided"][0]],
            "share": grown.share,
        }

    @staticmethod
    def unsaid(truth: float, decision: str, evidence: Any) -> bool:
        """Whether a verdict is false although its sentence warns of no collapse."""
        if decision not in ("better", "worse") or truth:
            return False
        family = Family(1)
        told = Comparison(evidence, family, judge([evidence], family)[0], bounds=BOUNDS)
        return "collapse" not in str(told)


ROWS = {
    f"{'all arms' if row.every else 'one arm'} {row.rate:g}, gain {row.gain:g}, {row.looks} looks, {row.spending}": row
    for looks in LOOKS
    for spending in SPENDINGS
    for row in (
        *(Row(looks, spending, rate, every) for every in (False, True) for rate in RATES),
        *(Row(looks, spending, gain=gain) for gain in GAINS),
    )
}


def study(kind: str, seed: int) -> dict[str, Any]:
    """Simulate the study of this kind and seed; no two kinds share draws."""
    return ROWS[kind].study(seed + 100_000 * list(ROWS).index(kind))


def rows(came: Mapping[str, Sequence[dict[str, Any]]], gains: bool) -> Iterator[str]:
    """Markdown rows: with `gains` of studies in which an arm gains, else of studies with equal means."""
    for kind, row in ROWS.items():
        known = came[kind]
        if bool(row.gain) != gains or not known:
            continue

        def rate(which: str, known: Sequence[dict[str, Any]] = known) -> str:
            share = float(np.mean([study[which] for study in known]))
            return f"{share:.3f} ± {2 * math.sqrt(share * (1 - share) / len(known)):.3f}"

        what = f"{row.looks} | {row.spending}"
        trials = f"{np.mean([one['share'] for one in known]):.0%} | {len(known)}"
        if gains:
            power = [float(np.mean([one["decided"][i] for one in known])) / 2 for i in (0, 1)]
            yield f"| {row.gain:g} sd | {what} | {power[0]:.3f} | {power[1]:.3f} | {trials} |"
        else:
            who = "all arms" if row.every else "one arm"
            numbers = " | ".join(map(rate, ("wrong", "fixed", "unsaid")))
            yield f"| {row.rate:.0%} | {who} | {what} | {numbers} | {trials} |"


def page(came: dict[str, list[Any]]) -> list[str]:
    return [
        "# Studies of which some trainings collapse, by simulation",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}; `python -m benchmarks.collapses`: three arms of equal mean accuracy (all "
        f"differences at alpha .05, {MOST} seeds at the last look), the looks and verdicts of `contrasweep run`. A "
        f"seed scores {GOOD:g} with a standard deviation of {NOISE:g}, and {CHANCE:g} where it collapses; arms that do "
        "not collapse are lower by what the first loses. Looks are at 10, 25 and 40 seeds or at 5, 10, ..., 40. "
        f"*Fixed* is one table of {MOST} seeds of the same draws. *Not told* counts false verdicts whose sentence "
        "names no collapse, seen or unseen.",
        "",
        "| collapse | of | looks | spending | any false verdict ± 2 se | fixed | not told | trials | N |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows(came, False),
        "",
        "Nothing collapses, and the third arm is better than both others by so many standard deviations of a "
        "difference: the share of these two differences that is decided. As an accuracy could fall to 0, a verdict "
        "before the last look takes a difference of about 3/n of the score: that is the price.",
        "",
        "| difference | looks | spending | decided | fixed | trials | N |",
        "|---|---|---|---|---|---|---|",
        *rows(came, True),
    ]


if __name__ == "__main__":
    main(__doc__, "collapses", ROWS, study, page)
