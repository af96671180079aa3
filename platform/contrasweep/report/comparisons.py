"""Comparisons as rows of text, one a pair of arms: what every format shows of them."""

from collections.abc import Sequence

from contrasweep.results.cells import Pair
from contrasweep.results.versus import Versus


def comparison_rows(versus: Versus, *, overall: bool = True) -> list[list[str]]:
    """A head and a row for each comparison of two arms: where, and what came of it. The one over everything first, if
    `overall`."""
    pairs = versus.pairs if overall else versus.cells
    rows = [[*versus.factors, "difference", *_head(pairs)]]
    for pair in pairs:
        where = dict(pair.context)
        rows.append([*(where.get(factor, "all") for factor in versus.factors), *_numbers(pair, pairs)])
    return rows


def pair_rows(pairs: Sequence[Pair]) -> list[list[str]]:
    """A head and a row for each comparison of a table: where, which two, and what came of it."""
    head = [*(factor for factor, _ in pairs[0].context), "a", "b", "difference a - b", *_head(pairs)]
    return [head, *([*(value for _, value in p.context), p.a, p.b, *_numbers(p, pairs)] for p in pairs)]


def _correction(pairs: Sequence[Pair]) -> str:
    """The correction of those that are judged; empty where none is, or where each is alone."""
    return next((p.comparison.family.correction for p in pairs if p.comparison.judgement is not None), "")


def _head(pairs: Sequence[Pair]) -> list[str]:
    correction = _correction(pairs)
    return ["interval", "p", *([f"p by {correction}"] if correction else []), "n", "verdict"]


def _numbers(pair: Pair, pairs: Sequence[Pair]) -> list[str]:
    comparison = pair.comparison
    adjusted = "–" if comparison.judgement is None else f"{comparison.p_value:.2g}"
    return [
        f"{comparison.difference:+.3g}",
        f"[{comparison.low:+.3g}, {comparison.high:+.3g}]" if comparison.n > 1 else "one replicate",
        f"{comparison.raw_p:.2g}",
        *([adjusted] if _correction(pairs) else []),
        str(comparison.n),
        comparison.verdict,
    ]
