"""What a search came to: its best settings, what its budget bought, how each setting went, and every trial at once."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from contrasweep.report.bars import bar_chart
from contrasweep.report.charts import Dots, Series, short, xy_chart
from contrasweep.report.data import ReportData
from contrasweep.report.figures import POINTS, Figure
from contrasweep.report.parallel import axis, parallel_chart
from contrasweep.results.cells import label
from contrasweep.results.effects import INDEPENDENT, budget_curves
from contrasweep.results.searched import settings
from contrasweep.storage.record import Status

LINES = 2000


def best_settings(data: ReportData) -> list[list[str]]:
    """A head and one row an arm: the settings its search chose, their value in the search, the confirmed mean."""
    search = data.search
    if search is None or search.empty:
        return []
    names, sign, rows = settings(search), 1 if data.mode == "max" else -1, []
    confirmed = data.done.groupby("arm")["value"].mean()
    for arm in data.arms:
        whole = search[(search["arm"] == arm) & (search["status"] == Status.DONE) & search["value"].notna()]
        if len(whole):
            best = whole.iloc[int((sign * whole["value"]).argmax())]
            mean = short(float(confirmed[arm])) if arm in confirmed else "–"
            rows.append([arm, *(_value(best[n]) for n in names), str(len(whole)), short(float(best["value"])), mean])
    return [["arm", *names, "finished trials", f"{data.metric} in the search", "confirmed"], *rows]


def budget_figures(data: ReportData) -> list[Figure]:
    """What k trials of each arm's search buy."""
    search, declared = data.search, data.document.search
    if search is None or search.empty:
        return []
    searcher = declared.searcher if declared else ""
    curves = budget_curves(search, data.arms, searcher=searcher, mode=data.mode, alpha=data.document.alpha)
    series = [
        Series(
            str(arm),
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
    svg = xy_chart(series, x_label="trials of an arm", y_label=f"best {data.metric}", whole_x=True)
    return [Figure(svg, caption, "What a budget buys")]


def slice_figures(data: ReportData) -> list[Figure]:
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
                titles = [f"{arm}, {name} {short(a)}: {short(b)}" for a, b in zip(x, part["value"], strict=True)]
                dots.append(Dots(arm, data.colour(arm), list(x), list(part["value"]), titles))
            svg = xy_chart([], dots, x_label=name, y_label=data.metric, log_x=_log(data, name, numbers))
            figures.append(Figure(svg, "One point a configuration of the search.", f"Slice: {name}"))
    return figures


def importance_figures(data: ReportData) -> list[Figure]:
    """How much each searched setting matters, by arm, in one order of settings."""
    by_arm = {arm: data.importance[arm] for arm in data.arms if data.importance.get(arm)}
    ranks: dict[str, float] = {}
    for shares in by_arm.values():
        for name, share in shares.items():
            ranks[name] = ranks.get(name, 0.0) + share
    figures = []
    for arm, shares in by_arm.items():
        ranked = [name for name in sorted(ranks, key=lambda n: -ranks[n]) if name in shares]
        svg = bar_chart(
            ranked,
            [shares[n] for n in ranked],
            [f"{100 * shares[n]:.0f} %" for n in ranked],
            title=f"importance, {arm}",
            colours=[data.colour(arm)] * len(ranked),
        )
        figures.append(Figure(svg, "Share of what makes configurations good (PED-ANOVA).", f"Importance: {arm}"))
    return figures


def parallel_figure(data: ReportData) -> Figure | None:
    """Every configuration of a search, or every trial of a grid, as a line over its settings and its value."""
    if data.search is not None and len(data.search):
        frame, names, what = data.search, settings(data.search), "configurations of the search"
    else:
        frame, names, what = data.done, list(data.axes), "trials"
    frame = frame[frame["value"].notna()]
    names = [name for name in names if frame[name].astype(str).nunique() > 1]
    if not names or frame.empty:
        return None
    total = len(frame)
    frame = frame.sample(LINES, random_state=0) if total > LINES else frame
    axes = [axis("arm", list(frame["arm"]))] if len(data.arms) > 1 else []
    axes += [
        axis(name, list(frame[name]), log=_log(data, name, pd.to_numeric(frame[name], errors="coerce")))
        for name in names
    ]
    axes.append(axis(data.metric, list(frame["value"])))
    arms = [str(arm) for arm in frame["arm"]]
    tips = [
        _tip(arm, names, row, value)
        for arm, row, value in zip(arms, frame[names].to_numpy().tolist(), frame["value"], strict=True)
    ]
    svg = parallel_chart(axes, [data.colour(arm) for arm in arms], arms, title="parallel coordinates", tips=tips)
    note = f"{LINES} of {total} {what}, drawn at random" if total > LINES else f"{total} {what}"
    caption = f"One line each: {note}. Point at a line for its values; click an arm above to hide it."
    return Figure(svg, caption, "Parallel coordinates", wide=True)


def _value(value: object) -> str:
    return short(value) if isinstance(value, float) and not math.isnan(value) else label(value)


def _tip(arm: str, names: Sequence[str], row: Sequence[object], value: float) -> str:
    return f"{arm}, {', '.join(f'{name} {_value(v)}' for name, v in zip(names, row, strict=True))}: {short(value)}"


def _log(data: ReportData, name: str, numbers: "pd.Series[float]") -> bool:
    """Whether a setting's scale is logarithmic: as its space says, else where the values span decades."""
    spaces = [data.document.space(arm).get(name, {}) for arm in data.document.arms]
    declared = any(space.get("log") for space in spaces if isinstance(space, dict))
    return bool(numbers.min() > 0 and (declared or numbers.max() / numbers.min() > 50))
