"""Comparisons as rows of text, one a pair of arms: what every format shows of them."""

from collections.abc import Sequence

from contrasweep.results.cells import Pair
from contrasweep.results.versus import Versus
from contrasweep.statistics.comparison import p_text


def comparison_rows(versus: Versus, *, overall: bool = True) -> list[list[str]]:
    """A head and a row for each comparison of two arms: where, and what came of it. The one over everything first, if
    `overall`."""
    pairs = versus.pairs if overall else versus.cells
    rows = [[*versus.factors, "difference", *_head(pairs)]]
    for pair in pairs:
        where = dict(pair.context)
        rows.append([*(where.get(factor, "all") for factor in versus.factors), *_numbers(pair)])
    return rows


def pair_rows(pairs: Sequence[Pair]) -> list[list[str]]:
    """A head and a row for each comparison of a table: where, which two, and what came of it."""
    head = [*(factor for factor, _ in pairs[0].context), "a", "b", "difference a - b", *_head(pairs)]
    return [head, *([*(value for _, value in p.context), p.a, p.b, *_numbers(p)] for p in pairs)]


def _head(pairs: Sequence[Pair]) -> list[str]:
    correction = next((p.comparison.family.correction for p in pairs if p.comparison.judgement is not None), "")
    return ["interval", f"p by {correction}" if correction else "p", "n", "verdict"]


def _numbers(pair: Pair) -> list[str]:
    """Of one analysis: the difference, its interval and its p, each to as many digits as show what the verdict says."""
    comparison = pair.comparison
    difference, _, interval = comparison.span().partition(" ")
    p = p_text(comparison.p_value, comparison.alpha).removeprefix("= ")
    before = comparison.before
    return [
        difference,
        interval or ("one replicate" if comparison.n == 1 else "–"),
        p if interval or comparison.p_value < 1 else "–",
        f"{comparison.n}" + f" ({comparison.evidence.pairs} pairs)" * bool(comparison.evidence.unpaired),
        comparison.verdict + ("" if before is None else f"; {before.verdict} at look {before.look}"),
    ]
