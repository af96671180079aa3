"""From a frame of trials to the table: its cells, the comparisons that it makes, and what is marked in it."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, choose_from
from contrasweep.results.answer import replicates_text
from contrasweep.results.cells import Cell, Key, Replicate
from contrasweep.results.comparing import ItemValues, Judging, comparisons
from contrasweep.results.layout import Layout, names_of
from contrasweep.results.legend import NO_INTERVAL
from contrasweep.results.marks import marked
from contrasweep.results.replicates import cells_of, distinct, groups_of, trials_of
from contrasweep.results.table import Table
from contrasweep.statistics.design import Contrast, Design
from contrasweep.statistics.evidence import ItemScores, mean_contrast
from contrasweep.study.objectives import metric_range

METHODS = {"sign-flip test": "sign-flip", "t-test": "t", "corrected t-test": "corrected t"}


def build_table(
    frame: pd.DataFrame,
    *,
    rows: str | Sequence[str] | None,
    columns: str | Sequence[str] | None,
    metric: str,
    judging: Judging | None = None,
    planned: pd.DataFrame | None = None,
    links: Mapping[str, str] | None = None,
    axes: Sequence[str] | None = None,
    title: str = "",
    spread: bool = False,
    items: ItemValues | None = None,
) -> Table:
    """The table of `frame` (one row a trial: trial_id, arm, the axes, fold, seed, status, metrics).

    `rows` and `columns` are `arm`, an axis, or a list of these. Trials of `planned` that `frame` lacks count as
    pending. `judging` says what the replicates are, and which question the study decides: comparisons that do not
    belong to it are exploratory. `axes` defaults to the columns between `arm` and `fold`; `links` maps trial ids to
    MLflow runs. `spread` shows (min-max) in the cells. `items` has the scores of the test items, for studies on one
    split. A column `weight` of `frame` makes means of folds weighted ones.
    """
    judging = judging or Judging()
    if axes is None:
        columns_of = [str(c) for c in frame.columns]
        axes = columns_of[columns_of.index("arm") + 1 : columns_of.index("fold")]
    layout = Layout(names_of(rows), names_of(columns), tuple(axes))
    layout.check(metric, frame)
    trials = trials_of(frame, planned, metric, layout.factors)
    reference = _reference(judging, layout, trials)
    judging = replace(judging, reference=reference)
    pairs = comparisons(trials, layout, judging, metric, items)
    cells = marked(_cells(trials, layout, metric, judging, links or {}, items), layout, pairs, judging.mode, reference)
    return Table(
        metric=metric,
        mode=judging.mode,
        alpha=judging.alpha,
        design=judging.design,
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
        spread=spread,
        decisive=layout.answers(judging.question),
    )


def _reference(judging: Judging, layout: Layout, trials: pd.DataFrame) -> str | None:
    if judging.reference is None or layout.compared != ("arm",):
        return None
    known = list(dict.fromkeys(trials["arm"]))
    if judging.reference not in known:
        raise SpecError(
            "the reference must be an arm of the table",
            place="reference",
            value=judging.reference,
            hint=choose_from("arms", known, judging.reference),
        )
    return judging.reference


def _cells(
    trials: pd.DataFrame,
    layout: Layout,
    metric: str,
    judging: Judging,
    links: Mapping[str, str],
    items: ItemValues | None,
) -> dict[tuple[Key, Key], Cell]:
    trials = trials.assign(cell=cells_of(trials, layout))
    split = len(layout.rows)
    cells = {}
    for key, part in groups_of(trials, layout.shown):
        done = part[part["value"].notna()]
        spread = _spread(done, judging.design, items) if len(done) else None
        mean = float(np.average(done["value"], weights=done["weight"])) if len(done) else None
        low, high = _interval(mean, spread, judging.alpha)
        bounds = metric_range(metric)
        # One replicate has no interval that could be kept in bounds.
        if (
            low is not None
            and high is not None
            and bounds
            and math.isfinite(low)
            and done["value"].between(*bounds).all()
        ):
            low, high = max(bounds[0], low), min(bounds[1], high)
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
            method=_method(spread, judging.alpha),
            least=float(done["value"].min()) if len(done) else None,
            most=float(done["value"].max()) if len(done) else None,
            over=_over(done, spread) if spread else "",
        )
    return cells


def _spread(done: pd.DataFrame, design: Design, items: ItemValues | None) -> Contrast | None:
    """What one arm's finished replicates say of their mean under the design, as a comparison with 0 has it."""
    scores = None
    if items is not None:
        ids = list(done["trial_id"])
        scores = ItemScores([items.means.get(t) for t in ids], [items.parts[t] for t in ids], items.sizes)
    weights = done["weight"].to_numpy() if (done["weight"] != 1).any() else None
    return mean_contrast(done[["cell", "fold", "seed", "value"]], design, weights=weights, items=scores)


def _interval(mean: float | None, spread: Contrast | None, alpha: float) -> tuple[float | None, float | None]:
    """The interval around the mean of all finished trials. Where folds or cells lack some of their trials, it has the
    width of that of the mean of their means."""
    if mean is None or spread is None:
        return None, None
    low, high = spread.interval(alpha, alpha)
    return low + (mean - spread.difference), high + (mean - spread.difference)


def _over(done: pd.DataFrame, spread: Contrast) -> str:
    """What the replicates of a cell are: `5 folds x 2 seeds`, or `9 replicates on 5 folds` where some are missing."""
    a_fold = Counter(fold for fold, _ in set(zip(done["fold"], done["seed"], strict=True)))
    if spread.design.folds and len(set(a_fold.values())) > 1:
        return f"{a_fold.total()} replicates on {len(a_fold)} folds"
    return replicates_text(spread)


def _method(mean: Contrast | None, alpha: float) -> str:
    if mean is None:
        return ""
    if mean.n < 2 or not np.isfinite(mean.interval(alpha, alpha)[0]):
        return NO_INTERVAL
    return "constant" if mean.standard_error == 0 else METHODS[mean.test(alpha)]
