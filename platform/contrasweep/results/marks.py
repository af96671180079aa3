"""What is marked in a table: every arm that is not shown to be worse than the best, and what differs from it."""

from collections.abc import Sequence
from dataclasses import replace

from contrasweep.results.cells import Cell, Key, Pair
from contrasweep.results.layout import Layout

Cells = dict[tuple[Key, Key], Cell]


def marked(cells: Cells, layout: Layout, pairs: Sequence[Pair], mode: str, reference: str | None) -> Cells:
    """`cells` with marks by the verdicts of `pairs`: `best` where an arm is not worse than the best (where there is a
    reference, than any arm that it was compared with), as soon as another one is; `mark` says what is worse than the
    best, or worse or better than the reference. Nothing is marked where the comparisons are exploratory."""
    verdicts: dict[tuple[Key, str, str], str] = {}
    for pair in pairs:
        context = tuple(value for _, value in pair.context)
        verdicts[context, pair.a, pair.b] = pair.comparison.verdict
        verdicts[context, pair.b, pair.a] = pair.comparison.reversed().verdict
    result = dict(cells)
    for context, members in _contexts(cells, layout).items():
        beaten = {s for s in members if any(verdicts.get((context, s, other)) == "worse" for other in members)}
        best = (max if mode == "max" else min)(
            [side for side in members if side not in beaten] or members,
            key=lambda side: float(cells[members[side]].mean or 0.0),
        )
        against = [best] if reference is None else list(members)
        worse = {s for s in members if any(verdicts.get((context, s, o)) == "worse" for o in against)}
        for side, place in members.items():
            said = verdicts.get((context, side, best if reference is None else reference), "")
            mark = said if said == "worse" or (said == "better" and reference is not None) else ""
            result[place] = replace(cells[place], best=bool(worse) and side not in worse, mark=mark)
    return result


def _contexts(cells: Cells, layout: Layout) -> dict[Key, dict[str, tuple[Key, Key]]]:
    """The places of the cells that are compared with each other, by what is compared."""
    contexts: dict[Key, dict[str, tuple[Key, Key]]] = {}
    for place, cell in cells.items():
        value = dict(zip(layout.shown, (*place[0], *place[1]), strict=True))
        if cell.mean is not None:
            context = tuple(value[f] for f in layout.context)
            contexts.setdefault(context, {})[" ".join(value[f] for f in layout.compared)] = place
    return contexts
