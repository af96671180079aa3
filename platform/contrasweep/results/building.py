"""From a frame of trials to the table: replicates, comparisons, cells and marks."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from contrasweep.canonical import label
from contrasweep.errors import plural
from contrasweep.results.answer import Pair, replicates_text
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.items import ItemValues
from contrasweep.results.table import CONSTANT, NO_INTERVAL, Cell, Key, Replicate, Table
from contrasweep.rows import Mode, row_tuples
from contrasweep.statistics.comparison import Comparison, freedom, judged_comparisons, within
from contrasweep.statistics.design import Contrast, Design
from contrasweep.statistics.evidence import Evidence, ItemScores, mean_contrast, paired_evidence
from contrasweep.statistics.family import Family, Question, family_size, pairs_of
from contrasweep.statistics.unpaired import spread_beside, unpaired_evidence
from contrasweep.storage.interim_log import Context
from contrasweep.storage.record import COUNTING, LARGEST, Cause, Status
from contrasweep.study.metric_names import metric_range


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
        """The factors in the rows, then those in the columns."""
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
        """The factors in the table that are not compared: each comparison is at one value of each of them."""
        return tuple(f for f in self.placed if f not in self.compared)

    def answers(self, question: str | None) -> bool:
        """Whether this table's comparisons are the family of a study with this `question`; False for None.

        The question `overall` compares arms over all cells, so without a context. The question `cells` compares them in
        each cell, so with no factor pooled.
        """
        if question is None or self.compared != ("arm",):
            return False
        return not self.context if question == "overall" else not self.pooled


NO_VALUE = "without a value"
"""The status, in tables, of a trial that is done but whose value is no number or too large."""
UNFIT = tuple(status.value for status in Status if status.infeasible)
"""The statuses of trials that fit no host."""
LOST = (
    NO_VALUE,
    *(status.value for status in Status if status.lost and status.value not in UNFIT),
)
"""Statuses of trials that count as a loss; other trials without a value are missing or still to run."""
OUTSIDE = tuple(cause.value for cause in Cause if cause.outside)
"""Causes of a failure that lie outside the method, such as a lost host."""


def _columns(factors: Key) -> list[str]:
    """Return the names of those columns that have the labels of `factors`, in a frame that `trials_of` makes.

    They begin with a prefix, because an axis may have the name of another column, such as `lost` or `value`.
    """
    return [f"label of {name}" for name in factors]


def trials_of(
    frame: pd.DataFrame, metric: str, factors: Key, weights: ArrayLike | None = None
) -> pd.DataFrame:
    """Return the trials of `frame`, a row each, in the columns that the functions below use.

    These are the labels of the factors, trial_id, fold, seed, status, and `value`: the `metric` of a trial that is
    done, NaN for any other. `lost` marks trials that count as a loss. `missing` marks trials that ended for a cause
    outside the method, or fit on no host. Any other trial without a value is still to run. `collapsed` marks trials
    whose method says that they collapsed. `weight` is 1 unless there are `weights` [trials].
    """
    # A frame may lack the metric, and the columns of causes and collapses.
    absent = pd.Series(np.nan, frame.index)
    values = pd.to_numeric(frame.get(metric, absent), errors="coerce").astype("float64").to_numpy()
    status = frame["status"].astype(str).to_numpy(dtype=object)
    # A trial that is done, but whose value is no number or too large, counts as a loss.
    values = np.where(np.abs(values) <= LARGEST, values, np.nan)
    status[np.isin(status, list(COUNTING)) & np.isnan(values)] = NO_VALUE
    # What failed for a cause outside the method, or fit on no host, says nothing of the method.
    outside = frame.get("cause", absent).isin(OUTSIDE).to_numpy()
    missing = outside | np.isin(status, UNFIT)
    # A metric with the name of an axis is called `metric.NAME`.
    collapsed_column = "metric.collapsed" if "collapsed" in factors else "collapsed"
    # Column of the result -> column of `frame` whose labels it has; `label` makes a text of each value.
    sources = dict(zip(_columns(factors), factors, strict=True)) | {"fold": "fold", "seed": "seed"}
    labels = {
        column: list(map(label, frame[source].astype(object))) for column, source in sources.items()
    }
    trials = pd.DataFrame(labels).assign(
        weight=1.0 if weights is None else np.asarray(weights, dtype="float64"),
        trial_id=frame["trial_id"].to_numpy(),
        status=status,
        lost=np.isin(status, LOST) & ~missing,
        missing=missing,
        collapsed=frame.get(collapsed_column, absent).eq(1).to_numpy(),
        value=np.where(np.isin(status, list(COUNTING)), values, np.nan),
    )
    # Texts as Python's objects, which loops read many times faster than Arrow's texts.
    return trials.astype(dict.fromkeys((*sources, "trial_id", "status"), object))


def groups_of(trials: pd.DataFrame, factors: Key) -> Iterator[tuple[Key, pd.DataFrame]]:
    """Yield each combination of labels of `factors` and its trials, in the order of the study; () without factors."""
    if not factors:
        yield (), trials
        return
    for labels, part in trials.groupby(_columns(factors), sort=False):
        yield tuple(map(str, labels)), part  # type: ignore[arg-type]


def distinct(trials: pd.DataFrame, factors: Key) -> tuple[Key, ...]:
    """Return the combinations of labels of `factors` that occur, in the order of the study; `((),)` without factors."""
    if not factors:
        return ((),)
    return tuple(dict.fromkeys(row_tuples(trials, _columns(factors))))


def labels_of(trials: pd.DataFrame, factors: Key) -> pd.Series:
    """Return the labels of each trial's `factors` as one text, by the index of `trials`; "" without factors."""
    texts = [joined(labels) for labels in row_tuples(trials, _columns(factors))]
    return pd.Series(texts, trials.index, dtype=object)


def joined(labels: Key) -> str:
    """Return several labels as one text. A label with a space is quoted, so that different labels differ as texts."""
    if len(labels) == 1:
        return labels[0]
    return " ".join(json.dumps(text) if " " in text else text for text in labels)


@dataclass(frozen=True)
class DecisionRule:
    """How the comparisons of a table are judged.

    Attributes:
        design: How a cell is replicated.
        mode: Whether larger or smaller values are better.
        alpha: The chance of any false verdict.
        question: The question of the study where the table is about its metric, else None: all comparisons are then
            exploratory.
        margin: The smallest difference of interest, in units of the metric; None: nothing is called equivalent.
        reference: The arm that the others are compared with; None: every two arms are compared.
        interim: The looks at a study that grows or was extended.
        family_arms: The arms whose comparisons may have verdicts; empty: all arms.
        trained_again: Ids of trials that were trained again with another result. No comparison with them has a verdict.
        unpaired: Whether arms with fewer than two replicates in common are compared as two samples of runs.
    """

    design: Design = field(default_factory=Design)
    mode: Mode = "max"
    alpha: float = 0.05
    question: Question | None = None
    margin: float | None = None
    reference: str | None = None
    interim: InterimVerdicts | ExtensionVerdicts | None = None
    family_arms: Collection[str] = ()
    trained_again: frozenset[str] = frozenset()
    unpaired: bool = False


class PairEvidence(NamedTuple):
    """A comparison that is not judged yet: its evidence, and whether it may have a verdict.

    `context`, `a` and `b` are as in `Pair`: its place in the table and the labels of its two sides.
    """

    context: Context
    a: str
    b: str
    evidence: Evidence
    may_decide: bool = True


def comparisons(
    trials: pd.DataFrame,
    layout: Layout,
    rule: DecisionRule,
    metric: str,
    items: ItemValues | None = None,
) -> list[Pair]:
    """Return the comparisons of each two values of the compared factor in each context, the better value first.

    `trials` is a frame of `trials_of`, with the `metric` as `value`; `items` has the scores of its test items, if they
    are used. With a reference each value is compared with the reference alone.

    Where the layout answers the study's question, the comparisons that the rule may decide are one family. Its size is
    the number of comparisons that are planned, so that it does not grow as trials end. All other comparisons are
    exploratory.
    """
    unjudged_pairs = list(_evidence(trials, layout, rule, items))
    decisive = layout.answers(rule.question)
    size = _planned_size(trials, layout.axes, rule) if decisive else len(unjudged_pairs)
    family = Family(size, rule.alpha, rule.margin if decisive else None)
    # Every arm may collapse as deep as the worst collapse of any arm.
    deepest = max((pair.evidence.collapse_depth for pair in unjudged_pairs), default=0.0)
    interim = rule.interim
    bounds = _bounds(metric, trials["value"])

    # The pairs that have a verdict are judged together, as the family; the exploratory ones apart.
    comparison_at: dict[int, Comparison] = {}
    for has_verdict in (True, False):
        places = [
            place
            for place, pair in enumerate(unjudged_pairs)
            if (decisive and pair.may_decide) == has_verdict
        ]
        chosen = [unjudged_pairs[place] for place in places]
        looks = None
        if interim is not None:
            looks = [
                interim.looks_before(pair.context, pair.a, pair.b, pair.evidence) for pair in chosen
            ]
        judged = judged_comparisons(
            [replace(pair.evidence, collapse_depth=deepest) for pair in chosen],
            family,
            rule.mode,
            decisive=has_verdict,
            looks=looks,
            bounds=bounds,
        )
        comparison_at |= dict(zip(places, judged, strict=True))

    # The comparisons in the order in which their evidence was found.
    pairs = []
    for place, (context, a, b, evidence, _) in enumerate(unjudged_pairs):
        comparison = comparison_at[place]
        if interim is not None:
            comparison = interim.verdict_on(context, a, b, comparison)
        # Why an arm with a single run has no verdict, and how the runs of the other arm spread.
        why = spread_beside(evidence, a, b)
        if comparison.judgement is not None and why:
            comparison = replace(comparison, judgement=replace(comparison.judgement, reason=why))
        # The better side stands first.
        gain = comparison.difference if rule.mode == "max" else -comparison.difference
        if gain < 0:
            a, b, comparison = b, a, comparison.reversed()
        pairs.append(Pair(context, a, b, replace(comparison, names=(a, b)), metric))
    return pairs


def _planned_size(trials: pd.DataFrame, axes: Key, rule: DecisionRule) -> int:
    """Return the number of comparisons in the family, from the arms that are planned in each cell.

    A cell is a combination of values of the `axes`. Trials count whether they have ended or not. Arms that the rule
    leaves out of the family do not count.
    """
    arms_of_cells = []
    for _, part in groups_of(trials, axes):
        arms = {arm for (arm,) in distinct(part, ("arm",))}
        if rule.family_arms:
            arms &= {*rule.family_arms}
        arms_of_cells.append(arms)
    return family_size(arms_of_cells, rule.reference, rule.question or "overall")


def _evidence(
    trials: pd.DataFrame, layout: Layout, rule: DecisionRule, items: ItemValues | None
) -> Iterator[PairEvidence]:
    """Yield each comparison that there is evidence for, with whether the rule lets it have a verdict.

    In each context of the layout, such as a dataset, every two sides are compared, or every side with the rule's
    reference. A side is a value of the compared factor. `trials` and `items` are those of `comparisons`.
    """
    trials = trials.assign(
        side=labels_of(trials, layout.compared), cell=labels_of(trials, layout.pooled)
    )
    for labels, part in groups_of(trials, layout.context):
        context = tuple(zip(layout.context, labels, strict=True))
        replicates, places = _places(part)
        # Arrays, which are read many times faster than the columns of a frame.
        column = {str(name): part[name].to_numpy() for name in part}
        for a, b in pairs_of(places, rule.reference):
            # The replicates that both sides have, in the order of a's trials, and the evidence of these pairs.
            in_both = np.flatnonzero((places[a] >= 0) & (places[b] >= 0))
            in_both = in_both[np.argsort(places[a][in_both])]
            first = places[a][in_both]
            second = places[b][in_both]
            paired = _paired(replicates.iloc[in_both], column, first, second, rule, items)

            # All trials of a and of b, and the values of those that finished.
            all_of_a = places[a][places[a] >= 0]
            all_of_b = places[b][places[b] >= 0]
            values_a = column["value"][all_of_a]
            values_a = values_a[np.isfinite(values_a)]
            values_b = column["value"][all_of_b]
            values_b = values_b[np.isfinite(values_b)]
            # Runs with fewer than two replicates in common are two samples. They were read from elsewhere, where no arm
            # is known to be added and no trial to be trained again, so that they may have a verdict.
            if rule.unpaired and (paired is None or paired.common.n < 2):
                lost = int(column["lost"][all_of_a].sum()), int(column["lost"][all_of_b].sum())
                evidence = unpaired_evidence(values_a, values_b, lost, rule.mode)
                may_decide = True
            else:
                evidence = paired
                # No verdict with arms that were added, or trials that were trained again, after results were seen.
                declared = not rule.family_arms or {a, b} <= {*rule.family_arms}
                trained = column["trial_id"][[*first, *second]]
                may_decide = declared and rule.trained_again.isdisjoint(trained)
                if paired is not None:
                    # Finished trials that are in no pair have no partner.
                    without_partner = len(values_a) + len(values_b) - 2 * paired.pairs
                    evidence = replace(paired, unpaired=without_partner)
            if evidence is not None:
                yield PairEvidence(context, a, b, evidence, may_decide)


def _places(part: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, NDArray[np.intp]]]:
    """Return the replicates that `part` has, and for each side the row of its trial of each replicate.

    `part` has the trials of one context, a row each. The first result is a frame with a row for each replicate and the
    columns `KEYS`. The second is side -> row numbers in `part` [replicates], -1 where the side has no trial of that
    replicate.
    """
    # A number for each replicate: pairs are then found by arrays, fast enough for 30,000 trials.
    keys = list(zip(part["cell"], part["fold"], part["seed"], strict=True))
    number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    numbers = np.array([number_of[key] for key in keys])
    places = {}
    for side in dict.fromkeys(part["side"]):
        # Where a replicate has several trials the first one counts. NumPy keeps the value that is written last to an
        # index, so the rows are written backwards.
        rows = np.flatnonzero(part["side"] == side)[::-1]
        places[str(side)] = np.full(len(number_of), -1)
        places[str(side)][numbers[rows]] = rows
    return pd.DataFrame(list(number_of), columns=KEYS, dtype=object), places


def _paired(
    replicates: pd.DataFrame,
    column: Mapping[str, NDArray[Any]],
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    rule: DecisionRule,
    items: ItemValues | None,
) -> Evidence | None:
    """Return the evidence of pairs of trials of a and b; None where in no pair both trials have finished.

    `replicates` has a row for each pair. `first` and `second` [pairs] are the places of the trials of a and of b in the
    arrays of `column`, which is name -> values [trials]. `items` has the scores of test items, if they are used.
    """
    if not len(replicates):
        return None
    of_sides = {}
    for side, at in (("a", first), ("b", second)):
        of_sides[side] = column["value"][at]
        of_sides[f"failed_{side}"] = column["lost"][at]
        of_sides[f"missing_{side}"] = column["missing"][at]
        of_sides[f"collapsed_{side}"] = column["collapsed"][at]
    ids = column["trial_id"]
    return paired_evidence(
        pd.DataFrame({**replicates, **of_sides}),
        rule.design,
        mode=rule.mode,
        # The weight is that of the fold, which is the same for both trials of a pair.
        weights=column["weight"][first] if (column["weight"] != 1).any() else None,
        items=None if items is None else _item_differences(items, ids[first], ids[second]),
    )


def _item_differences(items: ItemValues, first: Iterable[str], second: Iterable[str]) -> ItemScores:
    """Return the scores of pairs of trials: for each pair the difference a - b of each group of test items.

    `first` and `second` have the ids of the trials of a and of b.
    """
    differences: list[Any] = []
    parts: list[str] = []
    for a, b in zip(first, second, strict=True):
        has_items = a in items.means and b in items.means
        differences.append(np.subtract(items.means[a], items.means[b]) if has_items else None)
        # A trial without a record has no test part; that of its partner is the same.
        parts.append(items.parts.get(a, items.parts.get(b, "")))
    return ItemScores(differences, parts, items.sizes)


KEYS = ["cell", "fold", "seed"]
"""What tells the trials of an arm apart."""
Cells = dict[tuple[Key, Key], Cell]
"""(labels of the row, labels of the column) -> cell."""


def marked(
    cells: Cells, layout: Layout, pairs: Sequence[Pair], mode: str, reference: str | None
) -> Cells:
    """Return `cells` with the marks that the verdicts of `pairs` give them; exploratory comparisons give none.

    In each context `best` is set in the cells that are not shown to be worse than the best one, provided that some cell
    is shown to be worse. With a `reference`, `best` is set in the cells that are not shown to be worse than any arm
    that they were compared with. `mark` is "worse" than the best cell or, with a reference, "worse" or "better" than
    the reference. With `mode` "max" larger means are better.
    """
    # context -> side -> (row, column) of its cell. Cells of one context are compared with each other.
    contexts: dict[Key, dict[str, tuple[Key, Key]]] = {}
    for place, cell in cells.items():
        if cell.mean is not None:
            label_of = dict(zip(layout.placed, (*place[0], *place[1]), strict=True))
            side = joined(tuple(label_of[factor] for factor in layout.compared))
            context = tuple(label_of[factor] for factor in layout.context)
            contexts.setdefault(context, {})[side] = place

    result = dict(cells)
    sign = 1 if mode == "max" else -1
    for context, beaten_by in _beaten_by(pairs).items():
        # Cells without a verdict are left out.
        places = contexts.get(context, {})
        places = {side: place for side, place in places.items() if side in beaten_by}
        # The best cell has the best mean of those that no other beats, or of all where every one is beaten.
        unbeaten = [side for side in places if beaten_by[side].isdisjoint(places)]
        best = max(
            unbeaten or places, key=lambda side: sign * float(cells[places[side]].mean or 0.0)
        )
        compared_with = best if reference is None else reference
        rivals = {best} if reference is None else set(places)
        worse = {side for side in places if beaten_by[side] & rivals}
        for side, place in places.items():
            mark = ""
            if compared_with in beaten_by[side]:
                mark = "worse"
            elif reference is not None and side in beaten_by.get(reference, ()):
                mark = "better"
            result[place] = replace(cells[place], best=bool(worse) and side not in worse, mark=mark)
    return result


def _beaten_by(pairs: Sequence[Pair]) -> dict[Key, dict[str, set[str]]]:
    """Return for each context and side the set of sides that this side is shown to be worse than.

    A context is given by its labels; a side is an arm, or whatever else is compared there. A side that is in no
    comparison with a verdict is left out.
    """
    contexts: dict[Key, dict[str, set[str]]] = {}
    for pair in pairs:
        if pair.has_verdict:
            beaten_by = contexts.setdefault(tuple(value for _, value in pair.context), {})
            beaten_by.setdefault(pair.a, set())
            beaten_by.setdefault(pair.b, set())
            # The better side of a pair stands first.
            if pair.comparison.decision == "better":
                beaten_by[pair.b].add(pair.a)
    return contexts


METHODS = {"sign-flip test": "sign-flip", "t-test": "t", "corrected t-test": "corrected t"}
"""Test -> what the legend calls the interval that belongs to the test."""


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
    weights: ArrayLike | None = None,
) -> Table:
    """Build the table of `frame`: its cells with means, intervals and marks, and the comparisons between them.

    Args:
        frame: The trials, a row each: trial_id, arm, the axes, fold, seed, status and metrics.
        rows: The factors in the rows: "arm" or axes.
        columns: The factors in the columns: "arm" or axes.
        axes: The study's axes.
        metric: The metric of the cells.
        rule: What the replicates are, and which question the study decides. Other comparisons are exploratory.
        links: Trial id -> address of the trial's MLflow run.
        title: The text above the table.
        items: The scores of the test items, for studies on one split.
        weights: The weight of each trial [trials], such as the number of its items; None: all count the same.
    """
    layout = Layout(tuple(rows), tuple(columns), tuple(axes))
    trials = trials_of(frame, metric, layout.factors, weights)
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
    """Return the cells of the table by (row, column), without marks.

    `trials` is a frame of `trials_of`, with the `metric` as `value`. `links` is trial id -> address of its MLflow run.
    `items` has the scores of test items, if they are used.
    """
    trials = trials.assign(cell=labels_of(trials, layout.pooled))
    split = len(layout.rows)  # a group's labels are those of its row, then those of its column
    cells = {}
    for labels, part in groups_of(trials, layout.placed):
        # Each trial of the cell by itself, for pages that show or link it.
        replicates = []
        for trial in part.to_dict("records"):
            replicates.append(
                Replicate(
                    trial_id=trial["trial_id"],
                    fold=trial["fold"],
                    seed=trial["seed"],
                    status=trial["status"],
                    value=None if math.isnan(trial["value"]) else trial["value"],
                    url=links.get(trial["trial_id"]),
                )
            )
        statuses = dict(Counter(part["status"]))
        # Without a finished trial there is no mean, and no interval of it.
        cell = Cell(None, None, None, n=0, statuses=statuses, replicates=tuple(replicates))
        done = part[part["value"].notna()]
        if len(done):
            cell = _estimated(cell, done, metric, rule, items)
        cells[labels[:split], labels[split:]] = cell
    return cells


def _estimated(
    cell: Cell, done: pd.DataFrame, metric: str, rule: DecisionRule, items: ItemValues | None
) -> Cell:
    """Return `cell` with the mean, interval, range and counts of its finished trials, which are the rows of `done`.

    The name `metric` tells which values are possible, at which the interval is cut. `items` has the scores of test
    items, if they are used.
    """
    ids = list(done["trial_id"])
    scores = None
    if items is not None:
        means = [items.means.get(trial) for trial in ids]
        scores = ItemScores(means, [items.parts[trial] for trial in ids], items.sizes)
    # The mean of one arm is a contrast with 0. Its interval leaves the variance between seeds out (`seed_part`), which
    # is told of comparisons alone.
    spread = mean_contrast(
        done[["cell", "fold", "seed", "value"]],
        replace(rule.design, seed_part=None),
        weights=done["weight"].to_numpy() if (done["weight"] != 1).any() else None,
        items=scores,
    )
    assert spread is not None  # as there are values
    # The contrast estimates the mean over folds or cells, each by the mean of its trials. Where some lack trials, the
    # cell's mean over all trials differs from that, and the interval is moved to the cell's mean.
    mean = float(np.average(done["value"], weights=done["weight"]))
    shift = mean - spread.difference
    low, high = (end + shift for end in spread.interval(rule.alpha))
    # Why there is no interval, if there is none. One that holds every value of the metric says nothing, and is dropped.
    why = freedom(spread.degrees) if math.isfinite(low) else "one replicate"
    low, high = within(low, high, _bounds(metric, done["value"]))
    return replace(
        cell,
        mean=mean,
        low=low,
        high=high,
        n=len(done),
        interval=_method(spread, rule.alpha) if math.isfinite(low) else NO_INTERVAL,
        why_no_interval=why,
        min=float(done["value"].min()),
        max=float(done["value"].max()),
        over=_cell_replicates(done, spread),
        collapsed=int(done["collapsed"].sum()),
    )


def _bounds(metric: str, values: "pd.Series[float]") -> tuple[float, float] | None:
    """Return the smallest and the largest value that a metric of this name can have; None where the name tells none.

    Also None where any of `values` is beyond them: the name then means something else.
    """
    bounds = metric_range(metric)
    if bounds is None or not values.dropna().between(*bounds).all():
        return None
    return bounds


def _cell_replicates(done: pd.DataFrame, spread: Contrast) -> str:
    """Return what a cell's mean is over: `5 folds x 2 seeds`, or `9 replicates on 5 folds` where trials are missing.

    `done` are the finished trials of the cell, a row each. `spread` is the contrast with 0 that gives the cell's
    interval.
    """
    seeds_of_fold = Counter(fold for fold, _ in set(zip(done["fold"], done["seed"], strict=True)))
    # Where folds have different numbers of seeds, some trials are missing.
    if spread.design.folds and len(set(seeds_of_fold.values())) > 1:
        replicates = plural(seeds_of_fold.total(), "replicate")
        return f"{replicates} on {plural(len(seeds_of_fold), 'fold')}"
    return replicates_text(spread)


def _method(mean: Contrast, alpha: float) -> str:
    """Return how the 1 - `alpha` interval of a mean was made, in words for the legend of the table.

    `mean` is the contrast of the cell's values with 0.
    """
    if mean.standard_error == 0:
        return CONSTANT
    # A t interval over seeds alone covers as it says only where scores are about symmetric.
    needs_symmetry = (
        mean.test(alpha) == "t-test"
        and mean.design.unit == "seed"
        and not (mean.design.items or mean.design.folds)
    )
    method = METHODS[mean.test(alpha)]
    return f"{method}, of symmetric scores" if needs_symmetry else method
