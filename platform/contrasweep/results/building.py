"""From a frame of trials to the table: replicates, comparisons, cells and marks."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
    """Which factors (the arm and the axes) stand in a table's rows and which in its columns."""

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
        """The factors that are fixed in a comparison."""
        return tuple(f for f in self.placed if f not in self.compared)

    def answers(self, question: str | None) -> bool:
        """Whether this table's comparisons are the family of a study with this question."""
        if question is None or self.compared != ("arm",):
            return False
        return not self.context if question == "overall" else not self.pooled


def names_of(value: str | Sequence[str] | None) -> Key:
    """Return one name, several or None as a tuple."""
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


def trials_of(frame: pd.DataFrame, metric: str, factors: Key) -> pd.DataFrame:
    """Return one row for each trial: labels of the factors, fold, seed, status, and `value` (NaN unless done).

    Of trials without a value, `lost` marks those that count as a loss, `missing` those that ended for a cause outside
    the method; the others are still to run.
    """
    column = frame[metric] if metric in frame else pd.Series(np.nan, frame.index)
    values = pd.to_numeric(column, errors="coerce").astype("float64").to_numpy()
    status = frame["status"].astype(str).to_numpy(dtype=object)
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
    """The trials of each combination of `factors`, in the order of the study."""
    if not factors:
        yield (), trials
        return
    for key, part in trials.groupby(list(factors), sort=False):
        yield tuple(str(k) for k in key), part  # type: ignore[union-attr]


def distinct(trials: pd.DataFrame, factors: Key) -> tuple[Key, ...]:
    """The combinations of `factors` that there are."""
    if not factors:
        return ((),)
    return tuple(dict.fromkeys(zip(*(trials[f] for f in factors), strict=True)))


def labels_of(trials: pd.DataFrame, factors: Key) -> pd.Series:
    """Return the labels of each trial's `factors` as one text."""
    return pd.Series([_joined(k) for k in row_tuples(trials, factors)], trials.index, dtype=object)


def _joined(labels: Key) -> str:
    """Return several labels as one text; one with a space is quoted, so that no other labels have this text."""
    return " ".join(v if len(labels) == 1 or " " not in v else json.dumps(v) for v in labels)


@dataclass(frozen=True)
class DecisionRule:
    """How the comparisons of a table are judged.

    `question` is the study's where the table is about its metric, else None: all comparisons are exploratory then.
    `margin` is the smallest difference of interest, `reference` the arm that the others are compared with, `interim`
    the looks at a study that grows or was extended. Only comparisons of the arms `family` (empty: all) have verdicts,
    and none of trials that were trained `again` with another result. With `unpaired`, arms with less than two
    replicates in common are compared by all of their runs.
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
    decisive = layout.answers(rule.question)
    size = len(found)
    if decisive:
        planned = (set(part["arm"]) for _, part in groups_of(trials, layout.axes))
        arms = [cell & {*(rule.family or cell)} for cell in planned]
        size = family_size(arms, rule.reference, rule.question or "overall")
    family = Family(size, rule.alpha, rule.margin if decisive else None)
    # what one arm shows, its rivals may do too
    deepest_fall = max((e.fell for *_, e, _ in found), default=0.0)
    tested = [
        (tuple(zip(layout.context, context, strict=True)), a, b, replace(e, fell=deepest_fall))
        for context, a, b, e, _ in found
    ]
    decided = [decisive and stands for *_, stands in found]
    interim = rule.interim if decisive else None
    looks = [interim.looks_before(*compared) if interim is not None else 0 for compared in tested]
    bounds = _bounds(metric, trials["value"])
    judged_pairs: dict[int, Comparison] = {}
    for is_decisive in (True, False):
        at = [i for i, stands in enumerate(decided) if stands == is_decisive]
        evidence = [tested[i][3] for i in at]
        before = [looks[i] for i in at]
        comparisons = judged(
            evidence, family, rule.mode, decisive=is_decisive, looks=before, bounds=bounds
        )
        judged_pairs |= dict(zip(at, comparisons, strict=True))
    pairs = []
    for i, (context, a, b, _) in enumerate(tested):
        comparison = judged_pairs[i]
        if interim is not None:
            comparison = interim.verdict_on(context, a, b, comparison)
        why = spread_beside(found[i][3], a, b)
        if comparison.judgement is not None and why:
            comparison = replace(comparison, judgement=replace(comparison.judgement, reason=why))
        if (comparison.difference < 0) == (rule.mode == "max") and comparison.difference != 0:
            a, b, comparison = b, a, comparison.reversed()
        pairs.append(Pair(context, a, b, replace(comparison, names=(a, b)), metric))
    return pairs


def _evidence(
    trials: pd.DataFrame, layout: Layout, rule: DecisionRule, items: ItemValues | None
) -> Iterator[tuple[Key, str, str, Evidence, bool]]:
    """Yield each comparison with its context and sides, and whether the rule decides it."""
    work = trials.assign(
        side=labels_of(trials, layout.compared), cell=labels_of(trials, layout.pooled)
    )
    for context, part in groups_of(work, layout.context):
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
            # Where a replicate has several trials the first one counts: it stands last, and is written last.
            own_rows = np.flatnonzero(part["side"] == side)[::-1]
            sides[str(side)] = np.full(len(code), -1)
            sides[str(side)][coded[own_rows]] = own_rows
        for a, b in pairs_of(sides, rule.reference):
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
            # Where hardly a replicate is shared, the runs are two samples.
            if rule.unpaired and (result is None or result.common.n < 2):
                alone = [sides[side][sides[side] >= 0] for side in (a, b)]
                runs = [column["value"][at][np.isfinite(column["value"][at])] for at in alone]
                lost = int(column["lost"][alone[0]].sum()), int(column["lost"][alone[1]].sum())
                if (apart := unpaired_evidence(runs[0], runs[1], lost, rule.mode)) is not None:
                    yield context, a, b, apart, True
            elif result is not None:
                finished = sum(
                    int(np.isfinite(column["value"][sides[s][sides[s] >= 0]]).sum()) for s in (a, b)
                )
                # Arms that were added, and trials trained again, after results were seen have no verdict.
                stands = not rule.family or {a, b} <= {*rule.family}
                stands = stands and rule.again.isdisjoint(trial_ids[[*first, *second]])
                yield context, a, b, replace(result, unpaired=finished - 2 * result.pairs), stands


def _items(items: ItemValues, first: Iterable[str], second: Iterable[str]) -> ItemScores:
    """Return the difference a - b of each group of items, for the trials `first` and `second` of each row."""
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


def marked(
    cells: Cells, layout: Layout, pairs: Sequence[Pair], mode: str, reference: str | None
) -> Cells:
    """Return `cells` with marks by the verdicts of `pairs`; none where the comparisons are exploratory.

    `best` is set where an arm is not shown to be worse than the best (where there is a reference, than any arm that it
    was compared with), as soon as another one is worse. `mark` says what is worse than the best, or worse or better
    than the reference.
    """
    verdicts: dict[tuple[Key, str, str], str] = {}
    for pair in (pair for pair in pairs if pair.comparison.judgement is not None):
        context = tuple(value for _, value in pair.context)
        # Each verdict can be asked from either side.
        verdicts[context, pair.a, pair.b] = pair.comparison.decision
        verdicts[context, pair.b, pair.a] = pair.comparison.reversed().decision
    result = dict(cells)
    contexts: dict[Key, dict[str, tuple[Key, Key]]] = {}
    # Cells that are compared with each other share a context: the factors that are fixed.
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
    """Build the table of `frame`, which has one row a trial: trial_id, arm, the axes, fold, seed, status, metrics.

    Args:
        frame: The trials. A column `weight` makes means of folds weighted ones.
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
    split = len(layout.rows)
    cells = {}
    for key, part in groups_of(trials, layout.placed):
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
            if (
                bounds
                and math.isfinite(low)
                and low <= bounds[0]
                and high >= bounds[1]
                and low < high
            ):
                # it says nothing
                low = -math.inf
                high = math.inf
                why = freedom(spread.degrees)
            elif bounds and math.isfinite(low):
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
    """Return the smallest and largest value of the metric, where its name tells them and all `values` are within."""
    bounds = metric_range(metric)
    return bounds if bounds and values.dropna().between(*bounds).all() else None


def _spread(done: pd.DataFrame, design: Design, items: ItemValues | None) -> Contrast | None:
    """Return what one arm's finished replicates say of their mean: a contrast with 0 under the design."""
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
    if spread.design.folds and len(set(a_fold.values())) > 1:
        return f"{plural(a_fold.total(), 'replicate')} on {plural(len(a_fold), 'fold')}"
    return replicates_text(spread)


def _method(mean: Contrast | None, alpha: float) -> str:
    """Return how a mean's interval was made, in words; "" without a mean."""
    if mean is None:
        return ""
    if mean.n < 2 or not np.isfinite(mean.interval(alpha, alpha)[0]):
        return NO_INTERVAL
    few = (
        mean.test(alpha) == "t-test"
        and mean.design.unit == "seed"
        and not (mean.design.items or mean.design.folds)
    )
    if mean.standard_error == 0:
        return "constant"
    return METHODS[mean.test(alpha)] + (", of symmetric scores" if few else "")
