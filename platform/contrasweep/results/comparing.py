"""The comparisons of a table: from its trials to evidence, judged together as the study's family or exploratory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contrasweep.results.cells import Key, Pair
from contrasweep.results.growth import Extension, Growth
from contrasweep.results.layout import Layout
from contrasweep.results.replicates import LOST, cells_of, groups_of, sides_of
from contrasweep.statistics.comparison import judged
from contrasweep.statistics.design import Design
from contrasweep.statistics.evidence import Evidence, ItemScores, paired_evidence
from contrasweep.statistics.family import Family, Question, family_size, pairs_of


@dataclass(frozen=True)
class Judging:
    """How the comparisons of a table are judged. `question` is the study's where the table is about its metric, else
    None: all of its comparisons are exploratory then. `growth` has the looks at a study that grows."""

    design: Design = field(default_factory=Design)
    mode: Literal["max", "min"] = "max"
    alpha: float = 0.05
    question: Question | None = None
    margin: float | None = None
    reference: str | None = None
    growth: Growth | Extension | None = None


@dataclass(frozen=True)
class ItemValues:
    """The scores of test items of trials on one split: `means` of each group by trial id, in an order that all trials
    of one test part share, `parts` the test part of each trial, and `sizes` of the groups of each part."""

    means: Mapping[str, NDArray[np.float64]]
    parts: Mapping[str, str]
    sizes: Mapping[str, NDArray[np.float64]]


def comparisons(
    trials: pd.DataFrame, layout: Layout, judging: Judging, metric: str, items: ItemValues | None = None
) -> list[Pair]:
    """Each two values of the compared factor in each context, or each with the reference; the better one comes first.

    The comparisons are the family of the study if the layout answers its question; its size counts what is planned.
    """
    found = list(_evidence(trials, layout, judging, items))
    decisive = layout.answers(judging.question)
    size = len(found)
    if decisive:
        size = family_size(arms_by_cell(trials, layout.axes), judging.reference, judging.question or "overall")
    family = Family(size, judging.alpha, judging.margin if decisive else None)
    judged_pairs = judged([e for *_, e in found], family, judging.mode, decisive=decisive)
    pairs = []
    for (context, a, b, _), comparison in zip(found, judged_pairs, strict=True):
        if judging.growth is not None and decisive:
            comparison = judging.growth.judged(tuple(zip(layout.context, context, strict=True)), a, b, comparison)
        if (comparison.difference < 0) == (judging.mode == "max") and comparison.difference != 0:
            a, b, comparison = b, a, comparison.reversed()
        pairs.append(Pair(tuple(zip(layout.context, context, strict=True)), a, b, comparison, metric))
    return pairs


def arms_by_cell(trials: pd.DataFrame, axes: Iterable[str]) -> list[set[str]]:
    """The arms that are planned in each cell."""
    return [set(part["arm"]) for _, part in groups_of(trials, tuple(axes))]


def _evidence(
    trials: pd.DataFrame, layout: Layout, judging: Judging, items: ItemValues | None
) -> Iterator[tuple[Key, str, str, Evidence]]:
    work = trials.assign(side=sides_of(trials, layout), cell=cells_of(trials, layout), lost=trials["status"].isin(LOST))
    for context, part in groups_of(work, layout.context):
        sides = {str(side): rows.set_index(["cell", "fold", "seed"]) for side, rows in part.groupby("side", sort=False)}
        for a, b in pairs_of(sides, judging.reference):
            both = sides[a].index.intersection(sides[b].index, sort=False)
            first, second = (sides[side][~sides[side].index.duplicated()].loc[both] for side in (a, b))
            rows = pd.DataFrame(
                {
                    "a": first["value"].to_numpy(),
                    "b": second["value"].to_numpy(),
                    "failed_a": first["lost"].to_numpy(),
                    "failed_b": second["lost"].to_numpy(),
                },
                both,
            ).reset_index()
            scores = None if items is None else _items(items, first, second)
            weights = first["weight"].to_numpy() if (part["weight"] != 1).any() else None
            found = None
            if len(rows):
                found = paired_evidence(rows, judging.design, mode=judging.mode, weights=weights, items=scores)
            if found is not None:
                yield context, a, b, found


def _items(items: ItemValues, first: pd.DataFrame, second: pd.DataFrame) -> ItemScores:
    """a - b of each group of items, of each row."""
    differences: list[Any] = []
    parts: list[str] = []
    for a, b in zip(first["trial_id"], second["trial_id"], strict=True):
        known = a in items.means and b in items.means
        differences.append(np.subtract(items.means[a], items.means[b]) if known else None)
        parts.append(items.parts.get(a, items.parts.get(b, "")))
    return ItemScores(differences, parts, items.sizes)
