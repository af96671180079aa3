"""Pages by templates, and CSV that is safe to open in a spreadsheet."""

from typing import Any

import pandas as pd
from markupsafe import Markup

from contrasweep.reporting.svg import draw
from contrasweep.results.rendering import templates

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Excel, LibreOffice and Google Sheets compute a cell of text that begins with any of these."""


def csv_text(frame: pd.DataFrame) -> str:
    """Return `frame` as CSV.

    Text that would be a formula has an apostrophe in front, also in a column's name. Numbers, and text that is a
    number, stay as they are.
    """
    inert = frame.map(inert_cell, na_action="ignore").rename(columns=inert_cell)
    return str(inert.to_csv(index=False))


def inert_cell(value: Any) -> Any:
    """Return `value`, with an apostrophe in front where it is text that a spreadsheet would compute."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    # A number with a sign, such as -1.5, computes nothing.
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def render_template(name: str, /, **context: Any) -> Markup:
    """Return the template `name`, filled with these values.

    The report's own template is taken; where the report has none of this name, the results' template.
    """
    environment = templates("contrasweep.reporting", "contrasweep.results")
    environment.filters["drawn"] = draw
    return Markup(environment.get_template(name).render(context))  # its parts are escaped
