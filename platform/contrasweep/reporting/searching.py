"""Figures of a search: the effect and the importance of each setting."""

import numpy as np
import pandas as pd

from contrasweep.errors import plural
from contrasweep.reporting.data import TrialData
from contrasweep.reporting.figures import Bars, Dots, Figure, Lines, short
from contrasweep.reporting.search_notes import percent
from contrasweep.reporting.slices import POINTS
from contrasweep.results.search import settings
from contrasweep.storage.record import Status


def slice_figures(data: TrialData) -> list[Figure]:
    """Return the metric over each searched setting, one point a configuration that no pruner stopped."""
    search = data.search
    figures = []
    if search is None or search.empty:
        return []
    # A score of a pruned configuration is of fewer steps than those of the others.
    pruned = search["status"].isin([status.value for status in Status if status.stopped_early])
    whole = search[search["value"].notna() & ~pruned]
    left_out = len(search) - len(whole)
    caption = "One point a configuration of the search." + (
        f" {left_out} that were pruned or have no score are left out." if left_out else ""
    )
    for name in settings(search):
        numbers = pd.to_numeric(whole[name], errors="coerce")
        # Settings that are no numbers stand side by side, the points of one spread a little.
        words = [] if numbers.notna().any() else [*map(str, dict.fromkeys(whole[name].dropna()))]
        rng = np.random.default_rng(0)
        # A set of dots for each arm, and over each dot the arm, the setting's value and the metric.
        dots = []
        for arm in data.arms:
            part = whole[(whole["arm"] == arm) & whole[name].notna()].head(POINTS)
            x = (
                [words.index(str(v)) + rng.uniform(-0.15, 0.15) for v in part[name]]
                if words
                else numbers[part.index]
            )
            titles = [
                f"{data.names(arm)}, {name} {short(a) if isinstance(a, int | float) else a}: {short(b)}"
                for a, b in zip(part[name], part["value"], strict=True)
            ]
            dots.append(
                Dots(
                    data.names(arm),
                    data.colour(arm),
                    list(map(float, x)),
                    list(part["value"]),
                    titles,
                )
            )
        # Of a setting that has one value only there is nothing to see.
        if whole[name].astype(str).nunique() > 1:
            chart = Lines(
                [],
                dots,
                x_label=name,
                y_label=data.names(data.metric),
                x_names=words,
                log_x=not words and logarithmic(data, name, numbers),
            )
            figures.append(Figure(chart, caption, f"Slice: {name}"))
    return figures


def importance_figures(data: TrialData) -> list[Figure]:
    """Return figures of the importance of each searched setting, by arm, beside the level of noise."""
    if data.importance is None or data.importance.empty:
        return []
    # Arms in the order of the study, and of each the most important setting first.
    ordered = data.importance.sort_values("share", ascending=False, kind="stable")
    parts = {str(arm): part for arm, part in ordered.groupby("arm", sort=False)}
    figures = []
    for arm in filter(parts.__contains__, data.arms):
        part = parts[arm]
        chart = Bars(
            f"importance, {data.names(arm)}",
            list(part["setting"]),
            list(part["share"]),
            list(map(percent, part["share"])),
            list(part["verdict"]),
            [data.colour(arm)] * len(part),
            list(part["noise"]),
        )
        n = part["configurations"].iloc[0]
        caption = (
            f"Share of what tells the best tenth of {n} configurations apart (PED-ANOVA). The upright line is what the "
            "same configurations reach with their scores shuffled; one setting in twenty passes it by chance."
            if part["share"].notna().any()
            else f"{plural(n, 'configuration')}: too few to say."
        )
        figures.append(Figure(chart, caption, f"Importance: {data.names(arm)}"))
    return figures


def logarithmic(data: TrialData, name: str, numbers: "pd.Series[float]") -> bool:
    """Return whether a setting's scale is logarithmic: by its space or, where none declares it, by its span.

    Never for a setting with a value of 0 or below. `numbers` are its values, NaN where there is none.
    """
    spaces = [data.document.space(arm).get(name) for arm in data.document.arms]
    declared = [bool(space.get("log")) for space in spaces if isinstance(space, dict)]
    wide = any(declared) if declared else numbers.max() / numbers.min() > 50
    return bool(numbers.min() > 0 and wide)
