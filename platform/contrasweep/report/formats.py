"""A table or a comparison in a format: which function writes it."""

from collections.abc import Callable, Mapping
from typing import Any

from contrasweep.report.latex import table_latex, versus_latex
from contrasweep.report.markdown import table_markdown, versus_markdown
from contrasweep.report.templating import table_html
from contrasweep.report.text import table_text, versus_text
from contrasweep.results.rendering import Format
from contrasweep.results.table import Table
from contrasweep.results.versus import Versus

WRITERS: Mapping[tuple[type, Format], Callable[[Any], str]] = {
    (Table, "markdown"): table_markdown,
    (Table, "latex"): table_latex,
    (Table, "html"): table_html,
    (Versus, "markdown"): versus_markdown,
    (Versus, "latex"): versus_latex,
}


def render_as(shown: Table | Versus, format: Format, *, width: int = 100) -> str:
    """The `results.rendering.Renderer` of this package; `width` is the number of columns of a terminal."""
    if format == "text":
        return table_text(shown, width) if isinstance(shown, Table) else versus_text(shown, width)
    return WRITERS[type(shown), format](shown)
