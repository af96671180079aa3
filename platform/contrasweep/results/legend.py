"""What a table says beside its numbers: the meaning of its marks and brackets, what is missing, the verdicts."""

from collections import Counter
from collections.abc import Collection, Sequence

from contrasweep.results.cells import ARROWS, Cell, Pair

MAX_SENTENCES = 12
"""More verdicts than this are counted, not printed; all of them are in the HTML report and `comparisons()`."""


def legend(
    cells: Collection[Cell],
    pairs: Sequence[Pair],
    *,
    alpha: float,
    spread: bool,
    replicates: str,
    compared: Sequence[str],
    pooled: Sequence[str],
    reference: str | None,
) -> list[str]:
    """A sentence for each kind of mark, bracket and gap that the cells have; `replicates` says what the intervals are
    over."""
    methods = list(dict.fromkeys(cell.method for cell in cells if cell.method))
    lines = []
    if methods:
        level = f"{100 * (1 - alpha):g} %"
        lines.append(f"mean [{level} interval: {', '.join(methods)}]{' (min–max)' * spread} over {replicates}")
    if any(cell.best for cell in cells):
        among = " and ".join(f"{name}s" for name in compared)
        lines.append(f"* best of the {among} compared")
    if pairs:
        lines.append(_marks(cells, pairs, alpha, reference or "the best"))
    if pooled:
        lines.append(f"replicates are means over {', '.join(pooled)}")
    missing: Counter[str] = Counter()
    for cell in cells:
        if cell.n < cell.planned:
            missing.update({status: n for status, n in cell.statuses.items() if status != "done"})
    if any(cell.n < cell.planned for cell in cells):
        left = ", ".join(f"{n} {status}" for status, n in missing.items() if n)
        lines.append(
            f"3/5: finished/planned replicates; not in the table: {left}; a cell with gaps is best only where all "
            f"have gaps"
        )
    return lines


def _marks(cells: Collection[Cell], pairs: Sequence[Pair], alpha: float, against: str) -> str:
    tests = " or ".join(
        dict.fromkeys(p.comparison.test for p in pairs if p.comparison.difference) or ["sign-flip test"]
    )
    family = f", Holm over {len(pairs)} comparisons" if len(pairs) > 1 else ""
    how = f"paired {tests}, alpha {alpha:g}{family}"
    used = {cell.mark for cell in cells} - {""}
    if not used:
        return f"no arrows: nothing differs significantly from {against} ({how})"
    arrows = ", ".join(f"{ARROWS[mark].strip()} {mark}" for mark in ("better", "worse") if mark in used)
    return f"{arrows} than {against} ({how})"


def verdicts(pairs: Sequence[Pair], limit: int = MAX_SENTENCES) -> list[str]:
    """The verdicts in words, decided ones first where there are too many, then what a reader must know."""
    shown = list(pairs)
    if len(shown) > limit:
        shown = sorted(shown, key=lambda pair: pair.comparison.p_value)[:limit]
        shown.sort(key=lambda pair: not pair.decided)
    lines = [pair.sentence for pair in shown]
    if len(pairs) > len(shown):
        decided = sum(pair.decided for pair in pairs)
        lines.append(
            f"{len(pairs) - len(shown)} more comparisons ({decided} of {len(pairs)} decided): see the HTML report."
        )
    notes = dict.fromkeys(note for pair in pairs for note in pair.comparison.notes)
    return [*lines, *(f"Note: {note}." for note in notes)]
