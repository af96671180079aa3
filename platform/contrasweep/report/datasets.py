"""Several datasets in a report: mean ranks with what does not differ, interquartile means, performance profiles."""

import math
from html import escape

from markupsafe import Markup

from contrasweep.report.data import ReportData, Variables
from contrasweep.report.slices import Figure
from contrasweep.report.svg import COLOURS, WIDTH, Series, svg, xy_chart
from contrasweep.results.cells import number
from contrasweep.results.datasets import DatasetSummary, dataset_summary
from contrasweep.results.rendering import DisplayNames

ROW, BAR, EDGE = 20, 10, 24


def datasets_section(data: ReportData) -> Variables:
    """The means of each dataset, mean ranks, interquartile means and profiles; empty for fewer than three datasets."""
    summary = dataset_summary(data.frame, data.metric, data.axes, data.mode)
    if summary is None:
        return {}
    alpha = data.document.alpha
    decimals = data.table.decimals

    def shown(value: float) -> str:
        return number(float(value), decimals)

    named = data.names
    head = ["arm", *map(named, summary.datasets), "mean rank", "interquartile mean"]
    middle = summary.interquartile_means(alpha)
    rows = [
        [
            named(arm),
            *(shown(value) for value in summary.means[i]),
            f"{summary.ranks[i]:.2f}",
            "{} [{}, {}]".format(*map(shown, middle[arm])),
        ]
        for i, arm in enumerate(summary.arms)
    ]
    at, profiles = summary.profiles()
    lines = [Series(named(arm), data.colour(arm), list(at), list(share), steps=True) for arm, share in profiles.items()]
    profile = xy_chart(lines, x_label=f"{named(data.metric)} (t)", y_label="share of runs better than t")
    few = summary.smallest_p > alpha
    note = f"; {len(summary.datasets)} datasets reach no p below {summary.smallest_p:.2g}, so none can differ" * few
    caption = (
        f"Mean ranks over {len(summary.datasets)} datasets, 1 is best. A bar joins arms of which no two differ "
        f"(Wilcoxon's signed-rank test over datasets, Holm, alpha {alpha:g}{note}). Exploratory."
    )
    figures = [
        Figure(rank_figure(summary, data, alpha), caption, "Critical differences"),
        Figure(profile, "Each run of each dataset counts once (Agarwal et al. 2021).", "Performance profiles"),
    ]
    return {"rows": [head, *rows], "figures": figures, "pairs": _pairs(summary, named)}


def _pairs(summary: DatasetSummary, named: DisplayNames) -> list[list[str]]:
    rows = [[named(a), named(b), f"{p:.2g}"] for (a, b), p in summary.p_values.items()]
    return [["a", "b", "p by Holm"], *rows]


def rank_figure(summary: DatasetSummary, data: ReportData, alpha: float) -> Markup:
    """Mean ranks on a line from 1 to the number of arms, arms below it, and bars over those that do not differ."""
    count = len(summary.arms)
    cliques = summary.cliques(alpha)

    def x(rank: float) -> float:
        return EDGE + (rank - 1) / (count - 1) * (WIDTH - 2 * EDGE)

    axis = 20
    below = axis + BAR * len(cliques)
    parts = [f'<line class="axis" x1="{x(1):.1f}" x2="{x(count):.1f}" y1="{axis}" y2="{axis}"/>']
    for rank in range(1, count + 1):
        parts.append(f'<line class="axis" x1="{x(rank):.1f}" x2="{x(rank):.1f}" y1="{axis - 4}" y2="{axis}"/>')
        parts.append(f'<text class="tick" x="{x(rank):.1f}" y="10" text-anchor="middle">{rank}</text>')
    ranks = dict(zip(summary.arms, map(float, summary.ranks), strict=True))
    for i, clique in enumerate(cliques):
        left, right = (x(pick(ranks[arm] for arm in clique)) for pick in (min, max))
        y = axis + BAR * (i + 1)
        parts.append(
            f'<rect class="strong" x="{left - 3:.1f}" width="{right - left + 6:.1f}" y="{y - 2}" height="4" rx="2">'
            f"<title>{escape(', '.join(map(data.names, clique)))}: no two differ</title></rect>"
        )
    for i, arm in enumerate(sorted(ranks, key=lambda name: ranks[name])):
        y, at = below + ROW * (i + 1), x(ranks[arm])
        left_side = at > WIDTH / 2
        place, anchor = (at - 6, "end") if left_side else (at + 6, "start")
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{axis}" y2="{y}"/>'
            f'<circle class="c{data.colour(arm) % COLOURS} fill" cx="{at:.1f}" cy="{y}" r="4"/>'
            f'<text class="label" x="{place:.1f}" y="{y + 4}" text-anchor="{anchor}">{escape(data.names(arm))} '
            f"{ranks[arm]:.2f}</text>"
        )
    return svg(parts, WIDTH, math.ceil(below + ROW * count + 12), "mean ranks of arms over datasets")
