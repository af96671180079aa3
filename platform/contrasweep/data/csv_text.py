"""Reads a CSV with a header strictly: each row has a cell for each column, and each quote is closed."""

import csv
import io
import logging
from collections.abc import Collection
from pathlib import Path

from contrasweep.errors import DataError, plural

log = logging.getLogger(__name__)


def warn_of_unused(names: Collection[str], used: Collection[str], path: Path) -> None:
    """Warn, in one line, of the columns `names` of the list at `path` that are not in `used`, for one may be misspelt.

    `used` are the columns that the importer reads. Columns with an empty name are ignored.
    """
    # A column without a name has the name "".
    if unused := sorted(set(names) - set(used) - {""}):
        log.warning(
            "%s: not used: the columns %s; used are %s", path, ", ".join(unused), ", ".join(used)
        )


def read_csv(text: str, path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Return the names of the columns, and for each row (number of its last line, column name -> cell).

    Blanks around the names of columns are removed. Rows in which every cell is empty are left out. `path` names the
    file in errors. `DataError`, with the line, where a row has fewer or more cells than the header, a quote is not
    closed, or two columns have the same name.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    start = 1  # the line on which the next row begins
    rows = []
    try:
        names = [name.strip() for name in next(reader, [])]
        start = reader.line_num + 1
        twice = [name for name in names if name and names.count(name) > 1]
        if twice:
            raise DataError(
                f"{path} has the column {twice[0]!r} twice; give each a name of its own"
            )
        for cells in reader:
            start = reader.line_num + 1
            if not any(cells):
                continue
            # Empty cells beyond the header are allowed, because spreadsheets write them.
            if len(cells) < len(names) or any(cells[len(names) :]):
                raise DataError(
                    f"{path}, line {reader.line_num} has {plural(len(cells), 'cell')}, its header {len(names)} "
                    f"({', '.join(names)}): write an empty cell where there is no value, and quotes around one that "
                    "holds a comma"
                )
            rows.append((reader.line_num, dict(zip(names, cells, strict=False))))
    except csv.Error as error:
        raise DataError(
            f"{path}: the row that begins on line {start} is no CSV ({error}); a quote that opens a cell must close it"
        ) from None
    return names, rows
