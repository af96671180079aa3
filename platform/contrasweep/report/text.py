"""The table for a terminal and as Markdown."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contrasweep.report.table import Cell, Key, Pair, Table

SENTENCES = 12
"""More verdicts than this are counted, not printed; all of them are in the HTML report and `comparisons()`."""
ARROWS = {"": "", "better": " ↑", "worse": " ↓"}


def number(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" if math.isfinite(value) else ("∞" if value > 0 else "-∞")


def cell_text(cell: "Cell | None", decimals: int, spread: bool = False) -> str:
    """`0.912 [0.897, 0.930]`, with `spread` `0.912 [0.897, 0.930] (0.881–0.944)`; what is missing is counted, and
    nothing else stands for a number."""
    if cell is None:
        return "not planned"
    if cell.mean is None or cell.low is None or cell.high is None:
        return missing(cell)
    span = f" [{number(cell.low, decimals)}, {number(cell.high, decimals)}]" if cell.low != cell.high else ""
    if math.isinf(cell.low):
        span = " [one replicate]"
    if spread and cell.least is not None and cell.most is not None and cell.n > 1:
        span += f" ({number(cell.least, decimals)}–{number(cell.most, decimals)})"
    share = f" {cell.n}/{cell.planned}" if cell.n < cell.planned else ""
    return number(cell.mean, decimals) + span + share


def missing(cell: "Cell") -> str:
    """Counts of what is not done: `2 failed, 3 pending`; one status alone goes without its count."""
    left = {status: count for status, count in cell.statuses.items() if status != "done"}
    return next(iter(left)) if len(left) == 1 else ", ".join(f"{n} {status}" for status, n in left.items())


def marked_text(cell: "Cell | None", decimals: int, spread: bool = False) -> str:
    shown = cell_text(cell, decimals, spread)
    return shown if cell is None else shown + (" *" if cell.best else "") + ARROWS[cell.mark]


def legend(table: "Table") -> list[str]:
    methods = list(dict.fromkeys(c.method for c in table.cells.values() if c.method))
    level = f"{100 * (1 - table.alpha):g} %"
    lines = []
    if methods:
        lines.append(
            f"mean [{level} interval: {', '.join(methods)}]"
            + " (min–max)" * table.spread
            + (" over folds, seeds of a fold averaged" if table.train_fraction is not None else f" over {table.unit}")
        )
    if any(c.best for c in table.cells.values()):
        among = " and ".join(f"{name}s" for name in table.compared)
        lines.append(f"* best of the {among} compared")
    if table.pairs:
        lines.append(_marks(table))
    if table.pooled:
        lines.append(f"replicates are means over {', '.join(table.pooled)}")
    partial = [c for c in table.cells.values() if c.n < c.planned]
    if partial:
        counts: dict[str, int] = {}
        for cell in partial:
            for status, n in cell.statuses.items():
                counts[status] = counts.get(status, 0) + (n if status != "done" else 0)
        left = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
        lines.append(
            f"3/5: finished/planned replicates; not in the table: {left}; a cell with gaps is best only where all "
            f"have gaps"
        )
    return lines


def _marks(table: "Table") -> str:
    tests = " or ".join(
        dict.fromkeys(p.comparison.test for p in table.pairs if p.comparison.difference) or ["sign-flip test"]
    )
    count = len(table.pairs)
    family = f", Holm over {count} comparisons" if count > 1 else ""
    how = f"paired {tests}, alpha {table.alpha:g}{family}"
    used = {cell.mark for cell in table.cells.values()} - {""}
    if not used:
        return f"no arrows: nothing differs significantly from {table.reference or 'the best'} ({how})"
    arrows = ", ".join(f"{ARROWS[mark].strip()} {mark}" for mark in ("better", "worse") if mark in used)
    return f"{arrows} than {table.reference or 'the best'} ({how})"


def heading(table: "Table") -> str:
    better = "larger is better" if table.mode == "max" else "smaller is better"
    title = f"{table.title}: " if table.title else ""
    return f"{title}{table.metric} ({better})"


def column_title(column: "Key") -> str:
    return " ".join(column)


def repeated(row: "Key", above: "Key") -> list[bool]:
    """Which labels of a row only say what the row above says; never the last one."""
    alike = [bool(above) and row[: i + 1] == above[: i + 1] for i in range(len(row))]
    return [*alike[:-1], False] if row else []


def grid(table: "Table", columns: Sequence["Key"]) -> list[list[str]]:
    """Header and body as text; without row factors the one row has no label."""
    head = [*table.row_factors, *([column_title(c) for c in columns] if table.column_factors else [table.metric])]
    body = [
        [*row, *(marked_text(table.cells.get((row, c)), table.decimals, table.spread) for c in columns)]
        for row in table.rows
    ]
    return [head, *body]


def to_text(table: "Table", width: int) -> str:
    blocks, columns = [], list(table.columns)
    while columns:
        taken = len(columns)
        while taken > 1 and len(aligned(grid(table, columns[:taken]))[0]) > width:
            taken -= 1
        blocks.append("\n".join(line.rstrip() for line in aligned(grid(table, columns[:taken]))))
        columns = columns[taken:]
    parts = [
        wrapped(heading(table), width),
        "\n\n".join(blocks),
        "\n".join(wrapped(line, width) for line in legend(table)),
    ]
    if said := verdicts(table.pairs):
        parts.append("\n".join(wrapped(line, width) for line in said))
    return "\n\n".join(part for part in parts if part)


def verdicts(pairs: Sequence["Pair"], most: int = SENTENCES) -> list[str]:
    """The verdicts in words, decided ones first where there are too many, then what a reader must know."""
    shown = list(pairs)
    if len(shown) > most:
        shown = sorted(shown, key=lambda p: p.comparison.p_value)[:most]
        shown.sort(key=lambda p: p.comparison.verdict == "undecided")
    lines = [pair.sentence for pair in shown]
    if len(pairs) > len(shown):
        decided = sum(p.comparison.verdict != "undecided" for p in pairs)
        lines.append(
            f"{len(pairs) - len(shown)} more comparisons ({decided} of {len(pairs)} decided): see the HTML report."
        )
    notes = dict.fromkeys(note for pair in pairs for note in pair.comparison.notes)
    return [*lines, *(f"Note: {note}." for note in notes)]


def aligned(rows: list[list[str]]) -> list[str]:
    """Columns of equal width, a rule below the first row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(f"{entry:<{w}}" for entry, w in zip(row, widths, strict=True)) for row in rows]
    return [lines[0], "─" * len(lines[0]), *lines[1:]]


def wrapped(line: str, width: int) -> str:
    """`line` over several lines; numbers stay with what they belong to."""
    kept = line.replace(" = ", "\u00a0=\u00a0").replace(" [", "\u00a0[")
    filled = textwrap.fill(kept, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return filled.replace("\u00a0", " ")


def to_markdown(table: "Table") -> str:
    rows = grid(table, table.columns)
    for row, cells in zip(table.rows, rows[1:], strict=True):
        for i, column in enumerate(table.columns, start=len(table.row_factors)):
            cell = table.cells.get((row, column))
            if cell is not None and cell.best:
                cells[i] = f"**{cell_text(cell, table.decimals, table.spread)}**{ARROWS[cell.mark]}"
    escaped = [[entry.replace("|", "\\|") for entry in row] for row in rows]
    lines = [f"**{heading(table)}**", "", bar(escaped[0]), bar(["---"] * len(rows[0])), *map(bar, escaped[1:]), ""]
    lines += [f"- {line.replace('* best', '**bold** best')}" for line in legend(table)]
    if said := verdicts(table.pairs):
        lines += ["", *(f"- {line}" for line in said)]
    return "\n".join(lines) + "\n"


def bar(row: list[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(row) + " |"
