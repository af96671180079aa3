"""Rows of text as a table for a terminal: what plans, reports and listings print."""

import io
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNLIMITED = 10_000
NARROWEST = 4  # letters of a column, below which it is not broken any further


def text_table(rows: Sequence[Sequence[str]], *, rule: bool = False, width: int | None = None) -> list[str]:
    """Lines with aligned columns; the first row is the head, with `rule` a line is drawn below it.

    In a terminal of `width` columns long entries are broken over several lines; nothing is cut off.
    """
    head, *body = rows
    table = Table(
        box=SIMPLE_HEAD if rule else None,
        padding=(0, 1, 0, 0) if rule else (0, 2, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="",
    )
    for name in head:
        table.add_column(Text(name), overflow="fold")
    for row in body:
        table.add_row(*map(Text, row))
    columns = UNLIMITED if width is None else max(width, (NARROWEST + 2) * len(head))
    sink = io.StringIO()
    Console(file=sink, width=columns, color_system=None, force_terminal=False).print(table)
    return [line.rstrip() for line in sink.getvalue().splitlines()]
