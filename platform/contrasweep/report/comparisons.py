"""Comparisons as rows of text, one a pair of arms: what every format shows of them."""

from collections.abc import Sequence

from contrasweep.results.cells import Pair
from contrasweep.results.versus import Versus

NUMBERS = ("interval", "p", "p by Holm", "n", "verdict", "replicates missing")


def comparison_rows(versus: Versus) -> list[list[str]]:
    """A head and a row for each comparison of two arms: where, and what came of it."""
    rows = [[*versus.factors, "difference", *NUMBERS]]
    for pair in versus.pairs:
        where = dict(pair.context)
        rows.append([*(where.get(factor, "all") for factor in versus.factors), *_numbers(pair)])
    return rows


def pair_rows(pairs: Sequence[Pair]) -> list[list[str]]:
    """A head and a row for each comparison of a table: where, which two, and what came of it."""
    head = [*(factor for factor, _ in pairs[0].context), "a", "b", "difference a - b", *NUMBERS]
    return [head, *([*(value for _, value in pair.context), pair.a, pair.b, *_numbers(pair)] for pair in pairs)]


def _numbers(pair: Pair) -> list[str]:
    comparison = pair.comparison
    return [
        f"{comparison.difference:+.3g}",
        f"[{comparison.low:+.3g}, {comparison.high:+.3g}]",
        f"{pair.raw_p:.2g}",
        f"{comparison.p_value:.2g}",
        str(comparison.n),
        comparison.verdict,
        "no number" if comparison.more_needed is None else str(comparison.more_needed),
    ]
