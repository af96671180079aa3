"""How a table or a comparison is written as text: by a renderer that the package above hands in.

Results compute and never import the report that shows them. `contrasweep/__init__.py`, which stands above both, gives
the report's renderer to `use_renderer`; it is loaded when something is first shown.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

Format = Literal["text", "markdown", "latex", "html"]


class Renderer(Protocol):
    """Writes a table or a comparison in a format; `width` is the number of columns of a terminal."""

    def __call__(self, shown: Any, format: Format, *, width: int) -> str: ...


_load: Callable[[], Renderer] | None = None


def use_renderer(load: Callable[[], Renderer]) -> None:
    """Show tables and comparisons by the renderer that `load` returns."""
    global _load
    _load = load


class Renderable:
    """What has a text for a terminal, for Markdown and for LaTeX."""

    def to_text(self, width: int = 100) -> str:
        """For a terminal of `width` columns; too wide a table is split by columns."""
        return self._rendered("text", width)

    def to_markdown(self) -> str:
        """A table for a README or an issue, its legend and verdicts below."""
        return self._rendered("markdown")

    def to_latex(self) -> str:
        """A table environment; needs \\usepackage{booktabs}."""
        return self._rendered("latex")

    def __str__(self) -> str:
        return self.to_text()

    def _rendered(self, format: Format, width: int = 100) -> str:
        if _load is None:
            raise RuntimeError("no renderer is known; import contrasweep, which sets it")
        return _load()(self, format, width=width)
