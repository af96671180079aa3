"""CSV that a spreadsheet opens as what it is: no cell of it is a formula."""

from typing import Any

import pandas as pd

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A cell of text that begins so is computed by Excel, LibreOffice and Google Sheets when the file is opened."""


def csv_text(frame: pd.DataFrame) -> str:
    """`frame` as CSV. Text that would be a formula has an apostrophe in front, also in a column's name; numbers, and
    text that is a number, stay as they are."""
    inert = frame.map(inert_cell, na_action="ignore").rename(columns=inert_cell)
    return str(inert.to_csv(index=False))


def inert_cell(value: Any) -> Any:
    """`value`, with an apostrophe in front where it is text that a spreadsheet would compute."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
