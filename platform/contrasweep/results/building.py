"""From a frame of trials to the table: replicates, comparisons, cells and marks."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contrasweep.canonical import label
from contrasweep.errors import plural
from contrasweep.results.answer import Pair, replicates_text
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.items import ItemValues
from contrasweep.results.table import NO_INTERVAL, Cell, Key, Replicate, Table
from contrasweep.rows import row_tuples
from contrasweep.statistics.comparison import Comparison, freedom, judged
from contrasweep.statistics.design import Contrast, Design
from contrasweep.statistics.evidence import Evidence, ItemScores, mean_contrast, paired_evidence
from contrasweep.statistics.family import Family, Question, family_size, pairs_of
from contrasweep.statistics.unpaired import spread_beside, unpaired_evidence
from contrasweep.storage.record import COUNTING, Cause, Status
from contrasweep.study.metric_range import metric_range


@dataclass(frozen=True)
class Layout:
    """Which factors stand in a table's rows and which in its columns. A factor is the arm, or one of the `axes`."""

    rows: Key
    columns: Key
    axes: Key

    @property
    def factors(self) -> Key:
        """The arm and every axis."""
        return ("arm", *self.axes)

    @property
    def placed(self) -> Key:
        """Factors in the rows or columns."""
        return (*self.rows, *self.columns)

    @property
    def compared(self) -> Key:
        """The factor whose values are compared: the arm, or the factors in the columns if no arm is in the table."""
        return ("arm",) if "arm" in self.placed else (self.columns or self.rows)

    @property
    def pooled(self) -> Key:
        """Factors that are neither in rows nor columns: a replicate's value is its mean over them."""
        return tuple(f for f in self.factors if f not in self.placed)

    @property
    def context(self) -> Key:
        """The factors in the table that are fixed in a comparison: those that are not compared."""
        return tuple(f for f in self.placed if f not in self.compared)

    def answers(self, question: str | None) -> bool:
        """Whether this table's comparisons are the family of a study with this question (None: it has no question).

        `overall` compares arms over everything, so in no context; `cells` in every cell, so with nothing pooled.
        """
        if question is None or self.compared != ("arm",):
            return False
        return not self.context if question == "overall" else not self.pooled


def names_of(value: str | Sequence[str] | None) -> Key:
    """Return the names of factors that a user gives, one name, several or None, as a tuple."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(value)


NOT_FINITE = "not finite"
UNFIT = tuple(status.value for status in Status if status.infeasible)
LOST = (
    NOT_FINITE,
    *(status.value for status in Status if status.lost and status.value not in UNFIT),
)
"""What a trial is that was tried and gave no value; others without one are missing or still to run."""
OUTSIDE = tuple(cause.value for cause in Cause if cause.outside)
"""Causes of a failure that lie outside the method, such as a lost host."""


def trials_of(frame: pd.DataFrame, metric: str, factors: Key) -> pd.DataFrame:
    """Return one row for each trial: labels of the factors, fold, seed, status, and `value` (NaN unless done).

    Of trials without a value, `lost` marks those that count as a loss, `missing` those that ended for a cause outside
    the method or fit on no host; the others are still to run. `collapsed` marks those whose method says that they
    collapsed; `weight` is 1 unless the frame has weights.
    """
    column = frame[metric] if metric in frame else pd.Series(np.nan, frame.index)
    values = pd.to_numeric(column, errors="coerce").astype("float64").to_numpy()
    status = frame["status"].astype(str).to_numpy(dtype=object)
    # A trial that ended as it should, with a value that is no number, has lost.
    status[np.isin(status, list(COUNTING)) & ~np.isfinite(values)] = NOT_FINITE
    outside = (
        frame["cause"].isin(OUTSIDE).to_numpy()
        if "cause" in frame
        else np.zeros(len(frame), dtype=bool)
    )
    unscored = outside | np.isin(status, UNFIT)
    trials = pd.DataFrame(
        {name: [label(v) for v in frame[name].astype(object)] for name in factors}
    ).assign(
        weight=frame["weight"].to_numpy(dtype="float64") if "weight" in frame else 1.0,
        trial_id=frame["trial_id"].to_numpy(),
        fold=[label(v) for v in frame["fold"].astype(object)],
        seed=[label(v) for v in frame["seed"].astype(object)],
        status=status,
        lost=np.isin(status, LOST) & ~unscored,
        missing=unscored,
        collapsed=frame["collapsed"].eq(1).to_numpy() if "collapsed" in frame else False,
        value=np.where(np.isin(status, list(COUNTING)), values, np.nan),
    )
    # As objects, which Python reads many times faster one by one than Arrow's texts.
    return trials.astype(dict.fromkeys(("trial_id", "fold", "seed", "status", *factors), object))


def groups_of(trials: pd.DataFrame, factors: Key) -> Iterator[tuple[Key, pd.DataFrame]]:
    """Yield each combination of labels of `factors` and its trials, in the order of the study."""
    if not factors:
        yield (), trials
        return
    for key, part in trials.groupby(list(factors), sort=False):
        yield tuple(str(k) for k in key), part  # type: ignore[union-attr]


def distinct(trials: pd.DataFrame, factors: Key) -> tuple[Key, ...]:
    """Return the combinations of labels of `factors` that occur, in the order of the study."""
    if not factors:
        return ((),)
    return tuple(dict.fromkeys(zip(*(trials[f] for f in factors), strict=True)))


def labels_of(trials: pd.DataFrame, factors: Key) -> pd.Series:
    """Return the labels of each trial's `factors` as one text, by the index of `trials`; "" without factors."""
    return pd.Series([_joined(k) for k in row_tuples(trials, factors)], trials.index, dtype=object)


def _joined(labels: Key) -> str:
    """Return several labels as one text; one with a space is quoted, so that no other labels have this text."""
    return " ".join(v if len(labels) == 1 or " " not in v else json.dumps(v) for v in labels)


@dataclass(frozen=True)
class DecisionRule:
    """How the comparisons of a table are judged.

    Attributes:
        design: How a cell is replicated.
        mode: Whether larger or smaller values are better.
        alpha: The chance of any false verdict.
        question: The study's where the table is about its metric, else None: all comparisons are exploratory then.
        margin: The smallest difference of interest, in units of the metric; None: nothing is called equivalent.
        reference: The arm that the others are compared with; None: every two arms are compared.
        interim: The looks at a study that grows or was extended.
        family: Only comparisons of these arms have verdicts; empty: those of all arms.
        again: Ids of trials that were trained again with another result: no comparison with them has a verdict.
        unpaired: Whether arms with less than two replicates in common are compared by all of their runs.
    """

    design: Design = field(default_factory=Design)
    mode: Literal["max", "min"] = "max"
    alpha: float = 0.05
    question: Question | None = None
    margin: float | None = None
    reference: str | None = None
    interim: InterimVerdicts | ExtensionVerdicts | None = None
    family: Collection[str] = ()
    again: frozenset[str] = frozenset()
    unpaired: bool = False


class _Found(NamedTuple):
    """A comparison before it is judged: its place and sides, as `Pair` has them, and whether a verdict may stand."""

    context: tuple[tuple[str, str], ...]
    a: str
    b: str
    evidence: Evidence
    stands: bool


def comparisons(
    trials: pd.DataFrame,
    layout: Layout,
    rule: DecisionRule,
    metric: str,
    items: ItemValues | None = None,
) -> list[Pair]:
    """Return the comparisons of each two values of the compared factor in each context, the better value first.

    With a reference each value is compared with the reference alone. The comparisons are the family of the study if the
    layout answers its question, and those that the rule decides; its size counts what is planned.
    """
    found = list(_evidence(trials, layout, rule, items))
    # The family, by the arms that are planned in each cell, whether or not their trials have ended.
    decisive = layout.answers(rule.question)
    size = len(found)
    if decisive:
        planned = (set(part["arm"]) for _, part in groups_of(trials, layout.axes))
        arms = [cell & {*(rule.family or cell)} for cell in planned]
        size = family_size(arms, rule.reference, rule.question or "overall")
    family = Family(size, rule.alpha, rule.margin if decisive else None)
    # How deep the worst collapse fell: what one arm shows, its rivals may do too.
    deepest_fall = max((one.evidence.fell for one in found), default=0.0)
    interim = rule.interim if decisive else None
    bounds = _bounds(metric, trials["value"])

    # Those with a verdict are judged together as the family, then the exploratory ones.
    judged_pairs: dict[int, Comparison] = {}
    for is_decisive in (True, False):
        at = [i for i, one in enumerate(found) if (decisive and one.stands) == is_decisive]
        evidence = [replace(found[i].evidence, fell=deepest_fall) for i in at]
        # Earlier looks are asked for by the context, both sides and the evidence.
        before = [interim.looks_before(*found[i][:4]) if interim is not None else 0 for i in at]
        comparisons = judged(
            evidence, family, rule.mode, decisive=is_decisive, looks=before, bounds=bounds
        )
        judged_pairs |= dict(zip(at, comparisons, strict=True))

    # What looks say of each, why one has no verdict, and the better side first.
    pairs = []
    for i, (context, a, b, now, _) in enumerate(found):
        comparison = judged_pairs[i]
        if interim is not None:
            comparison = interim.verdict_on(context, a, b, comparison)
        why = spread_beside(now, a, b)
        if comparison.judgement is not None and why:
            comparison = replace(comparison, judgement=replace(comparison.judgement, reason=why))
        if (comparison.difference < 0) == (rule.mode == "max") and comparison.difference != 0:
            a, b, comparison = b, a, comparison.reversed()
        pairs.append(Pair(context, a, b, replace(comparison, names=(a, b)), metric))
    return pairs


def _evidence(
    trials: pd.DataFrame, layout: Layout, rule: DecisionRule, items: ItemValues | None
) -> Iterator[_Found]:
    """Yield each comparison that there is evidence for; it stands where the rule may decide it.

    In each context, such as a dataset, every two sides are compared, or every side with the rule's reference.
    """
    work = trials.assign(
        side=labels_of(trials, layout.compared), cell=labels_of(trials, layout.pooled)
    )
    for labels, part in groups_of(work, layout.context):
        context = tuple(zip(layout.context, labels, strict=True))
        column = {
            name: part[name].to_numpy()
            for name in ("value", "lost", "missing", "collapsed", "weight", "trial_id")
        }
        # A number for each replicate: pairs are then found by arrays, in a study of 30,000 trials too.
        keys = list(zip(part["cell"], part["fold"], part["seed"], strict=True))
        code = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        units = pd.DataFrame(list(code), columns=KEYS, dtype=object)
        coded = np.array([code[key] for key in keys])
        # where the trial of each (cell, fold, seed) stands; -1: nowhere
        sides: dict[str, NDArray[np.intp]] = {}
        for side in dict.fromkeys(part["side"]):
            # Where a replicate has several trials the first one counts. Of equal indices NumPy keeps the value that is
            # written last, so the rows are written backwards.
            own_rows = np.flatnonzero(part["side"] == side)[::-1]
            sides[str(side)] = np.full(len(code), -1)
            sides[str(side)][coded[own_rows]] = own_rows

        for a, b in pairs_of(sides, rule.reference):
            # Replicates that both sides have, in the order of a's trials, and the evidence of their pairs.
            in_both = np.flatnonzero((sides[a] >= 0) & (sides[b] >= 0))
            in_both = in_both[np.argsort(sides[a][in_both])]
            first = sides[a][in_both]
            second = sides[b][in_both]
            rows = units.iloc[in_both].assign(
                a=column["value"][first],
                b=column["value"][second],
                failed_a=column["lost"][first],
                failed_b=column["lost"][second],
                missing_a=column["missing"][first],
                missing_b=column["missing"][second],
                collapsed_a=column["collapsed"][first],
                collapsed_b=column["collapsed"][second],
            )
            trial_ids = column["trial_id"]
            scores = None if items is None else _items(items, trial_ids[first], trial_ids[second])
            weights = column["weight"][first] if (column["weight"] != 1).any() else None
            result = None
            if len(rows):
                result = paired_evidence(
                    rows, rule.design, mode=rule.mode, weights=weights, items=scores
                )

            # All trials of a and of b, and the values of those that finished.
            own_rows_of = [sides[side][sides[side] >= 0] for side in (a, b)]
            runs = [column["value"][at][np.isfinite(column["value"][at])] for at in own_rows_of]
            # Where hardly a replicate is shared, the runs are two samples. Such runs were read from elsewhere, and a
            # rule that takes them knows no arms that were added nor trials trained again: the comparison stands. An arm
            # without a finished run gives none, paired or not.
            if rule.unpaired and (result is None or result.common.n < 2):
                lost_a, lost_b = (int(column["lost"][at].sum()) for at in own_rows_of)
                apart = unpaired_evidence(runs[0], runs[1], (lost_a, lost_b), rule.mode)
                if apart is not None:
                    yield _Found(context, a, b, apart, stands=True)
            elif result is not None:
                # Finished trials that are in no pair have no partner.
                finished = sum(map(len, runs))
                # Arms that were added, and trials trained again, after results were seen have no verdict.
                stands = not rule.family or {a, b} <= {*rule.family}
                stands = stands and rule.again.isdisjoint(trial_ids[[*first, *second]])
                result = replace(result, unpaired=finished - 2 * result.pairs)
                yield _Found(context, a, b, result, stands)


def _items(items: ItemValues, first: Iterable[str], second: Iterable[str]) -> ItemScores:
    """Return the difference a - b of each group of test items, row by row.

    `first` and `second` have the ids of the trials of a and of b in each row.
    """
    differences: list[Any] = []
    parts: list[str] = []
    for a, b in zip(first, second, strict=True):
        has_items = a in items.means and b in items.means
        differences.append(np.subtract(items.means[a], items.means[b]) if has_items else None)
        parts.append(items.parts.get(a, items.parts.get(b, "")))
    return ItemScores(differences, parts, items.sizes)


KEYS = ["cell", "fold", "seed"]
"""What tells the trials of an arm apart."""
Cells = dict[tuple[Key, Key], Cell]
"""(labels of the row, labels of the column) -> cell."""


def marked(
    cells: Cells, layout: Layout, pairs: Sequence[Pair], mode: str, reference: str | None
) -> Cells:
    """Return `cells` with marks by the verdicts of `pairs`; none where the comparisons are exploratory.

    `best` is set where an arm is not shown to be worse than the best (where there is a reference, than any arm that it
    was compared with), as soon as another one is worse. `mark` says what is worse than the best, or worse or better
    than the `reference`, where there is one. With `mode` "max" larger means are better.
    """
    # (context, side, other side) -> the verdict on the first side.
    verdicts: dict[tuple[Key, str, str], str] = {}
    for pair in (pair for pair in pairs if pair.comparison.judgement is not None):
        context = tuple(value for _, value in pair.context)
        # Each verdict can be asked from either side.
        verdicts[context, pair.a, pair.b] = pair.comparison.decision
        verdicts[context, pair.b, pair.a] = pair.comparison.reversed().decision
    result = dict(cells)
    # Cells that are compared with each other share a context, the factors that are fixed: context -> side -> place.
    contexts: dict[Key, dict[str, tuple[Key, Key]]] = {}
    for place, cell in cells.items():
        value = dict(zip(layout.placed, (*place[0], *place[1]), strict=True))
        if cell.mean is not None:
            side = _joined(tuple(value[f] for f in layout.compared))
            contexts.setdefault(tuple(value[f] for f in layout.context), {})[side] = place
    for context, every in contexts.items():
        judged_sides = {side for where, side, _ in verdicts if where == context}
        members = {side: place for side, place in every.items() if side in judged_sides}
        if not members:
            continue
        # The best cell is one that no other beats; where every one is beaten, the one with the best mean.
        beaten = {
            s
            for s in members
            if any(verdicts.get((context, s, other)) == "worse" for other in members)
        }
        best = (max if mode == "max" else min)(
            [side for side in members if side not in beaten] or members,
            key=lambda side: float(cells[members[side]].mean or 0.0),
        )
        # Which sides are shown to be worse: than the best, or with a reference than any that they were compared with.
        against = [best] if reference is None else list(members)
        worse = {
            s for s in members if any(verdicts.get((context, s, o)) == "worse" for o in against)
        }
        for side, place in members.items():
            verdict = verdicts.get((context, side, best if reference is None else reference), "")
            mark = (
                verdict
                if verdict == "worse" or (verdict == "better" and reference is not None)
                else ""
            )
            result[place] = replace(cells[place], best=bool(worse) and side not in worse, mark=mark)
    return result


METHODS = {"sign-flip test": "sign-flip", "t-test": "t", "corrected t-test": "corrected t"}
"""Test -> what the legend calls an interval that inverts it."""


def build_table(
    frame: pd.DataFrame,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    axes: Sequence[str],
    metric: str,
    rule: DecisionRule,
    links: Mapping[str, str] | None = None,
    title: str = "",
    items: ItemValues | None = None,
) -> Table:
    """Build the table of `frame`: its cells with means, intervals and marks, and the comparisons between them.

    Args:
        frame: The trials, a row each: trial_id, arm, the axes, fold, seed, status and metrics. A column `weight` makes
            means of folds weighted ones.
        rows: What stands in the rows: "arm" and axes.
        columns: What stands in the columns, likewise.
        axes: The study's axes.
        metric: The metric of the cells.
        rule: What the replicates are, and which question the study decides. Other comparisons are exploratory.
        links: The address of a trial's MLflow run by its id.
        title: What stands above the table.
        items: The scores of the test items, for studies on one split.
    """
    layout = Layout(tuple(rows), tuple(columns), tuple(axes))
    trials = trials_of(frame, metric, layout.factors)
    reference = rule.reference if layout.compared == ("arm",) else None
    rule = replace(rule, reference=reference)
    pairs = comparisons(trials, layout, rule, metric, items)
    cells = marked(
        _cells(trials, layout, metric, rule, links or {}, items),
        layout,
        pairs,
        rule.mode,
        reference,
    )
    return Table(
        metric=metric,
        mode=rule.mode,
        alpha=rule.alpha,
        design=rule.design,
        row_factors=layout.rows,
        column_factors=layout.columns,
        rows=distinct(trials, layout.rows),
        columns=distinct(trials, layout.columns),
        cells=cells,
        pairs=tuple(pairs),
        compared=layout.compared,
        pooled=layout.pooled,
        reference=reference,
        title=title,
        decisive=layout.answers(rule.question),
    )


def _cells(
    trials: pd.DataFrame,
    layout: Layout,
    metric: str,
    rule: DecisionRule,
    links: Mapping[str, str],
    items: ItemValues | None,
) -> dict[tuple[Key, Key], Cell]:
    """Return (row, column) -> cell: mean, interval, statuses and replicates."""
    trials = trials.assign(cell=labels_of(trials, layout.pooled))
    split = len(layout.rows)  # a group's labels are those of its row, then those of its column
    cells = {}
    for key, part in groups_of(trials, layout.placed):
        # The mean of one arm is a contrast with 0. What folds with one seed may share is said of comparisons alone.
        done = part[part["value"].notna()]
        spread = _spread(done, replace(rule.design, seed_part=None), items) if len(done) else None
        mean = float(np.average(done["value"], weights=done["weight"])) if len(done) else None
        low: float | None = None
        high: float | None = None
        bounds = _bounds(metric, done["value"])
        why = "one replicate"
        if mean is not None and spread is not None:
            # Where folds or cells lack trials, it is as wide as the interval of the mean of their means.
            low, high = (
                end + (mean - spread.difference) for end in spread.interval(rule.alpha, rule.alpha)
            )
            if bounds and math.isfinite(low):
                if low <= bounds[0] and high >= bounds[1] and low < high:
                    # It holds every value that the metric can have, and says nothing.
                    low = -math.inf
                    high = math.inf
                    why = freedom(spread.degrees)
                else:
                    low = max(bounds[0], low)
                    high = min(bounds[1], high)
        # Each trial of the cell by itself, for pages that show or link them; a value that is missing is None.
        replicates = tuple(
            Replicate(t, f, s, status, None if math.isnan(v) else float(v), links.get(t))
            for t, f, s, status, v in zip(
                *(part[c] for c in ("trial_id", "fold", "seed", "status", "value")), strict=True
            )
        )
        cells[key[:split], key[split:]] = Cell(
            mean=mean,
            low=low,
            high=high,
            n=len(done),
            statuses=dict(Counter(part["status"])),
            replicates=replicates,
            interval=_method(spread, rule.alpha)
            if low is None or math.isfinite(low)
            else NO_INTERVAL,
            no_interval=why,
            min=float(done["value"].min()) if len(done) else None,
            max=float(done["value"].max()) if len(done) else None,
            over=_over(done, spread) if spread else "",
        )
    return cells


def _bounds(metric: str, values: "pd.Series[float]") -> tuple[float, float] | None:
    """Return the smallest and largest value that the metric can have, where its name tells them; else None.

    None as well where one of `values` is beyond them: the name then means something else.
    """
    bounds = metric_range(metric)
    return bounds if bounds and values.dropna().between(*bounds).all() else None


def _spread(done: pd.DataFrame, design: Design, items: ItemValues | None) -> Contrast | None:
    """Return what one arm's finished trials say of their mean: a contrast with 0 under the design; None without any."""
    scores = None
    if items is not None:
        ids = list(done["trial_id"])
        scores = ItemScores(
            [items.means.get(t) for t in ids], [items.parts[t] for t in ids], items.sizes
        )
    weights = done["weight"].to_numpy() if (done["weight"] != 1).any() else None
    return mean_contrast(
        done[["cell", "fold", "seed", "value"]], design, weights=weights, items=scores
    )


def _over(done: pd.DataFrame, spread: Contrast) -> str:
    """What the replicates of a cell are: `5 folds x 2 seeds`, or `9 replicates on 5 folds` where some are missing."""
    a_fold = Counter(fold for fold, _ in set(zip(done["fold"], done["seed"], strict=True)))
    # Folds with different numbers of seeds: some trials are missing.
    if spread.design.folds and len(set(a_fold.values())) > 1:
        return f"{plural(a_fold.total(), 'replicate')} on {plural(len(a_fold), 'fold')}"
    return replicates_text(spread)


def _method(mean: Contrast | None, alpha: float) -> str:
    """Return how a mean's interval was made, in words; "" without a mean."""
    if mean is None:
        return ""
    if mean.n < 2 or not np.isfinite(mean.interval(alpha, alpha)[0]):
        return NO_INTERVAL
    if mean.standard_error == 0:
        return "constant"
    # A t interval over seeds alone covers as it says only where scores are about symmetric.
    needs_symmetry = (
        mean.test(alpha) == "t-test"
        and mean.design.unit == "seed"
        and not (mean.design.items or mean.design.folds)
    )
    return METHODS[mean.test(alpha)] + (", of symmetric scores" if needs_symmetry else "")
