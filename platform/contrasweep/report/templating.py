"""The report's HTML is written by Jinja2 templates, which escape everything but the drawings."""

import functools
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from contrasweep.results.cells import ARROWS, number
from contrasweep.results.table import Table


def render_template(name: str, /, **context: Any) -> Markup:
    """The template `name` of `templates/`, given these values."""
    return Markup(_environment().get_template(name).render(context))  # its parts are escaped


def table_html(table: Table) -> str:
    """A fragment with its own style: the table, its legend and its verdicts; each cell opens on its replicates."""
    return render_template("table.html", table=table)


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
    environment.filters["starred"] = lambda line: line.replace("* best", "★ best")
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def _asset(name: str) -> Markup:
    """A style or script of `templates/` as it is: Jinja2 would take some of its braces for its own."""
    return Markup((resources.files("contrasweep.report") / "templates" / name).read_text(encoding="utf-8"))
