"""Figures of a search: what its budget buys, the effect of each setting."""

import numpy as np
import pandas as pd

from contrasweep.report.data import TrialData
from contrasweep.report.figures import Bars, Dots, Figure, Lines, Series, short
from contrasweep.report.search_notes import percent
from contrasweep.report.slices import POINTS
from contrasweep.results.effects import INDEPENDENT, budget_curves
from contrasweep.results.search import settings


def budget_figures(data: TrialData) -> list[Figure]:
    """Return figures of the best result that k trials of each arm's search give."""
    search, declared = data.search, data.document.search
    if search is None or search.empty:
        return []
    searcher = declared.searcher if declared else ""
    curves = budget_curves(search, data.arms, searcher=searcher, mode=data.mode, alpha=data.document.alpha)
    series = [
        Series(
            data.names(str(arm)),
            data.colour(str(arm)),
            list(part["trials"]),
            list(part["best"]),
            list(part["low"]),
            list(part["high"]),
            steps=searcher not in INDEPENDENT,
        )
        for arm, part in curves.groupby("arm", sort=False)
    ]
    caption = (
        "Expected best of k random trials (unbiased); the band is the exact interval of its median, as far as these "
        "trials bound it."
        if searcher in INDEPENDENT
        else f"Best so far; {searcher} adapts, so its trials are no independent draws and have no band."
    )
    chart = Lines(series, x_label="trials of an arm", y_label=f"best {data.names(data.metric)}", whole_x=True)
    return [Figure(chart, caption, "What a budget buys")]


def slice_figures(data: TrialData) -> list[Figure]:
    """The metric over each searched number, one point a configuration."""
    search, figures = data.search, []
    if search is None or search.empty:
        return []
    for name in settings(search):
        numbers = pd.to_numeric(search[name], errors="coerce")
        if numbers.notna().sum() > 1 and numbers.nunique() > 1:
            dots = []
            for arm in data.arms:
                part = search[(search["arm"] == arm) & search["value"].notna() & numbers.notna()].head(POINTS)
                x = numbers[part.index].to_numpy(dtype=np.float64)
                titles = [
                    f"{data.names(arm)}, {name} {short(a)}: {short(b)}" for a, b in zip(x, part["value"], strict=True)
                ]
                dots.append(Dots(data.names(arm), data.colour(arm), list(x), list(part["value"]), titles))
            chart = Lines([], dots, x_label=name, y_label=data.names(data.metric), log_x=_log(data, name, numbers))
            figures.append(Figure(chart, "One point a configuration of the search.", f"Slice: {name}"))
    return figures


def importance_figures(data: TrialData) -> list[Figure]:
    """Return figures of the importance of each searched setting, by arm, beside the level of noise."""
    if data.importance is None or data.importance.empty:
        return []
    # The settings that matter most over all arms come first, in the same order for each arm.
    ranks = data.importance.groupby("setting")["share"].sum()
    ordered = data.importance.assign(rank=-data.importance["setting"].map(ranks)).sort_values("rank", kind="stable")
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
            else f"{n} configurations are too few to say."
        )
        figures.append(Figure(chart, caption, f"Importance: {data.names(arm)}"))
    return figures


def _log(data: TrialData, name: str, numbers: "pd.Series[float]") -> bool:
    """Return whether a setting's scale is logarithmic, by its space or, without one, where values span decades."""
    spaces = [data.document.space(arm).get(name, {}) for arm in data.document.arms]
    declared = any(space.get("log") for space in spaces if isinstance(space, dict))
    return bool(numbers.min() > 0 and (declared or numbers.max() / numbers.min() > 50))
