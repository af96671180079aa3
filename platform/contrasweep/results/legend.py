"""What a table says beside its numbers: the meaning of its marks and brackets, and what is missing."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from contrasweep.results.cells import ARROWS, Cell

NO_INTERVAL = "none"
"""The method of a cell with one replicate."""
MAX_NAMED = 8
"""So many cells with other replicates than most of them are named."""
NOT_WORSE = "* not worse than the best"
"""What the mark of a cell says; every format has its own mark for the asterisk."""


def marked_as(line: str, mark: str) -> str:
    """A line of a legend where `mark` stands in place of the star."""
    return line.replace(NOT_WORSE, NOT_WORSE.replace("*", mark))


def legend(
    cells: Collection[Cell],
    *,
    alpha: float,
    spread: bool,
    replicates: str,
    compared: Sequence[str],
    pooled: Sequence[str],
    reference: str | None,
    verdicts: bool,
) -> list[str]:
    """A sentence for each kind of mark, bracket and gap that the cells have; `replicates` says what the intervals are
    over, `verdicts` whether marks stand for verdicts at all."""
    methods = list(dict.fromkeys(cell.method for cell in cells if cell.method))
    lines = []
    if methods == [NO_INTERVAL]:
        lines.append("one replicate a cell, so there are no intervals")
    elif methods := [method for method in methods if method != NO_INTERVAL]:
        level = f"{100 * (1 - alpha):g} %"
        lines.append(f"mean [{level} interval: {', '.join(methods)}]{' (min–max)' * spread} over {replicates}")
    if spread and methods:
        lines.append("min and max are those of single trials")
    if any(cell.best for cell in cells):
        lines.append(f"{NOT_WORSE} {' and '.join(compared)}")
    elif verdicts:
        lines.append(f"nothing is marked: no {' and '.join(compared)} is shown to be worse than another")
    used = {cell.mark for cell in cells} - {""}
    if used:
        arrows = ", ".join(f"{ARROWS[mark].strip()} {mark}" for mark in ("better", "worse") if mark in used)
        lines.append(f"{arrows} than {reference or 'the best'}")
    if pooled:
        lines.append(f"replicates are means over {', '.join(pooled)}")
    return [*lines, *_gaps(cells)]


def replicates_of(names: Mapping[str, Sequence[str]]) -> str:
    """What means are over, from what the cells of each kind are called: the kind of most cells first, the others with
    the cells that they are of."""
    kinds = sorted(names, key=lambda kind: -len(names[kind]))
    if sum(len(names[kind]) for kind in kinds[1:]) > MAX_NAMED:
        return f"{kinds[0]}; other cells have another number, which their list of trials shows"
    return ", but ".join([*kinds[:1], *(f"{kind} ({', '.join(names[kind])})" for kind in kinds[1:])])


def _gaps(cells: Collection[Cell]) -> list[str]:
    missing: Counter[str] = Counter()
    for cell in cells:
        if cell.n < cell.planned:
            missing.update({status: n for status, n in cell.statuses.items() if status != "done"})
    if not missing:
        return []
    left = ", ".join(f"{n} {status}" for status, n in missing.items() if n)
    return [f"3/5: finished/planned; not in the table: {left}"]
