"""Figures of a search: the effect and the importance of each setting."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.canonical import label
from contrasweep.errors import plural
from contrasweep.reporting.data import TrialData
from contrasweep.reporting.figures import Bars, Dots, Figure, Lines, short
from contrasweep.reporting.search_notes import percent
from contrasweep.reporting.slices import MAX_DOTS
from contrasweep.results.search import settings
from contrasweep.storage.record import Status


def slice_figures(data: TrialData) -> list[Figure]:
    """Return a figure of the metric over each searched setting, with a point for each configuration.

    Configurations that a pruner stopped are left out, and settings with a single value.
    """
    search = data.search
    figures = []
    if search is None or search.empty:
        return []
    # The score of a pruned configuration is after fewer steps than the scores of the others.
    pruned = search["status"].isin([status.value for status in Status if status.stopped_early])
    scored = search[search["value"].notna() & ~pruned]
    left_out = len(search) - len(scored)
    caption = "One point a configuration of the search."
    if left_out:
        caption += f" {left_out} that were pruned or have no score are left out."
    for name in settings(search):
        # A configuration that lacks the setting has NaN, which differs from itself. None may be an option.
        known = scored[scored[name].map(lambda value: value == value).astype(bool)]
        # Values of which any is no number stand side by side, and the points of one value are spread at random.
        words = [] if are_numbers(known[name]) else list(dict.fromkeys(map(label, known[name])))
        rng = np.random.default_rng(0)
        # The dots of each arm; over a dot stand the arm, the setting's value and the metric.
        dots = []
        for arm in data.arms:
            part = known[known["arm"] == arm].head(MAX_DOTS)
            x = list(part[name])
            if words:
                x = [words.index(label(v)) + rng.uniform(-0.15, 0.15) for v in x]
            titles = []
            for value, score in zip(part[name], part["value"], strict=True):
                shown = label(value) if words else short(value)
                titles.append(f"{data.names(arm)}, {name} {shown}: {short(score)}")
            dots.append(
                Dots(
                    data.names(arm),
                    data.colour(arm),
                    x,
                    list(part["value"]),
                    titles,
                )
            )
        if known[name].map(label).nunique() > 1:
            chart = Lines(
                [],
                dots,
                x_label=name,
                y_label=data.names(data.metric),
                x_names=words,
                log_x=not words and logarithmic(data, name, known[name].astype("float64")),
            )
            figures.append(Figure(chart, caption, f"Slice: {name}"))
    return figures


def importance_figures(data: TrialData) -> list[Figure]:
    """Return a figure for each arm: the importance of each searched setting, beside the level of noise."""
    if data.importance is None or data.importance.empty:
        return []
    # Arms in the order of the study; the most important setting of an arm first.
    ordered = data.importance.sort_values("share", ascending=False, kind="stable")
    figures = []
    for arm in data.arms:
        part = ordered[ordered["arm"].astype(str) == arm]
        if part.empty:
            continue
        chart = Bars(
            title=f"importance, {data.names(arm)}",
            names=list(part["setting"]),
            values=list(part["share"]),
            texts=[f"{percent(row['share'])}, {row['verdict']}" for row in part.to_dict("records")],
            marks=list(part["noise"]),
            colour=data.colour(arm),
        )
        n = part["configurations"].iloc[0]
        caption = f"{plural(n, 'configuration')}: too few to say."
        if part["share"].notna().any():
            caption = (
                f"Share of what tells the best tenth of {n} configurations apart (PED-ANOVA). The upright line is what "
                "the same configurations reach with their scores shuffled; one setting in twenty passes it by chance."
            )
        figures.append(Figure(chart, caption, f"Importance: {data.names(arm)}"))
    return figures


def are_numbers(values: Iterable[Any]) -> bool:
    """Return whether all of these values of a setting are numbers; True and False are none."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def logarithmic(data: TrialData, name: str, numbers: "pd.Series[float]") -> bool:
    """Return whether the scale of a setting is logarithmic: as its search space says or, without one, by its span.

    `numbers` are the values of the setting, NaN where there is none. A value of 0 or below has no logarithm: the scale
    is then not logarithmic.
    """
    spaces = [data.document.space(arm).get(name) for arm in data.document.arms]
    declared = [bool(space.get("log")) for space in spaces if isinstance(space, dict)]
    wide = any(declared) if declared else numbers.max() / numbers.min() > 50
    return bool(numbers.min() > 0 and wide)
