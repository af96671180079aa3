"""The paired differences of two arms by which a comparison is judged, and the same with failures as losses.

A replicate is a fold (of a repeat) and seed. Over several cells its difference is the mean over them; a replicate
counts where both arms finished it in every cell that they have finished any replicate of, so that every mean is over
the same cells.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from contrasweep.statistics.design import (
    SCOPES,
    Contrast,
    Design,
    codes_of,
    contrast,
    contrast_over_items,
)
from contrasweep.statistics.mcnemar import DiscordantContrast
from contrasweep.statistics.resampling import TIE, smallest_p

ENOUGH_PAIRS = 25
"""Pairs of trials that show a collapse in 11 % of an arm's trials with a chance of 95 %."""
UNSEEN = 0.05
"""How probable collapses that would overturn a verdict may be not to have shown."""
LEAST_TRIALS = 8
"""Of fewer trials none is called collapsed: their median deviation says too little."""
FAR = 10.0
"""A trial collapsed if it is so many robust standard deviations worse than the median of its arm and cell."""


@dataclass(frozen=True)
class Gaps:
    """What a comparison lacks of its `planned` pairs of trials.

    `failed_a` counts where a failed, `failed_b` where b failed, `pending` those to run, `missing_a` and `missing_b`
    where that arm is missing for a cause outside the method.
    """

    failed_a: int = 0
    failed_b: int = 0
    pending: int = 0
    planned: int = 0
    missing_a: int = 0
    missing_b: int = 0

    def reversed(self) -> "Gaps":
        """The gaps of b against a."""
        return Gaps(
            self.failed_b, self.failed_a, self.pending, self.planned, self.missing_b, self.missing_a
        )


@dataclass(frozen=True)
class Evidence:
    """The differences by which one comparison is judged.

    `common` is over the replicates that both arms finished. `a_loses` and `b_loses` count the failures of that arm as
    losses beside them, and as bad scores what it lacks for a cause outside the method (None where it has neither).
    `pairs` counts the pairs of trials behind `common`, `unpaired` the finished trials of either arm without a partner.
    `means` are those of both arms over the pairs. `collapsed_a` and `collapsed_b` name the trials of that arm that
    stand far below its others; `fell` is how far the worst of them, or of any arm beside these, is from the median of
    its arm and cell.
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
    fell: float = 0.0

    @property
    def copies(self) -> bool:
        """Whether both arms have the same value in every planned replicate, so that no test could tell them apart."""
        common = self.common
        return (
            common.n > 1
            and common.difference == common.standard_error == 0
            and self.gaps == Gaps(planned=self.gaps.planned)
        )

    @property
    def unseen(self) -> float:
        """Upper 95 % bound on the share of an arm's trials that collapse, given that none of these did.

        It is 1 - .05^(1/n) of n pairs, about 3/n.
        """
        return float(1 - UNSEEN ** (1 / self.pairs)) if self.pairs else 1.0

    def withstands(
        self, verdict: str, mode: str, margin: float | None, bounds: tuple[float, float] | None
    ) -> bool:
        """Whether a verdict of means would stand if as many trials of an arm collapse as may be `unseen`.

        They fall to the worst value of a metric with `bounds`, else as far as any of the study `fell`. A direction is
        overturned by collapses of the arm that leads, `equivalent` by those of either.
        """
        # Which of the two leads, 0 or 1, and how far each would fall.
        lead = int((self.means[1] > self.means[0]) == (mode == "max"))
        floor = None if bounds is None else bounds[0 if mode == "max" else 1]
        depths = [self.fell if floor is None else abs(mean - floor) for mean in self.means]
        apart = abs(self.common.difference)
        if verdict == "equivalent":
            return margin is not None and apart + self.unseen * max(depths) < margin
        return bool(self.unseen * depths[lead] <= apart)

    def early(
        self, verdict: str, mode: str, margin: float | None, bounds: tuple[float, float] | None
    ) -> bool:
        """Whether a look before the last one may give this verdict, which collapses to come could overturn.

        None may where trials of either arm collapsed. Where nobody knows how deep an arm could fall, because the metric
        has no `bounds` and no trial of the study `fell`, `ENOUGH_PAIRS` are enough.
        """
        if self.collapsed_a or self.collapsed_b:
            return False
        if bounds is None and not self.fell:
            return self.pairs >= ENOUGH_PAIRS
        return self.withstands(verdict, mode, margin, bounds)

    def interval(self, alpha: float, level: float, mode: str = "max") -> tuple[float, float]:
        """1 - alpha interval of the difference: it excludes 0 exactly where the `p_value` at `level` is at most alpha.

        Each end is the outer one of two: over the common replicates, and with failures as losses of the arm that this
        end favours.
        """
        lowest, highest = self._bounds(mode)
        return (
            min(_interval(bound, alpha, level)[0] for bound in lowest),
            max(_interval(bound, alpha, level)[1] for bound in highest),
        )

    def p_value(self, level: float, mode: str = "max") -> float:
        """Two-sided p of no difference, by the test used at `level`.

        It is the larger of two: over the common replicates, and with the failures of the arm that is ahead as losses.
        `mode` says which values are better, "max" (larger) or "min": a loss is taken for worse by it.
        """
        if self.common.difference == 0:
            return 1.0
        # Where a - b is above 0, what counts is how surely it is so by what bounds it from below.
        lowest, highest = self._bounds(mode)
        if self.common.difference > 0:
            return min(1.0, 2 * max(bound.p_above(0.0, level) for bound in lowest))
        return min(1.0, 2 * max(bound.p_below(0.0, level) for bound in highest))

    def equivalence_p(self, margin: float, level: float, mode: str = "max") -> float:
        """P-value of a difference of `margin` or more: twice the larger one-sided p.

        So it is at most alpha exactly where the 1 - alpha interval lies within the margin.
        """
        lowest, highest = self._bounds(mode)
        above = max(bound.p_above(-margin, level) for bound in lowest)
        return min(1.0, 2 * max(above, *(bound.p_below(margin, level) for bound in highest)))

    def _bounds(self, mode: str) -> tuple[list[Contrast], list[Contrast]]:
        """Return the contrasts that bound the difference from below, and those that bound it from above.

        A loss of a lowers a - b where larger values are better, and raises it where smaller ones are.
        """
        lower = [self.common, self.a_loses]
        upper = [self.common, self.b_loses]
        if mode == "min":
            lower, upper = upper, lower
        return [c for c in lower if c], [c for c in upper if c]


def _interval(bound: Contrast, alpha: float, level: float) -> tuple[float, float]:
    """Return the interval of a contrast. An end that is 0 up to rounding is exactly 0, as the test counts ties.

    Where all differences are equal and too few for the sign-flip test, the interval is infinite.
    """
    if bound.n > 1 and bound.standard_error == 0 and smallest_p(bound.n) > alpha:
        return -math.inf, math.inf
    low, high = bound.interval(alpha, level)
    rounding = TIE * float(np.abs(bound.values).sum())
    if abs(low) <= rounding:
        low = 0.0
    if abs(high) <= rounding:
        high = 0.0
    return low, high


@dataclass(frozen=True)
class ItemScores:
    """Scores of test items beside the rows of `paired_evidence`.

    `differences` has for each row an array with a - b of each group of items (None where an arm has no scores), `parts`
    the name of the test part of each row, `sizes` by test part the number of items of each of its groups.
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

    `pairs` has a row for each replicate that is planned for both arms: `cell`, `fold` (named with its repeat; None on
    one split), `seed`, the values `a` and `b` (NaN where there is none), and whether it failed, `failed_a` and
    `failed_b`, which counts as a loss. It may have `missing_a` and `missing_b`: it ended without a value for a cause
    outside the method, and `common` leaves it out; and `collapsed_a` and `collapsed_b`: its method found that it
    collapsed, beside those whose values say so. Any other row without a value is still to run. `weights` has one a
    row (items of a fold). With `items`, on one split, seeds are crossed with test items.
    """
    a, b = (pairs[name].to_numpy(dtype=np.float64) for name in "ab")
    lost_a, lost_b = (pairs[name].to_numpy(dtype=bool) for name in ("failed_a", "failed_b"))
    missing_a, missing_b = (
        pairs[name].to_numpy(dtype=bool) if name in pairs else np.zeros(len(pairs), dtype=bool)
        for name in ("missing_a", "missing_b")
    )
    ended = lost_a | lost_b | missing_a | missing_b

    # The differences, and what is lacking. Pairs with a failed or missing trial have none; they come back below as
    # losses, or as bad luck.
    d = np.where(ended, np.nan, a - b)
    known = np.isfinite(d)
    rows = _Rows(pairs, design, weights, items)
    if not known.any():
        return None
    # A difference that rounding makes is none: it would break a tie.
    d[known & (np.abs(d) <= TIE * max(np.abs(a[known]).max(), np.abs(b[known]).max()))] = 0.0
    common = rows.contrast(d)
    if common is None:
        return None
    failed_a, failed_b, pending, gone_a, gone_b = (
        int(mask.sum()) for mask in (lost_a, lost_b, ~known & ~ended, missing_a, missing_b)
    )
    gaps = Gaps(failed_a, failed_b, pending, len(pairs), gone_a, gone_b)

    # How far collapses fell says what one that is not seen yet would cost.
    collapsed_names = []
    fell = 0.0
    for name, values in (("collapsed_a", a), ("collapsed_b", b)):
        has_collapsed = (
            pairs[name].to_numpy(dtype=bool) if name in pairs else np.zeros(len(pairs), dtype=bool)
        )
        if design.unit not in SCOPES:  # an item or a task is no training, which could collapse
            has_collapsed = has_collapsed | collapsed(values, rows.cell, mode)
        collapsed_names.append(rows.names(has_collapsed))
        for i in np.flatnonzero(has_collapsed & np.isfinite(values)):
            fell = max(
                fell, abs(float(np.nanmedian(values[rows.cell == rows.cell[i]]) - values[i]))
            )

    # The pessimistic view of each arm: its failures lose by the most, and what it alone lacks counts as bad luck.
    worse = -1.0 if mode == "max" else 1.0
    only_a = missing_a & ~missing_b & ~lost_b
    only_b = missing_b & ~missing_a & ~lost_a
    bad_a = rows.bad_luck(np.where(known, a, np.nan), only_a, worse) - b
    bad_b = a - rows.bad_luck(np.where(known, b, np.nan), only_b, worse)
    # In place of a difference: bad luck where there is some, and a loss where that arm alone failed.
    lost_a, lost_b = lost_a & ~lost_b, lost_b & ~lost_a
    a_loses = b_loses = None
    if failed_a or np.isfinite(bad_a).any():
        a_loses = rows.contrast(
            rows.with_losses(np.where(np.isfinite(bad_a), bad_a, d), d, lost_a, worse)
        )
    if failed_b or np.isfinite(bad_b).any():
        b_loses = rows.contrast(
            rows.with_losses(np.where(np.isfinite(bad_b), bad_b, d), d, lost_b, -worse)
        )
    in_contrast = rows.kept(d)
    return Evidence(
        common,
        gaps,
        a_loses,
        b_loses,
        pairs=int(in_contrast.sum()),
        means=(float(a[in_contrast].mean()), float(b[in_contrast].mean())),
        collapsed_a=collapsed_names[0],
        collapsed_b=collapsed_names[1],
        fell=fell,
    )


def collapsed(values: Any, cells: Any, mode: str = "max") -> Any:
    """Return a mask [n] of the `values` [n] of one arm that stand far below the others of their cell.

    `cells` [n] are codes of the cells; below is above where `mode` is `min`.
    """
    has_collapsed = np.zeros(len(values), dtype=bool)
    for cell in np.unique(cells):
        in_cell = (cells == cell) & np.isfinite(values)
        if in_cell.sum() < LEAST_TRIALS:
            continue
        worse = (np.median(values[in_cell]) - values[in_cell]) * (1 if mode == "max" else -1)
        # A robust standard deviation: for normal values 1.4826 times the median distance from the median, or 1.2533
        # times the mean one, where more than half of the values are equal and the median distance is 0.
        scale = 1.4826 * np.median(np.abs(worse)) or 1.2533 * np.abs(worse).mean()
        has_collapsed[in_cell] = worse > FAR * scale
    return has_collapsed


def mean_contrast(
    values: pd.DataFrame,
    design: Design,
    *,
    weights: ArrayLike | None = None,
    items: ItemScores | None = None,
) -> Contrast | None:
    """Return the mean of one arm as a contrast with 0; None where it has no value.

    `values` has `cell`, `fold`, `seed` and `value` for each of its trials. A replicate that lacks a cell counts with
    those that it has.
    """
    return _Rows(values, design, weights, items).contrast(
        values["value"].to_numpy(dtype=np.float64), whole=False
    )


class _Rows:
    """Where the rows of `paired_evidence` stand: their cells, and their replicates (fold and seed)."""

    def __init__(
        self,
        pairs: pd.DataFrame,
        design: Design,
        weights: ArrayLike | None,
        items: ItemScores | None,
    ) -> None:
        # Of each row: a code of its cell, its replicate as (fold, seed), and a code of that.
        self.items = items
        self.design = design
        self.cell = codes_of(pairs["cell"])
        self.units = list(zip(map(str, pairs["fold"]), pairs["seed"], strict=True))
        self.unit = codes_of(self.units)
        self.weights = None if weights is None else np.asarray(weights, dtype=np.float64)

    def bad_luck(self, values: Any, gone: Any, sign: float) -> Any:
        """Return pessimistic values for trials that are `gone` [n], as if the worst trials had ended; NaN elsewhere.

        Of m trials of a cell that are gone each counts as sqrt(m) standard deviations worse than the mean of the arm's
        other `values` [n] there. By simulation the error is then at most .053 where exactly the worst are gone.
        """
        pessimistic = np.full(len(values), np.nan)
        for cell in np.unique(self.cell[gone]):
            here = gone & (self.cell == cell)
            ended = values[(self.cell == cell) & np.isfinite(values)]
            if len(ended) > 1:
                pessimistic[here] = ended.mean() + sign * math.sqrt(here.sum()) * ended.std(ddof=1)
        return pessimistic

    def with_losses(self, filled: Any, d: Any, lost: Any, sign: float) -> Any:
        """Return `filled` [n], where each row of the mask `lost` [n] loses by the most: `sign` x the largest |d|.

        That is the largest of the row's cell, or of all cells where its own has none.
        """
        size = np.full(self.cell.max() + 1, -1.0)
        np.fmax.at(size, self.cell, np.abs(d))
        return np.where(
            lost, sign * np.where(size < 0, np.nanmax(np.abs(d)), size)[self.cell], filled
        )

    def contrast(self, d: Any, whole: bool = True) -> Contrast | None:
        """Return the contrast of the means of `d` [n] over cells, or None where no replicate has enough of them.

        With `whole` a replicate counts if it has every cell that any replicate has; without, each counts with those
        it has. NaN in `d` is a cell that a replicate lacks.
        """
        known = np.isfinite(d)
        count, complete = self._complete(known, whole)
        if not len(complete) or not known.any():
            return None
        if self.items is not None:
            return self._over_items(self.items, d, complete)
        means = np.bincount(self.unit[known], d[known], len(self.units))[complete] / count[complete]
        means[np.abs(means) <= TIE * np.abs(d[known]).max()] = 0.0  # cells that cancel out

        # What the design tells replicates apart by, and how much each counts.
        folds = seeds = None
        if self.design.folds:
            names = dict(zip(self.unit.tolist(), self.units, strict=True))
            folds, seeds = zip(*(names[code] for code in complete.tolist()), strict=True)
        weights = None
        if self.weights is not None:
            weights = np.bincount(self.unit[known], self.weights[known], len(self.units))[complete]
        result = contrast(means, folds=folds, seeds=seeds, design=self.design, weights=weights)

        # Items that are right or wrong: differences of 1, -1 and 0 are judged by McNemar's test.
        if (
            whole
            and self.design.unit == "item"
            and weights is None
            and np.isin(means, (-1.0, 0.0, 1.0)).all()
        ):
            return DiscordantContrast(
                **{entry.name: getattr(result, entry.name) for entry in fields(result)}
            )
        return result

    def names(self, which: Any) -> tuple[str, ...]:
        """Return the trainings of the rows in the mask `which` [n], each once.

        As text: `seed 1 on fold 0`, or `seed 1` on one split.
        """
        units = [self.units[i] for i in np.flatnonzero(which).tolist()]
        texts = [
            f"seed {seed} on fold {fold}" if self.design.folds else f"seed {seed}"
            for fold, seed in units
        ]
        return tuple(dict.fromkeys(texts))

    def kept(self, d: Any) -> Any:
        """Return the rows that enter the contrast of the difference `d`."""
        known = np.isfinite(d)
        _, complete = self._complete(known, whole=True)
        return known & np.isin(self.unit, complete)

    def _complete(self, kept: Any, whole: bool) -> tuple[Any, Any]:
        """Return the number of rows kept of each replicate, and the replicates that have all cells.

        Unless `whole`, a replicate needs one row alone.
        """
        count = np.bincount(self.unit[kept], minlength=len(self.units))
        return count, np.flatnonzero(count >= (len(np.unique(self.cell[kept])) if whole else 1))

    def _over_items(self, items: ItemScores, d: Any, complete: Any) -> Contrast:
        """Return the contrast of seeds crossed with items; a trial that counts as a loss is a loss in every item.

        The items of a test part are averaged over its cells, those of all parts are set side by side.
        """
        rows = []
        # A replicate is a row of the matrix: the scores of all items, those of one test part beside those of the next.
        for unit in complete.tolist():
            parts: dict[str, list[Any]] = {}
            for i in np.flatnonzero((self.unit == unit) & np.isfinite(d)).tolist():
                scores = items.differences[i]
                size = len(items.sizes[items.parts[i]])
                parts.setdefault(items.parts[i], []).append(
                    np.full(size, d[i]) if scores is None else scores
                )
            rows.append(parts)
        # An item's score is the mean over a replicate's cells; every replicate has the test parts of the first one.
        order = list(rows[0])
        total = sum(map(len, rows[0].values()))
        matrix = np.stack(
            [np.concatenate([np.mean(parts[part], axis=0) for part in order]) for parts in rows]
        )
        # Each part weighs by its number of groups, and in a part each group by its number of items.
        shares = [
            items.sizes[part] / items.sizes[part].sum() * len(rows[0][part]) / total
            for part in order
        ]
        return contrast_over_items(matrix, np.concatenate(shares))
