"""The paired differences of two arms by which a comparison is judged, and the same with failures as losses.

A replicate is a fold (of a repeat) and a seed; its difference is the mean over all cells. Only cells count in which
both arms have finished any replicate, and only replicates that both have finished in each of these cells. So every mean
is over the same cells.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from contrasweep.statistics.checks import floats
from contrasweep.statistics.design import (
    Contrast,
    Design,
    codes_of,
    contrast,
    contrast_over_items,
)
from contrasweep.statistics.mcnemar import DiscordantContrast
from contrasweep.statistics.resampling import TIE, smallest_p

ENOUGH_PAIRS = 25
"""So many pairs of trials show a collapse of 11 % of an arm's trials with a chance of 95 %."""
UNSEEN = 0.05
"""The chance that collapses which would overturn a verdict have not shown."""
LEAST_TRIALS = 8
"""With fewer trials none is called collapsed: their median deviation says too little."""
FAR = 10.0
"""A trial collapsed if it is this many robust standard deviations worse than the median of its arm and cell."""

COPIES_HINT = "do they use their seed and fold? Copies of a run tell nothing of its noise"
"""What is said where each of two arms has the same value in all replicates."""


@dataclass(frozen=True)
class Gaps:
    """How many of its `planned` pairs of trials a comparison lacks, by cause.

    `failed_a` counts the pairs in which a failed, and `missing_a` those in which a is missing for a cause outside the
    method. `failed_b` and `missing_b` count the same for b, and `pending` the pairs that are still to run.
    """

    failed_a: int = 0
    failed_b: int = 0
    pending: int = 0
    planned: int = 0
    missing_a: int = 0
    missing_b: int = 0

    def reversed(self) -> "Gaps":
        """Return the gaps of b against a."""
        return Gaps(
            self.failed_b, self.failed_a, self.pending, self.planned, self.missing_b, self.missing_a
        )


@dataclass(frozen=True)
class Evidence:
    """The differences by which one comparison is judged.

    `common` is over the replicates that both arms finished. `a_loses` has further differences: a loses where it failed,
    and has a bad score where it is missing for a cause outside the method. `b_loses` has the same for b. Each is None
    where its arm has no such trial.

    `pairs` counts the pairs of trials behind `common`, `unpaired` the finished trials of either arm without a partner.
    `means` are those of both arms over the pairs. `collapsed_a` and `collapsed_b` name the collapsed trials of a and
    b. `collapse_depth` is how far the worst collapse is from the median of its arm and cell: the worst of these arms,
    or of any arm of the study.

    `constant`: each arm has one value in all replicates. Trainings with other random numbers give other values, unless
    the metric has few values. So the replicates are taken for copies of one run, which tell nothing of its noise: there
    is no interval, and p is 1, also that of equivalence.
    """

    common: Contrast
    gaps: Gaps = Gaps()
    a_loses: Contrast | None = None
    b_loses: Contrast | None = None
    pairs: int = 0
    unpaired: int = 0
    means: tuple[float, float] = (math.nan, math.nan)
    collapsed_a: tuple[str, ...] = ()
    collapsed_b: tuple[str, ...] = ()
    collapse_depth: float = 0.0
    constant: bool = False

    @property
    def arms_equal(self) -> bool:
        """Whether both arms have equal values in every planned replicate, so that no test could tell them apart."""
        common = self.common
        # The last line says that no pair has failed, is missing or is still to run.
        return (
            common.n > 1
            and common.difference == common.standard_error == 0
            and self.gaps == Gaps(planned=self.gaps.planned)
        )

    @property
    def unseen(self) -> float:
        """Upper 95 % bound on the share of an arm's trials that collapse, where none of the n pairs shows a collapse.

        It is 1 - .05^(1/n), about 3/n; 1 without pairs.
        """
        return float(1 - UNSEEN ** (1 / self.pairs)) if self.pairs else 1.0

    def withstands(
        self, verdict: str, mode: str, margin: float | None, bounds: tuple[float, float] | None
    ) -> bool:
        """Whether a verdict would stand if a share `unseen` of an arm's trials collapsed.

        `mode` says which values are better, and `margin` is the smallest difference of interest. The trials would fall
        to the worst value that the metric's `bounds` (least, largest) allow; without bounds, as deep as the
        `collapse_depth`. A direction is overturned by collapses of the arm that leads, an equivalence by those of
        either arm.
        """
        # How far a trial of a and of b would fall.
        mean_a, mean_b = self.means
        depth_a = depth_b = self.collapse_depth
        if bounds is not None:
            worst = bounds[0] if mode == "max" else bounds[1]
            depth_a = abs(mean_a - worst)
            depth_b = abs(mean_b - worst)
        apart = abs(self.common.difference)
        if verdict == "equivalent":
            return margin is not None and apart + self.unseen * max(depth_a, depth_b) < margin
        b_leads = (mean_b > mean_a) == (mode == "max")
        depth_of_leader = depth_b if b_leads else depth_a
        return bool(self.unseen * depth_of_leader <= apart)

    def may_decide_early(
        self, verdict: str, mode: str, margin: float | None, bounds: tuple[float, float] | None
    ) -> bool:
        """Whether a look before the last one may give this verdict, which later collapses could overturn.

        The arguments are those of `withstands`. The look may not where trials of either arm collapsed, nor where the
        verdict would not withstand unseen collapses. Where nobody knows how deep an arm could fall (no `bounds`, no
        collapse in the study), `ENOUGH_PAIRS` suffice.
        """
        if self.collapsed_a or self.collapsed_b:
            return False
        if bounds is None and not self.collapse_depth:
            return self.pairs >= ENOUGH_PAIRS
        return self.withstands(verdict, mode, margin, bounds)

    def interval(self, alpha: float, level: float, mode: str = "max") -> tuple[float, float]:
        """Return the 1 - alpha interval of the difference a - b.

        The interval excludes 0 exactly where `p_value` at `level` is at most alpha. Each end is the outer one of two
        intervals: that of the common replicates, and that in which the arm favoured by this end has its losses. It is
        infinite where the arms are `constant`.
        """
        if self.constant:
            return -math.inf, math.inf
        below, above = self._contrasts_below_and_above(mode)
        return (
            min(_interval(view, alpha, level)[0] for view in below),
            max(_interval(view, alpha, level)[1] for view in above),
        )

    def p_value(self, level: float, mode: str = "max") -> float:
        """Return the two-sided p of no difference, by the test used at `level`.

        It is the larger of two: over the common replicates, and with the failures of the arm that is ahead as losses.
        It is 1 where the arms are `constant`. `mode` says which values are better, "max" (larger) or "min", and so
        which way a loss moves a difference.
        """
        if self.common.difference == 0 or self.constant:
            return 1.0
        strictest = self.strictest(level, mode)
        beyond = strictest.p_above if self.common.difference > 0 else strictest.p_below
        return min(1.0, 2 * beyond(0.0, level))

    def strictest(self, level: float, mode: str = "max") -> Contrast:
        """Return the contrast on which a direction depends: `common`, or the one with the losses of the arm ahead.

        It is the one with the larger p, by the tests used at `level`; `mode` is as for `p_value`.
        """
        # A difference above 0 must be surely above 0 by each contrast that bounds it from below, and vice versa.
        below, above = self._contrasts_below_and_above(mode)
        if self.common.difference > 0:
            return max(below, key=lambda view: view.p_above(0.0, level))
        return max(above, key=lambda view: view.p_below(0.0, level))

    def equivalence_p(self, margin: float, level: float, mode: str = "max") -> float:
        """Return the p of a difference of `margin` or more, by the tests used at `level`; 1 where arms are `constant`.

        It is twice the larger of two one-sided p-values. So it is at most alpha exactly where the 1 - alpha interval
        lies within ±`margin`.
        """
        if self.constant:
            return 1.0
        below, above = self._contrasts_below_and_above(mode)
        # The p of the hypotheses a - b <= -margin and a - b >= margin.
        p_of_less = max(view.p_above(-margin, level) for view in below)
        p_of_more = max(view.p_below(margin, level) for view in above)
        return min(1.0, 2 * max(p_of_less, p_of_more))

    def _contrasts_below_and_above(self, mode: str) -> tuple[list[Contrast], list[Contrast]]:
        """Return two lists: the contrasts that give the lower end of the interval, and those that give the upper end.

        Each has the contrast of the common replicates, and that with the losses of one arm, if it has any. Losses of a
        lower a - b where larger values are better, and raise it where smaller ones are.
        """
        losses_of_a = [self.common, self.a_loses] if self.a_loses else [self.common]
        losses_of_b = [self.common, self.b_loses] if self.b_loses else [self.common]
        return (losses_of_a, losses_of_b) if mode == "max" else (losses_of_b, losses_of_a)


def _interval(view: Contrast, alpha: float, level: float) -> tuple[float, float]:
    """Return the 1 - `alpha` interval of a contrast, by the test that is used at `level`.

    An end that is 0 up to rounding becomes exactly 0, as the sign-flip test counts such a value as 0 as well. Where all
    differences are equal, and too few for the sign-flip test to reject anything, the interval is infinite.
    """
    if view.n > 1 and view.standard_error == 0 and smallest_p(view.n) > alpha:
        return -math.inf, math.inf
    low, high = view.interval(alpha, level)
    rounding = TIE * float(np.abs(view.values).sum())
    if abs(low) <= rounding:
        low = 0.0
    if abs(high) <= rounding:
        high = 0.0
    return low, high


@dataclass(frozen=True)
class ItemScores:
    """Scores of test items for pairs of trials: the rows of the frame `pairs` of `paired_evidence`.

    `differences` has for each row an array [groups], with the difference a - b of the scores of each group of items;
    None where the trial of a or of b has no scores. `parts` has for each row the name of its test part: the test set of
    one dataset. `sizes` is test part -> number of items of each group [groups].
    """

    differences: Sequence[Any]
    parts: Sequence[str]
    sizes: Mapping[str, NDArray[np.float64]]


def paired_evidence(
    pairs: pd.DataFrame,
    design: Design,
    *,
    mode: str = "max",
    weights: ArrayLike | None = None,
    items: ItemScores | None = None,
) -> Evidence | None:
    """Return the evidence of two arms, or None where no replicate is finished by both.

    `pairs` has a row for each replicate that is planned for both arms. Its columns are:

    - `cell`, `fold` (named with its repeat; None on one split) and `seed`;
    - `a` and `b`, the values; NaN where there is none;
    - `failed_a` and `failed_b`: whether that arm failed, which counts as a loss;
    - `missing_a` and `missing_b`, if any: whether that arm has no value for a cause outside the method;
    - `collapsed_a` and `collapsed_b`, if any: whether its method found that the trial collapsed.

    Any other row without a value is still to run. `weights` [rows] are the numbers of items of the folds. With `items`,
    on one split, seeds are crossed with test items.
    """
    arm_a = _Arm.of(pairs, "a")
    arm_b = _Arm.of(pairs, "b")
    a = arm_a.values
    b = arm_b.values
    # Pairs of which a trial ended without a value.
    ended = arm_a.failed | arm_b.failed | arm_a.missing | arm_b.missing

    # The differences of the pairs that both finished. `_worst_contrast` takes the other pairs that ended as losses.
    d = np.where(ended, np.nan, a - b)
    known = np.isfinite(d)
    if not known.any():
        return None
    # A difference that only rounding makes is set to 0: it would break a tie.
    largest = max(np.abs(a[known]).max(), np.abs(b[known]).max())
    d[known & (np.abs(d) <= TIE * largest)] = 0.0
    rows = _Rows(pairs, design, weights, items)
    common = rows.contrast(d)
    if common is None:
        return None
    gaps = Gaps(
        failed_a=int(arm_a.failed.sum()),
        failed_b=int(arm_b.failed.sum()),
        pending=int((~known & ~ended).sum()),
        planned=len(pairs),
        missing_a=int(arm_a.missing.sum()),
        missing_b=int(arm_b.missing.sum()),
    )
    # Which trainings collapsed; how far these fell says what a collapse that is not seen yet would cost.
    collapsed_a, depth_a = rows.collapses(a, arm_a.collapsed, mode)
    collapsed_b, depth_b = rows.collapses(b, arm_b.collapsed, mode)
    in_contrast = rows.in_contrast(d)
    # Whether each arm has one value in all replicates. Then all differences are equal, so this is asked only where
    # they are.
    constant = False
    if common.n > 1 and common.standard_error == 0 and design.counts_trainings:
        arms = [rows.contrast(np.where(np.isfinite(d), values, np.nan)) for values in (a, b)]
        constant = all(arm is not None and arm.standard_error == 0 for arm in arms)
    return Evidence(
        common,
        gaps,
        a_loses=_worst_contrast(arm_a, arm_b, rows, d, mode, sign=1.0),
        b_loses=_worst_contrast(arm_b, arm_a, rows, d, mode, sign=-1.0),
        pairs=int(in_contrast.sum()),
        means=(float(a[in_contrast].mean()), float(b[in_contrast].mean())),
        collapsed_a=collapsed_a,
        collapsed_b=collapsed_b,
        collapse_depth=max(depth_a, depth_b),
        constant=constant,
    )


class _Arm(NamedTuple):
    """The trials of one arm of `paired_evidence`, as arrays [rows].

    `values` are the values of the metric, NaN where there is none. The masks `failed`, `missing` and `collapsed` are
    those of the columns of the same name.
    """

    values: Any
    failed: Any
    missing: Any
    collapsed: Any

    @classmethod
    def of(cls, pairs: pd.DataFrame, arm: str) -> Self:
        """Return the arm "a" or "b" of a frame that has the columns of `paired_evidence`."""
        causes = [_mask(pairs, f"{cause}_{arm}") for cause in ("failed", "missing", "collapsed")]
        return cls(floats(pairs[arm]), *causes)


def _worst_contrast(
    arm: _Arm, other: _Arm, rows: "_Rows", d: Any, mode: str, sign: float
) -> Contrast | None:
    """Return the contrast of a - b with bad results for the pairs that `arm` did not finish; None without such pairs.

    Where the arm alone is missing, it has a bad score; where it alone failed, it loses by the largest difference seen.
    `d` [rows] are the differences of the pairs that both arms finished. `sign` is 1 if `arm` is a, and -1 if it is b.
    """
    worse = -1.0 if mode == "max" else 1.0  # the direction of worse values
    finished = np.where(np.isfinite(d), arm.values, np.nan)
    alone_missing = arm.missing & ~other.missing & ~other.failed
    # The differences a - b with a bad score of the missing arm; NaN in all other rows.
    unlucky = sign * (rows.bad_luck(finished, alone_missing, worse) - other.values)
    if not arm.failed.any() and not np.isfinite(unlucky).any():
        return None
    filled = np.where(np.isfinite(unlucky), unlucky, d)
    return rows.contrast(rows.with_losses(filled, d, arm.failed & ~other.failed, sign * worse))


def _mask(pairs: pd.DataFrame, name: str) -> Any:
    """Return the column `name` of truth values as a mask [rows]; all False where the frame does not have it."""
    return pairs[name].to_numpy(dtype=bool) if name in pairs else np.zeros(len(pairs), dtype=bool)


def collapsed(values: Any, cells: Any, mode: str = "max") -> Any:
    """Return a mask [n] of the `values` [n] of one arm that are far worse than the others of their cell.

    `cells` [n] are codes of the cells. Worse is below, or above where `mode` is "min". NaN is not collapsed.
    """
    has_collapsed = np.zeros(len(values), dtype=bool)
    for cell in np.unique(cells):
        in_cell = (cells == cell) & np.isfinite(values)
        if in_cell.sum() < LEAST_TRIALS:
            continue
        # How much worse each value is than the median; below 0 where it is better.
        worse = np.median(values[in_cell]) - values[in_cell]
        if mode == "min":
            worse = -worse
        # A robust standard deviation: for normal values 1.4826 times the median distance from the median, or 1.2533
        # times the mean one, where more than half of the values are equal and the median distance is 0.
        scale = 1.4826 * np.median(np.abs(worse)) or 1.2533 * np.abs(worse).mean()
        has_collapsed[in_cell] = worse > FAR * scale
    return has_collapsed


def mean_contrast(
    values: pd.DataFrame,
    design: Design,
    *,
    weights: ArrayLike | None,
    items: ItemScores | None,
) -> Contrast | None:
    """Return the mean of one arm as a contrast with 0; None where the arm has no value.

    `values` has `cell`, `fold`, `seed` and `value` of each trial of the arm; the other arguments are those of
    `paired_evidence`. A replicate that lacks cells counts with the cells that it has.
    """
    return _Rows(values, design, weights, items).contrast(
        floats(values["value"]), in_all_cells=False
    )


class _Rows:
    """The cell and the replicate (fold and seed) of each row of a frame, and what is computed by them.

    Attributes:
        cell: A code of each row's cell [n].
        replicates: The (fold, seed) of each row.
        replicate_code: A code of each row's replicate [n].
    """

    def __init__(
        self,
        pairs: pd.DataFrame,
        design: Design,
        weights: ArrayLike | None,
        items: ItemScores | None,
    ) -> None:
        self.items = items
        self.design = design
        self.cell = codes_of(pairs["cell"])
        self.replicates = list(zip(map(str, pairs["fold"]), pairs["seed"], strict=True))
        self.replicate_code = codes_of(self.replicates)
        self.weights = None if weights is None else floats(weights)

    def bad_luck(self, values: Any, alone_missing: Any, sign: float) -> Any:
        """Return pessimistic values [n] for the trials in the mask `alone_missing` [n]; NaN elsewhere.

        These are an arm's missing trials whose partners have values. Where m trials of a cell are missing, each counts
        as sqrt(m) standard deviations worse (in the direction `sign`) than the mean of the arm's other `values` [n]
        there. By simulation the error rate is then at most .053 where exactly the worst trials are missing.
        """
        pessimistic = np.full(len(values), np.nan)
        for cell in np.unique(self.cell[alone_missing]):
            missing_here = alone_missing & (self.cell == cell)
            ended = values[(self.cell == cell) & np.isfinite(values)]
            if len(ended) > 1:
                deviations = sign * math.sqrt(missing_here.sum())
                pessimistic[missing_here] = ended.mean() + deviations * ended.std(ddof=1)
        return pessimistic

    def with_losses(self, filled: Any, d: Any, lost: Any, sign: float) -> Any:
        """Return `filled` [n], in which each row of the mask `lost` [n] is replaced by a loss.

        A loss is `sign` (1 or -1) times the largest size of the differences `d` [n] in the row's cell. A cell without
        any difference takes the largest of all cells.
        """
        # The largest |d| of each cell; -1 where the cell has none.
        size = np.full(self.cell.max() + 1, -1.0)
        np.fmax.at(size, self.cell, np.abs(d))
        size[size < 0] = np.nanmax(np.abs(d))
        return np.where(lost, sign * size[self.cell], filled)

    def contrast(self, d: Any, in_all_cells: bool = True) -> Contrast | None:
        """Return the contrast of the replicates' means of `d` [n] over cells; None where no replicate counts.

        With `in_all_cells` a replicate counts if it has every cell that any replicate has; without, each counts with
        the cells that it has. NaN in `d` is a cell that a replicate lacks.
        """
        known = np.isfinite(d)
        count, complete = self._complete(known, in_all_cells)
        if not len(complete) or not known.any():
            return None
        if self.items is not None:
            return self._over_items(self.items, d, complete)
        # The mean of each replicate. Cells that cancel out but for rounding have a mean of exactly 0.
        means = self._sums(d, known)[complete] / count[complete]
        means[np.abs(means) <= TIE * np.abs(d[known]).max()] = 0.0

        # The fold and the seed of each replicate, where the design has folds, and its weight.
        folds = seeds = None
        if self.design.folds:
            name_of = dict(zip(self.replicate_code.tolist(), self.replicates, strict=True))
            folds, seeds = zip(*(name_of[code] for code in complete.tolist()), strict=True)
        weights = None
        if self.weights is not None:
            weights = self._sums(self.weights, known)[complete]
        result = contrast(means, folds=folds, seeds=seeds, design=self.design, weights=weights)

        # Where items are right or wrong, all differences are 1, -1 or 0, which McNemar's test judges. It does not judge
        # the mean of a single arm.
        of_single_items = in_all_cells and self.design.unit == "item" and weights is None
        if of_single_items and np.isin(means, (-1.0, 0.0, 1.0)).all():
            return DiscordantContrast(**vars(result))
        return result

    def collapses(self, values: Any, reported: Any, mode: str) -> tuple[tuple[str, ...], float]:
        """Return the names of one arm's collapsed trainings, and how far the worst fell from the median of its cell.

        Collapsed are those that the method has `reported` [n], and those whose `values` [n] show it. A name is
        `seed 1 on fold 0`, or `seed 1` on one split. The distance is 0 where none has a value.
        """
        has_collapsed = reported
        if self.design.counts_trainings:
            has_collapsed = reported | collapsed(values, self.cell, mode)
        names = []
        depth = 0.0
        for i in np.flatnonzero(has_collapsed).tolist():
            fold, seed = self.replicates[i]
            names.append(f"seed {seed} on fold {fold}" if self.design.folds else f"seed {seed}")
            if np.isfinite(values[i]):
                median = np.nanmedian(values[self.cell == self.cell[i]])
                depth = max(depth, abs(float(median - values[i])))
        # A seed that collapsed in several cells is named once.
        return tuple(dict.fromkeys(names)), depth

    def in_contrast(self, d: Any) -> Any:
        """Return a mask [n] of the rows that enter the contrast of the differences `d` [n]."""
        known = np.isfinite(d)
        _, complete = self._complete(known, in_all_cells=True)
        return known & np.isin(self.replicate_code, complete)

    def _complete(self, known: Any, in_all_cells: bool) -> tuple[Any, Any]:
        """Return the number of rows in the mask `known` that each replicate has, by its code, and the codes that count.

        With `in_all_cells` a replicate counts if it has a row in each cell in which any replicate has one; without, if
        it has a row in any cell.
        """
        count = self._sums(np.ones(len(known)), known)
        needed = len(np.unique(self.cell[known])) if in_all_cells else 1
        return count, np.flatnonzero(count >= needed)

    def _sums(self, values: Any, known: Any) -> Any:
        """Return for each replicate the sum of `values` [n] over its rows in the mask `known` [n].

        Entry i is of the replicate with the code i. There are n entries; those behind the last code are 0.
        """
        # There are as many sums as rows: more than replicates, and the further sums are 0.
        return np.bincount(self.replicate_code[known], values[known], len(known))

    def _over_items(self, items: ItemScores, d: Any, complete: Any) -> Contrast:
        """Return the contrast over all test parts, of seeds crossed with groups of items.

        In each replicate a group's differences are averaged over the cells that have its test part. `d` [rows] are the
        differences of the pairs of trials, and `complete` the codes of the replicates that count.
        """
        # For each replicate: test part -> the differences of its groups, an array for each of the replicate's cells.
        replicates = []
        for code in complete.tolist():
            differences_of: dict[str, list[Any]] = {}
            for i in np.flatnonzero((self.replicate_code == code) & np.isfinite(d)).tolist():
                part = items.parts[i]
                differences = items.differences[i]
                if differences is None:  # `d` has a loss for this pair, which is one in every group
                    differences = np.full(len(items.sizes[part]), d[i])
                differences_of.setdefault(part, []).append(differences)
            replicates.append(differences_of)
        # A row of the matrix is a replicate: the mean differences of all groups, part after part.
        # Every replicate has the test parts of the first one.
        n_cells = {part: len(of_cells) for part, of_cells in replicates[0].items()}
        matrix = np.stack(
            [
                np.concatenate([np.mean(differences_of[part], axis=0) for part in n_cells])
                for differences_of in replicates
            ]
        )
        # Each part weighs by its number of cells, and in a part each group by its number of items.
        shares = [
            items.sizes[part] / items.sizes[part].sum() * count / sum(n_cells.values())
            for part, count in n_cells.items()
        ]
        return contrast_over_items(matrix, np.concatenate(shares))
