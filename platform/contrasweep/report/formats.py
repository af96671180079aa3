"""A table or a comparison in a format: which function writes it."""

from collections.abc import Callable, Mapping
from typing import Any

from contrasweep.report.advice import advice_text
from contrasweep.report.displayed import displayed
from contrasweep.report.latex import table_latex, versus_latex
from contrasweep.report.markdown import table_markdown, versus_markdown
from contrasweep.report.templating import advice_html, table_html, versus_html
from contrasweep.report.text import table_text, versus_text
from contrasweep.results.advice import Advice
from contrasweep.results.rendering import Format
from contrasweep.results.table import Table
from contrasweep.results.versus import Versus

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
    shown = displayed(shown)
    return TEXT_WRITERS[type(shown)](shown, width) if format == "text" else WRITERS[type(shown), format](shown)
