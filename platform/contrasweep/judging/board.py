"""A board: arms in the order of their means, each with the ranks that it may have and what it ties with.

Every two arms are compared by the t-test of their differences (of unpaired runs by Welch's), and the p-values of all
pairs are Holm's. An arm's rank lies between 1 + the arms that are surely better and the number of arms less those that
are surely worse: for all arms at once with a chance of 1 - alpha.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from contrasweep.errors import SpecError
from contrasweep.markdown_text import markdown_text
from contrasweep.reporting.formats import csv_text
from contrasweep.results.rendering import markdown_table, render_fragment
from contrasweep.statistics.design import Contrast, Design, contrast
from contrasweep.statistics.family import holm
from contrasweep.statistics.predictive import enough_as_estimated
from contrasweep.statistics.unpaired import unpaired_contrast
from contrasweep.text_table import text_table


@dataclass(frozen=True)
class BoardRow:
    """An arm and its `rank`, from 1 by its mean; its true rank lies in `low` to `high`.

    `p_next` is the p of no difference to the next arm, not adjusted; None for the last arm.
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

    `separable` counts the adjacent pairs that differ at `alpha` each, `separable_holm` those that differ after Holm's
    correction over these pairs. `ties` are the arms that the first one is not surely better than. `needed` replicates
    (`unit`) would separate the first two with a chance of 80 %; None: more than 32 times as many. Arms with a `single`
    run have no rank. `design` says how the arms are compared, `columns` which column was taken as what.
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
        first = "the first is the best"
        if self.ties:
            others = ", ".join(self.ties[:8]) + (", ..." if len(self.ties) > 8 else "")
            first = f"{self.rows[0].arm} is not shown to be better than {len(self.ties)} others: {others}"
        times = "more than 32 times as many" if self.needed is None else f"about {self.needed}"
        lines = [
            f"{self.separable} of {pairs} adjacent pairs are separable at {level} each, {self.separable_holm} by Holm",
            first,
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
        return (
            "\n\n".join(
                [
                    *map(markdown_text, (self.design, *self.lines)),
                    "\n".join(markdown_table(self.cells())),
                ]
            )
            + "\n"
        )

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


def board_of(trials: pd.DataFrame, design: Design, mode: str, alpha: float) -> Board:
    """Return the board of trials (columns arm, fold, seed, value) of this design, without axes.

    With `mode` "max" larger values are better.

    Raises:
        SpecError: For less than two replicates that all arms have, or less than two arms with two runs.
    """
    # Of each arm the mean, larger is better; of each two arms `square`, the squared standard error of their difference.
    sign = 1 if mode == "max" else -1
    single = []
    if design.unit == "run":
        # Runs of no common replicate: the standard error and degrees of freedom of each difference are Welch's.
        runs = {
            arm: sign * part.dropna().to_numpy()
            for arm, part in trials.groupby("arm", sort=False)["value"]
        }
        single = [arm for arm, part in runs.items() if len(part) < 2]
        runs = {arm: part for arm, part in runs.items() if len(part) > 1}
        if len(runs) < 2:
            raise SpecError("two arms of a board have two runs or more", value=len(runs))
        names = list(runs)
        means = np.array([x.mean() for x in runs.values()])
        error = np.array([x.var(ddof=1) / len(x) for x in runs.values()])
        free = error**2 / (np.array([len(x) for x in runs.values()]) - 1)
        square = error[:, None] + error
        degrees: Any = square**2 / np.maximum(free[:, None] + free, 1e-300)
    else:
        # Paired: only replicates that all arms have, so that every rank is of the same ones.
        wide = trials.pivot_table(
            index="arm", columns="fold" if design.folds else "seed", values="value", sort=False
        )
        complete_runs = wide.dropna(axis=1)
        if min(complete_runs.shape) < 2:
            rule = f"a board has two arms or more, and all of them two {design.unit}s or more in common"
            raise SpecError(rule, value="{} and {}".format(*complete_runs.shape))
        names = list(complete_runs.index)
        values = sign * complete_runs.to_numpy()
        means = values.mean(axis=1)
        spread = np.cov(values)  # var(a - b) = var(a) + var(b) - 2 cov(a, b)
        square = np.diag(spread)[:, None] + np.diag(spread) - 2 * spread
        square = square * (1 / values.shape[1] + design.overlap)
        degrees = values.shape[1] - 1.0
    # All pairs at once, as arrays: a board of 180 arms has 16,000.
    gain = means[:, None] - means
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(
            gain == 0,
            1.0,
            2 * special.stdtr(degrees, -np.abs(gain) / np.sqrt(np.maximum(square, 0))),
        )
    # An arm's rank is uncertain by the arms that are not surely apart from it, with all pairs as one family.
    upper = np.triu_indices(len(names), 1)
    sure = np.zeros_like(p, dtype=bool)
    sure[upper] = holm(p[upper].tolist()) <= alpha
    sure |= sure.T

    # The arms in order, each with the p to the next and the ranks that it may have.
    order = np.argsort(-means, kind="stable")
    nexts = np.array([p[i, j] for i, j in itertools.pairwise(order)])
    rows = []
    for place, i in enumerate(order):
        better = int((sure[i] & (gain[i] < 0)).sum())
        worse = int((sure[i] & (gain[i] > 0)).sum())
        last = place + 1 == len(names)
        rank = (1 + better, len(names) - worse)
        rows.append(
            BoardRow(
                place + 1,
                str(names[i]),
                sign * float(means[i]),
                *rank,
                None if last else float(nexts[place]),
            )
        )
    # What would separate the first two, as the advice under a table forecasts it.
    first, second = (names[i] for i in order[:2])
    now: Contrast
    if design.unit == "run":
        now = unpaired_contrast(runs[first], runs[second])
    else:
        difference = values[order[0]] - values[order[1]]
        now = contrast(
            difference, folds=list(complete_runs.columns) if design.folds else None, design=design
        )
    return Board(
        tuple(rows),
        alpha,
        int((nexts <= alpha).sum()),
        int((holm(nexts.tolist()) <= alpha).sum()),
        tuple(str(names[i]) for i in order[1:] if not sure[order[0], i]),
        enough_as_estimated(now, "repeats" if design.folds else "seeds", alpha),
        "repeat" if design.folds else design.unit,
        tuple(map(str, single)),
    )
