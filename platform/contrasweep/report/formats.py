"""Tables, comparisons and advice in every format; HTML by templates, and CSV that is safe to open in a spreadsheet."""

import functools
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from contrasweep.report.advice import advice_text, advice_variables
from contrasweep.report.svg import draw
from contrasweep.report.tables import (
    comparison_rows,
    table_latex,
    table_markdown,
    table_text,
    versus_latex,
    versus_markdown,
    versus_text,
)
from contrasweep.results.advice import Advice
from contrasweep.results.answer import Versus
from contrasweep.results.rendering import Format
from contrasweep.results.table import ARROWS, Table, marked_as

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A cell of text that begins so is computed by Excel, LibreOffice and Google Sheets when the file is opened."""


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
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def render_template(name: str, /, **context: Any) -> Markup:
    """Return the template `name` of `templates/` with these values."""
    return Markup(_environment().get_template(name).render(context))  # its parts are escaped


def table_html(table: Table) -> str:
    """Return a fragment with its own style: the table, its legend and its verdicts; cells open on their replicates."""
    return render_template("table.html", table=table)


def versus_html(versus: Versus) -> str:
    """Return an HTML fragment with the verdicts on two arms, and a row for every comparison of them."""
    return render_template("versus.html", versus=versus, rows=comparison_rows(versus))


def advice_html(advice: Advice) -> str:
    """Return a fragment: what would decide each undecided comparison, as the report shows it."""
    return render_template("sections/advice.html", **advice_variables(advice))


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("contrasweep.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"ARROWS": ARROWS, "zip": zip, "asset": _asset}
    environment.filters["drawn"] = draw
    environment.filters["named"] = lambda word, names: names(word)
    environment.filters["starred"] = lambda line: marked_as(line, "★")
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def _asset(name: str) -> Markup:
    """A style or script of `templates/` as it is: Jinja2 would take some of its braces for its own."""
    return Markup((resources.files("contrasweep.report") / "templates" / name).read_text(encoding="utf-8"))


TEXT_WRITERS: Mapping[type, Callable[[Any, int], str]] = {Table: table_text, Versus: versus_text, Advice: advice_text}
WRITERS: Mapping[tuple[type, Format], Callable[[Any], str]] = {
    (Table, "markdown"): table_markdown,
    (Table, "latex"): table_latex,
    (Table, "html"): table_html,
    (Versus, "markdown"): versus_markdown,
    (Versus, "latex"): versus_latex,
    (Versus, "html"): versus_html,
    (Advice, "html"): advice_html,
}


def render_as(shown: Table | Versus | Advice, format: Format, *, width: int = 100) -> str:
    """Write a table, a comparison or advice in a format; `width` is the number of columns of a terminal."""
    return TEXT_WRITERS[type(shown)](shown, width) if format == "text" else WRITERS[type(shown), format](shown)
