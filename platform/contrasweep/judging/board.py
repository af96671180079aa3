"""A board: arms in the order of their means, each with the ranks that it may have.

Every two arms are compared by the t-test of their differences, unpaired runs by Welch's t-test, with the failed runs of
the better arm as losses. The p-values of all pairs are adjusted by Holm's procedure. An arm's rank is at least 1 + the
number of arms that are surely better, and at most the number of arms less those that are surely worse. This holds for
all arms at once with a chance of 1 - alpha.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, plural
from contrasweep.markdown_text import markdown_text
from contrasweep.reporting.formats import csv_text
from contrasweep.results.rendering import markdown_table, render_fragment
from contrasweep.statistics.design import Contrast, Design, contrast
from contrasweep.statistics.family import LEVEL_DIVISOR, holm
from contrasweep.statistics.predictive import Unit, smallest_count_as_estimated
from contrasweep.statistics.resampling import TIE, constant
from contrasweep.statistics.unpaired import unpaired_evidence
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

    `separable` counts the pairs of neighbours in the ranking that differ, each tested at `alpha`; `separable_holm`
    counts those that differ after Holm's correction over these pairs. `ties` are the arms that may be as good as the
    first one. About `needed` replicates (seeds, say, which `unit` names) would tell the first two arms apart with a
    chance of 80 %; None: more than 32 times the present number. `single` are arms with one run, which have no rank.
    `design` says in a sentence how the arms are compared, and `columns` which column was taken as what.
    """

    rows: tuple[BoardRow, ...]
    alpha: float
    separable: int
    separable_holm: int
    ties: tuple[str, ...]
    needed: int | None
    unit: str
    single: tuple[str, ...]
    design: str = ""
    columns: str = ""

    @property
    def lines(self) -> list[str]:
        """Sentences on how sure the ranking is: how many neighbours differ, and which arms may be the best ones."""
        pairs = len(self.rows) - 1
        level = f"{self.alpha:g}"
        about_first = "the first is the best"
        if self.ties:
            named = self.ties[:8]
            others = ", ".join(named if named == self.ties else [*named, "..."])
            count = plural(len(self.ties), "other")
            about_first = f"{self.rows[0].arm} is not shown to be better than {count}: {others}"
        times = "more than 32 times as many" if self.needed is None else f"about {self.needed}"
        lines = [
            f"{self.separable} of {pairs} adjacent pairs are separable at {level} each, {self.separable_holm} by Holm",
            about_first,
            f"to separate the first two with a chance of 80% at a further look: {times} {self.unit}s",
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
        """Return the design, `lines` and the table, for a terminal."""
        table = text_table(self.cells(), rule=True, width=width)
        return "\n".join([self.design, self.columns, "", *self.lines, "", *table]) + "\n"

    def to_markdown(self) -> str:
        """Return the design, `lines` and the table in Markdown, for a README."""
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
        """Return `lines` and a table that draws the ranks which each arm may have."""
        head, *cells = self.cells()
        lines = (self.design, *self.lines)
        return render_fragment(
            "board.html", lines=lines, head=head, rows=self.rows, cells=cells, ties=self.ties
        )


Contrasts = Callable[[int, int], list[Contrast]]
"""Numbers of two arms -> the contrasts that must all show the first arm better, where larger values are better.

They are the contrast of their finished replicates and, where the first has failed runs, that with these as losses.
Copies of a run say nothing.
"""


def _unpaired(trials: pd.DataFrame) -> tuple[list[float], Contrasts]:
    """Return the mean of each arm, and the function that compares two arms, for runs that no seed or fold pairs.

    The arms are in the order of the frame; Welch's t-test compares them. `trials` has the columns arm and value; a run
    whose value is NaN has failed.
    """
    runs_of_arms = trials.groupby("arm", sort=False)["value"]
    values = [runs.dropna().to_numpy() for _, runs in runs_of_arms]
    failed = [int(runs.isna().sum()) for _, runs in runs_of_arms]

    def contrasts(i: int, j: int) -> list[Contrast]:
        """Return the contrasts of arm i with arm j (see `Contrasts`); empty where they say nothing."""
        # Only failures of the first arm could speak against it.
        evidence = unpaired_evidence(values[i], values[j], (failed[i], 0))
        if evidence is None or evidence.constant:
            return []
        return [evidence.common, evidence.a_loses] if evidence.a_loses else [evidence.common]

    return [float(of_arm.mean()) for of_arm in values], contrasts


def _paired(trials: pd.DataFrame, design: Design) -> tuple[list[float], Contrasts]:
    """Return the mean of each arm, and the function that compares two arms, for replicates that pair the arms.

    Only replicates count that all arms have, so that every rank is over the same ones. `SpecError` for fewer than two.
    """
    # The values [arms, replicates] of the folds and seeds that all arms have; NaN is a failed run.
    arms = trials["arm"].unique()
    trials = trials.assign(weight=trials.get("weight", 1.0))
    arms_of_replicate = trials.groupby(["fold", "seed"], dropna=False)["arm"].transform("size")
    rows = trials[arms_of_replicate == len(arms)].set_index(["fold", "seed", "arm"])
    replicates: Any = rows[["value", "weight"]].unstack("arm", sort=False)
    values = replicates["value"].reindex(columns=arms).to_numpy().T
    folds = replicates.index.get_level_values("fold").to_numpy()
    seeds = replicates.index.get_level_values("seed").to_numpy()
    # Groups of items count by their sizes.
    weights = replicates["weight"].mean(axis=1).to_numpy()
    finished = np.isfinite(values).all(axis=0)
    units = len({*(folds if design.folds else seeds)[finished]})
    if units < 2:
        unit = "fold" if design.folds else design.unit
        rule = f"all arms of a board have two {unit}s or more in common"
        raise SpecError(rule, value=units)

    def contrast_of(differences: Any) -> Contrast:
        """Return the contrast of `differences` [replicates], without those that are NaN.

        They are differences of two arms, or the values of one arm.
        """
        known = np.isfinite(differences)
        return contrast(
            differences[known],
            folds=folds[known] if design.folds else None,
            seeds=seeds[known],
            design=design,
            weights=weights[known],
        )

    def contrasts(i: int, j: int) -> list[Contrast]:
        """Return the contrasts of arm i with arm j (see `Contrasts`); empty where they say nothing."""
        # Trainings that all have one value are copies of a run, which say nothing.
        if design.counts_trainings and all(constant(values[arm][finished]) for arm in (i, j)):
            return []
        differences = np.where(finished, values[i] - values[j], np.nan)
        # A difference that only rounding makes would break a tie.
        differences[np.abs(differences) <= TIE * np.nanmax(np.abs(values))] = 0.0
        contrasts_of_pair = [contrast_of(differences)]
        # Where i alone failed it loses by the most.
        lost = np.isnan(values[i]) & np.isfinite(values[j])
        if lost.any():
            with_losses = np.where(lost, -np.nanmax(np.abs(differences)), differences)
            contrasts_of_pair.append(contrast_of(with_losses))
        return contrasts_of_pair

    means = [contrast_of(np.where(finished, of_arm, np.nan)).difference for of_arm in values]
    return means, contrasts


def board_of(trials: pd.DataFrame, design: Design, mode: str, alpha: float) -> Board:
    """Return the board that ranks the arms of `trials`, which has the columns arm, fold, seed and value.

    `design` says how the arms are replicated. A trial whose value is NaN has failed. With `mode` "max" larger values
    are better.

    Raises:
        SpecError: Fewer than two replicates are common to all arms, or fewer than two arms have two runs each.
    """
    sign = 1 if mode == "max" else -1
    trials = trials.assign(value=sign * trials["value"])
    runs = trials.groupby("arm", sort=False)["value"].count()
    single = tuple(runs.index[runs < 2])
    trials = trials[~trials["arm"].isin(single)]
    names = runs.index[runs > 1].tolist()
    count = len(names)
    if count < 2:
        raise SpecError("two arms of a board have two runs or more", value=count)
    means, contrasts = _unpaired(trials) if design.unit == "run" else _paired(trials, design)

    # The p of no difference of every two arms, in the order of their means, by the t-test: at the level 0 no exact test
    # can decide, so that a contrast takes the t-test.
    order = np.argsort(-np.array(means), kind="stable").tolist()
    ps = []
    for i, j in itertools.combinations(order, 2):
        one_sided = max((contrast.p_above(0.0, 0.0) for contrast in contrasts(i, j)), default=1.0)
        ps.append(min(1.0, 2 * one_sided))
    # Which two arms surely differ, with all pairs as one family: [place of the better arm, place of the worse arm].
    upper = np.triu_indices(count, 1)
    p_of_places = np.ones((count, count))
    p_of_places[upper] = ps
    surely_better = np.zeros((count, count), dtype=bool)
    surely_better[upper] = holm(ps) <= alpha

    # The arms in order, each with the ranks that it may have and the p to the next arm.
    next_ps = np.diag(p_of_places, 1).tolist()
    rows = []
    for place, arm in enumerate(order):
        rows.append(
            BoardRow(
                rank=place + 1,
                arm=names[arm],
                mean=sign * means[arm] + 0.0,  # no -0
                low=1 + int(surely_better[:, place].sum()),
                high=count - int(surely_better[place].sum()),
                p_next=next_ps[place] if place < len(next_ps) else None,
            )
        )
    # How many replicates would separate the first two, as the advice under a table forecasts it: a further look has a
    # quarter of alpha. The last contrast is that with the failed runs of the first as losses, if there are any.
    first_two = contrasts(order[0], order[1])
    needed = None
    if first_two and first_two[-1].difference > 0:
        unit: Unit = "repeats" if design.folds else "seeds"
        needed = smallest_count_as_estimated(first_two[-1], unit, alpha / LEVEL_DIVISOR)
    return Board(
        tuple(rows),
        alpha,
        separable=sum(p_next <= alpha for p_next in next_ps),
        separable_holm=int((holm(next_ps) <= alpha).sum()),
        ties=tuple(row.arm for row in rows[1:] if not surely_better[0, row.rank - 1]),
        needed=needed,
        unit="repeat" if design.folds else design.unit,
        single=single,
    )
