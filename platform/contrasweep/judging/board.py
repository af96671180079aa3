"""A board: arms in the order of their means, each with the ranks that it may have.

Every two arms are compared by the t-test of their differences, unpaired runs by Welch's t-test, and the p-values of all
pairs are adjusted by Holm's procedure. An arm's rank is at least 1 + the number of arms that are surely better, and at
most the number of arms less those that are surely worse. This holds for all arms at once with a chance of 1 - alpha.
"""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from contrasweep.errors import SpecError
from contrasweep.markdown_text import markdown_text
from contrasweep.reporting.formats import csv_text
from contrasweep.results.rendering import markdown_table, render_fragment
from contrasweep.statistics.design import Contrast, Design, contrast
from contrasweep.statistics.family import holm
from contrasweep.statistics.predictive import smallest_count_as_estimated
from contrasweep.statistics.unpaired import unpaired_contrast
from contrasweep.text_table import text_table


@dataclass(frozen=True)
class BoardRow:
    """An arm with its `rank` by the means, from 1; its true rank lies in `low` to `high`.

    `p_next` is the p of no difference from the next arm, not adjusted; None for the last arm.
    """

    rank: int
    arm: str
    mean: float
    low: int
    high: int
    p_next: float | None


@dataclass(frozen=True)
class Board:
    """A ranking of arms.

    `separable` counts the pairs of adjacent arms that differ at `alpha` each, `separable_holm` those that differ after
    Holm's correction over these pairs. `ties` are the arms that may be as good as the first one. `needed` replicates
    (`unit`) would separate the first two with a chance of 80 %; None: more than 32 times the present number. `single`
    are arms with one run, which have no rank. `design` says how the arms are compared, `columns` which role each column
    has.
    """

    rows: tuple[BoardRow, ...]
    alpha: float
    separable: int
    separable_holm: int
    ties: tuple[str, ...]
    needed: int | None
    unit: str
    single: tuple[str, ...] = ()
    design: str = ""
    columns: str = ""

    @property
    def lines(self) -> list[str]:
        """Sentences on how far the ranking is certain."""
        pairs = len(self.rows) - 1
        level = f"{self.alpha:g}"
        about_first = "the first is the best"
        if self.ties:
            others = ", ".join(self.ties[:8]) + (", ..." if len(self.ties) > 8 else "")
            about_first = f"{self.rows[0].arm} is not shown to be better than {len(self.ties)} others: {others}"
        times = "more than 32 times as many" if self.needed is None else f"about {self.needed}"
        lines = [
            f"{self.separable} of {pairs} adjacent pairs are separable at {level} each, {self.separable_holm} by Holm",
            about_first,
            f"to separate the first two with a chance of 80%: {times} {self.unit}s",
        ]
        if self.single:
            lines.append(f"without a rank, as one run tells nothing: {', '.join(self.single)}")
        return lines

    def cells(self) -> list[list[str]]:
        """Return the head of the table and one row for each arm, as text."""
        head = ["rank", "from-to", "arm", "mean", "p of the next"]
        rows = [
            [
                str(r.rank),
                f"{r.low}-{r.high}",
                r.arm,
                f"{r.mean:.5g}",
                "" if r.p_next is None else f"{r.p_next:.2g}",
            ]
            for r in self.rows
        ]
        return [head, *rows]

    def to_text(self, width: int = 100) -> str:
        """Return the design, the sentences and the table, for a terminal."""
        table = text_table(self.cells(), rule=True, width=width)
        return "\n".join([self.design, self.columns, "", *self.lines, "", *table]) + "\n"

    def to_markdown(self) -> str:
        """Return the design, the sentences and the table in Markdown, for a README."""
        paragraphs = map(markdown_text, (self.design, *self.lines))
        table = "\n".join(markdown_table(self.cells()))
        return "\n\n".join([*paragraphs, table]) + "\n"

    def to_csv(self) -> str:
        """Return the ranking as CSV, one row for each arm with a rank."""
        return csv_text(pd.DataFrame(map(vars, self.rows)))

    def to_dict(self) -> dict[str, object]:
        """Return all fields for JSON."""
        return vars(self) | {"rows": [vars(row) for row in self.rows]}

    def to_html(self) -> str:
        """Return the sentences and a table that draws the ranks which each arm may have."""
        head, *cells = self.cells()
        lines = (self.design, *self.lines)
        return render_fragment(
            "board.html", lines=lines, head=head, rows=self.rows, cells=cells, ties=self.ties
        )


class _Arms(NamedTuple):
    """The arms of a board, for which larger values are better.

    `values` has the values of each arm's replicates, `means` [arms] their means. `squares` and `degrees` are, for each
    two arms, the squared standard error of the difference of their means and its degrees of freedom: [arms, arms], or
    one number for all. `single` names the arms that are left out, as they have one run.
    """

    names: list[Any]
    values: Any
    means: Any
    squares: Any
    degrees: Any
    single: tuple[str, ...] = ()


def _unpaired(trials: pd.DataFrame) -> _Arms:
    """Return the arms of runs without a partner, which are compared by Welch's t-test."""
    by_arm = trials.groupby("arm", sort=False)["value"]
    runs = {arm: part.dropna().to_numpy() for arm, part in by_arm}
    single = tuple(str(arm) for arm, x in runs.items() if len(x) < 2)
    runs = {arm: x for arm, x in runs.items() if len(x) > 1}
    if len(runs) < 2:
        raise SpecError("two arms of a board have two runs or more", value=len(runs))
    values = list(runs.values())
    # The variance of the difference of two means, with Welch's degrees of freedom.
    variance_of_mean = np.array([x.var(ddof=1) / len(x) for x in values])
    welch_terms = variance_of_mean**2 / (np.array(list(map(len, values))) - 1)
    squares = variance_of_mean[:, None] + variance_of_mean
    degrees = squares**2 / np.maximum(welch_terms[:, None] + welch_terms, 1e-300)
    means = np.array([x.mean() for x in values])
    return _Arms(list(runs), values, means, squares, degrees, single)


def _paired(trials: pd.DataFrame, design: Design) -> _Arms:
    """Return the arms, which are compared by the t-test of their paired differences.

    Only replicates that all arms have count, so that every rank is over the same ones.
    """
    wide = trials.pivot_table(
        index="arm", columns="fold" if design.folds else "seed", values="value", sort=False
    )
    complete = wide.dropna(axis=1)
    if min(complete.shape) < 2:
        rule = f"a board has two arms or more, and all of them two {design.unit}s or more in common"
        raise SpecError(rule, value="{} and {}".format(*complete.shape))
    values = complete.to_numpy()
    n = values.shape[1]
    spread = np.cov(values)  # var(a - b) = var(a) + var(b) - 2 cov(a, b)
    squares = np.diag(spread)[:, None] + np.diag(spread) - 2 * spread
    squares = squares * (1 / n + design.overlap)
    return _Arms(list(complete.index), values, values.mean(axis=1), squares, n - 1.0)


def board_of(trials: pd.DataFrame, design: Design, mode: str, alpha: float) -> Board:
    """Return the board of trials (columns arm, fold, seed, value) of this design, without axes.

    With `mode` "max" larger values are better.

    Raises:
        SpecError: For less than two replicates that all arms have, or less than two arms with two runs.
    """
    sign = 1 if mode == "max" else -1
    trials = trials.assign(value=sign * trials["value"])
    arms = _unpaired(trials) if design.unit == "run" else _paired(trials, design)

    # The p of no difference of every two arms, all at once as arrays: 180 arms have 16,000 pairs.
    means = arms.means
    gain = means[:, None] - means
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -np.abs(gain) / np.sqrt(np.maximum(arms.squares, 0))
        p = np.where(gain == 0, 1.0, 2 * special.stdtr(arms.degrees, t))
    # Which two arms surely differ, with all pairs as one family.
    count = len(means)
    upper = np.triu_indices(count, 1)
    sure = np.zeros_like(p, dtype=bool)
    sure[upper] = holm(p[upper].tolist()) <= alpha
    sure |= sure.T

    # The arms in order, each with the ranks that it may have and the p to the next arm.
    order = np.argsort(-means, kind="stable")
    next_ps = np.array([p[i, j] for i, j in itertools.pairwise(order)])
    rows = []
    for place, i in enumerate(order):
        better = int((sure[i] & (gain[i] < 0)).sum())
        worse = int((sure[i] & (gain[i] > 0)).sum())
        rows.append(
            BoardRow(
                rank=place + 1,
                arm=str(arms.names[i]),
                mean=sign * float(means[i]),
                low=1 + better,
                high=count - worse,
                p_next=float(next_ps[place]) if place + 1 < count else None,
            )
        )
    # How many replicates would separate the first two, as the advice under a table forecasts it.
    first, second = (arms.values[i] for i in order[:2])
    now: Contrast
    if design.unit == "run":
        now = unpaired_contrast(first, second)
    else:
        folds = range(len(first)) if design.folds else None
        now = contrast(first - second, folds=folds, design=design)
    return Board(
        tuple(rows),
        alpha,
        separable=int((next_ps <= alpha).sum()),
        separable_holm=int((holm(next_ps.tolist()) <= alpha).sum()),
        ties=tuple(str(arms.names[i]) for i in order[1:] if not sure[order[0], i]),
        needed=smallest_count_as_estimated(now, "repeats" if design.folds else "seeds", alpha),
        unit="repeat" if design.folds else design.unit,
        single=arms.single,
    )
