"""The comparisons of a table: from its trials to evidence, judged together as the study's family or exploratory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from contrasweep.results.cells import Key, Pair
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.items import ItemValues
from contrasweep.results.replicates import Layout, cells_of, groups_of, sides_of
from contrasweep.statistics.comparison import judged
from contrasweep.statistics.design import Design
from contrasweep.statistics.evidence import Evidence, ItemScores, paired_evidence
from contrasweep.statistics.family import Family, Question, family_size, pairs_of


@dataclass(frozen=True)
class DecisionRule:
    """How the comparisons of a table are judged. `question` is the study's where the table is about its metric, else
    None: all of its comparisons are exploratory then. `interim` has the looks at a study that grows."""

    design: Design = field(default_factory=Design)
    mode: Literal["max", "min"] = "max"
    alpha: float = 0.05
    question: Question | None = None
    margin: float | None = None
    reference: str | None = None
    interim: InterimVerdicts | ExtensionVerdicts | None = None


def comparisons(
    trials: pd.DataFrame, layout: Layout, rule: DecisionRule, metric: str, items: ItemValues | None = None
) -> list[Pair]:
    """Each two values of the compared factor in each context, or each with the reference; the better one comes first.

    The comparisons are the family of the study if the layout answers its question; its size counts what is planned.
    """
    found = list(_evidence(trials, layout, rule, items))
    decisive = layout.answers(rule.question)
    size = len(found)
    if decisive:
        size = family_size(arms_by_cell(trials, layout.axes), rule.reference, rule.question or "overall")
    family = Family(size, rule.alpha, rule.margin if decisive else None)
    named = [(tuple(zip(layout.context, context, strict=True)), a, b, evidence) for context, a, b, evidence in found]
    interim = rule.interim if decisive else None
    looks = [interim.looks_before(*one) for one in named] if interim is not None else None
    judged_pairs = judged([e for *_, e in found], family, rule.mode, decisive=decisive, looks=looks)
    pairs = []
    for (context, a, b, _), comparison in zip(named, judged_pairs, strict=True):
        if interim is not None:
            comparison = interim.verdict_on(context, a, b, comparison)
        if (comparison.difference < 0) == (rule.mode == "max") and comparison.difference != 0:
            a, b, comparison = b, a, comparison.reversed()
        pairs.append(Pair(context, a, b, comparison, metric))
    return pairs


def arms_by_cell(trials: pd.DataFrame, axes: Iterable[str]) -> list[set[str]]:
    """The arms that are planned in each cell."""
    return [set(part["arm"]) for _, part in groups_of(trials, tuple(axes))]


def _evidence(
    trials: pd.DataFrame, layout: Layout, rule: DecisionRule, items: ItemValues | None
) -> Iterator[tuple[Key, str, str, Evidence]]:
    work = trials.assign(side=sides_of(trials, layout), cell=cells_of(trials, layout))
    for context, part in groups_of(work, layout.context):
        column = {name: part[name].to_numpy() for name in ("value", "lost", "missing", "weight", "trial_id")}
        keys = list(zip(part["cell"], part["fold"], part["seed"], strict=True))
        sides: dict[str, dict[Any, int]] = {}  # where the trial of each (cell, fold, seed) stands
        for at, (side, key) in enumerate(zip(part["side"], keys, strict=True)):
            sides.setdefault(str(side), {}).setdefault(key, at)
        for a, b in pairs_of(sides, rule.reference):
            both = [key for key in sides[a] if key in sides[b]]
            first, second = ([sides[side][key] for key in both] for side in (a, b))
            rows = pd.DataFrame(both, columns=["cell", "fold", "seed"]).assign(
                a=column["value"][first],
                b=column["value"][second],
                failed_a=column["lost"][first],
                failed_b=column["lost"][second],
                missing_a=column["missing"][first],
                missing_b=column["missing"][second],
            )
            trial_ids = column["trial_id"]
            scores = None if items is None else _items(items, trial_ids[first], trial_ids[second])
            weights = column["weight"][first] if (column["weight"] != 1).any() else None
            found = None
            if len(rows):
                found = paired_evidence(rows, rule.design, mode=rule.mode, weights=weights, items=scores)
            if found is not None:
                finished = sum(int(np.isfinite(column["value"][list(sides[side].values())]).sum()) for side in (a, b))
                yield context, a, b, replace(found, unpaired=finished - 2 * found.pairs)


def _items(items: ItemValues, first: Iterable[str], second: Iterable[str]) -> ItemScores:
    """a - b of each group of items, of the trials of each row."""
    differences: list[Any] = []
    parts: list[str] = []
    for a, b in zip(first, second, strict=True):
        known = a in items.means and b in items.means
        differences.append(np.subtract(items.means[a], items.means[b]) if known else None)
        parts.append(items.parts.get(a, items.parts.get(b, "")))
    return ItemScores(differences, parts, items.sizes)
