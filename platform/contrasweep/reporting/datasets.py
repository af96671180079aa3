"""Several datasets in a report: mean ranks with what does not differ, interquartile means."""

import math

from contrasweep.reporting.data import ReportData, Variables
from contrasweep.reporting.figures import Figure, Ranks
from contrasweep.results.datasets import dataset_summary
from contrasweep.results.table import number


def datasets_section(data: ReportData) -> Variables:
    """The means of each dataset, mean ranks and interquartile means; empty for fewer than three datasets."""
    summary = dataset_summary(data.frame, data.metric, data.axes, data.mode)
    if summary is None:
        return {}
    alpha = data.document.alpha
    decimals = data.table.decimals

    def shown(value: float) -> str:
        return "–" if math.isnan(value) else number(float(value), decimals)

    named = data.names
    head = ["arm", *map(named, summary.datasets), "mean rank", "interquartile mean"]
    middle = summary.interquartile_means(alpha)
    rows = [
        [
            named(arm),
            *(shown(value) for value in summary.means[i]),
            f"{summary.ranks[i]:.2f}",
            "{} [{}, {}]".format(*map(shown, middle[arm])) if len(summary.runs[arm]) > 1 else shown(middle[arm][0]),
        ]
        for i, arm in enumerate(summary.arms)
    ]
    few = summary.smallest_p > alpha
    note = (
        f"; {len(summary.datasets)} datasets reach no p below {summary.smallest_p:.2g}, so no two arms can differ" * few
    )
    failed = ", ".join(f"{named(arm)} {count}" for arm, count in summary.failed.items() if count)
    losses = f"Failed runs count as losses ({failed}). " if failed else ""
    caption = (
        f"Mean ranks over {len(summary.datasets)} datasets, 1 is best. A bar joins arms of which no two differ "
        f"(Wilcoxon's signed-rank test over datasets, Holm, alpha {alpha:g}{note}). "
        f"{losses}Exploratory."
    )
    ranks = Ranks(
        "mean ranks of arms over datasets",
        {named(arm): float(rank) for arm, rank in zip(summary.arms, summary.ranks, strict=True)},
        {named(arm): data.colour(arm) for arm in summary.arms},
        [list(map(named, clique)) for clique in summary.cliques(alpha)],
    )
    figures = [Figure(ranks, caption, "Critical differences")]
    pairs = [[named(a), named(b), f"{p:.2g}"] for (a, b), p in summary.p_values.items()]
    return {"rows": [head, *rows], "figures": figures, "pairs": [["a", "b", "p by Holm"], *pairs]}
