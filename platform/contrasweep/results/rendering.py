"""How a table or a comparison is written as text: by a renderer that the package above hands in.

Results compute and never import the report that shows them. `contrasweep/__init__.py`, which stands above both, gives
the report's renderer to `use_renderer` and its drawings to `use_plots`; they are loaded when something is first
shown.
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


class Plots(Protocol):
    """Matplotlib figures of a study, to show in a notebook or to save (`figure.savefig("curves.pdf")`)."""

    def curves(self, metric: str | None = None) -> Any:
        """Learning curves of a metric: mean over replicates and their range, a panel a combination of the axes."""

    def cells(self, metric: str | None = None) -> Any:
        """The cells of the study's table: mean, interval, and each replicate."""

    def parallel(self) -> Any:
        """Every configuration of a search, or every trial of a grid, as a line over its settings and its value."""

    def importance(self) -> Any:
        """Of a search: how much each setting matters, and what noise would show."""


_plots: Callable[[Any], Plots] | None = None


def use_plots(plots: Callable[[Any], Plots]) -> None:
    """Draw the figures of a study by what `plots` returns for its results."""
    global _plots
    _plots = plots


def plots_of(results: Any) -> Plots:
    """The figures of a study."""
    if _plots is None:
        raise RuntimeError("no drawings are known; import contrasweep, which sets them")
    return _plots(results)


class TextRenderable:
    """What has a text for a terminal."""

    def to_text(self, width: int = 100) -> str:
        """For a terminal of `width` columns; too wide a table is split by columns."""
        return self._rendered("text", width)

    def __str__(self) -> str:
        return self.to_text()

    def _rendered(self, format: Format, width: int = 100) -> str:
        if _load is None:
            raise RuntimeError("no renderer is known; import contrasweep, which sets it")
        return _load()(self, format, width=width)


class Renderable(TextRenderable):
    """What has a text for Markdown and for LaTeX too."""

    def to_markdown(self) -> str:
        """A table for a README or an issue, its legend and verdicts below."""
        return self._rendered("markdown")

    def to_latex(self) -> str:
        """A table environment; needs \\usepackage{booktabs}."""
        return self._rendered("latex")
