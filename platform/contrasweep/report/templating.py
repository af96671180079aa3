"""The report's HTML is written by Jinja2 templates, which escape everything but the drawings."""

import functools
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from contrasweep.report.advice import advice_variables
from contrasweep.report.comparisons import comparison_rows
from contrasweep.results.advice import Advice
from contrasweep.results.cells import ARROWS, number
from contrasweep.results.legend import marked_as
from contrasweep.results.table import Table
from contrasweep.results.versus import Versus


def render_template(name: str, /, **context: Any) -> Markup:
    """The template `name` of `templates/`, given these values."""
    return Markup(_environment().get_template(name).render(context))  # its parts are escaped


def table_html(table: Table) -> str:
    """A fragment with its own style: the table, its legend and its verdicts; each cell opens on its replicates."""
    return render_template("table.html", table=table)


def versus_html(versus: Versus) -> str:
    """A fragment: what is said of two arms, and every comparison of them as a row."""
    return render_template("versus.html", versus=versus, rows=comparison_rows(versus))


def advice_html(advice: Advice) -> str:
    """A fragment: what would decide each undecided comparison, as the report shows it."""
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
    environment.globals |= {"ARROWS": ARROWS, "number": number, "zip": zip, "asset": _asset}
    environment.filters["starred"] = lambda line: marked_as(line, "★")
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def _asset(name: str) -> Markup:
    """A style or script of `templates/` as it is: Jinja2 would take some of its braces for its own."""
    return Markup((resources.files("contrasweep.report") / "templates" / name).read_text(encoding="utf-8"))
