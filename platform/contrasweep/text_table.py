"""Rows of text as a table for a terminal: what plans, reports and listings print."""

import io
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 100  # characters of a line that is laid out for no particular terminal
UNLIMITED = 10_000  # characters of a line that is not broken at all
NARROWEST = 4  # characters of a column, below which it is not broken any further


def text_table(
    rows: Sequence[Sequence[str]], *, rule: bool = False, width: int | None = None
) -> list[str]:
    """Return `rows` as lines with aligned columns; with `rule` the first row is a head with a line below it.

    In a terminal of `width` characters a line, long entries are broken over several lines, between words. Where the
    words of all columns have no room side by side, each row becomes a block of lines `head entry`, one per column.
    """
    characters = UNLIMITED if width is None else max(width, (NARROWEST + 2) * len(rows[0]))
    # A column is at most as wide as its longest entry, and at least as wide as its longest word.
    most = []
    widths = []
    for column in zip(*rows, strict=False):
        words = " ".join(column).split()
        most.append(max(map(cell_len, column)))
        widths.append(max(map(cell_len, words), default=0))
    spare = characters - sum(widths) - 2 * (len(widths) - 1)

    # No room side by side: a block of two columns, head and entry, for each row, with an empty line between blocks.
    if rule and spare < 0 and len(widths) > 2:
        lines = []
        for row in rows[1:]:
            block = [[head, entry] for head, entry in zip(rows[0], row, strict=True) if entry]
            lines += ["", *text_table(block, width=width)]
        return lines[1:]
    # Each character that is left goes to the column that has the smallest share of the width that it needs.
    while spare > 0 and widths != most:
        needs = [full / max(1, size) for full, size in zip(most, widths, strict=True)]
        widths[needs.index(max(needs))] += 1
        spare -= 1

    # Widths are settled above; Rich draws.
    table = Table(
        box=SIMPLE_HEAD if rule else None,
        padding=(0, 1, 0, 0) if rule else (0, 2, 0, 0),
        pad_edge=False,
        show_edge=False,
        show_header=rule,
        header_style="",
    )
    for name, size in zip(rows[0], widths, strict=True):
        table.add_column(Text(name), overflow="fold", width=None if spare < 0 else size)
    for row in rows[1:] if rule else rows:
        table.add_row(*map(Text, row))
    sink = io.StringIO()
    Console(
        file=sink, width=characters, color_system=None, force_terminal=False, force_jupyter=False
    ).print(table)
    return [line.rstrip() for line in sink.getvalue().splitlines()]
