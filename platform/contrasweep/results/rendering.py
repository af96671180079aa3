"""How a table or a comparison is written as text. What writes it is the report, a layer above, which is imported when
something is first shown: results are computed without it."""

from typing import Any, Literal

Format = Literal["text", "markdown", "latex", "html"]


class TextRenderable:
    """What has a text for a terminal."""

    def to_text(self, width: int = 100) -> str:
        """For a terminal of `width` columns; too wide a table is split by columns."""
        return self._rendered("text", width)

    def __str__(self) -> str:
        return self.to_text()

    def _rendered(self, format: Format, width: int = 100) -> str:
        from contrasweep.report.formats import render_as

        shown: Any = self  # a `Table`, a `Versus` or an `Advice`
        return render_as(shown, format, width=width)


class Renderable(TextRenderable):
    """What has a text for Markdown and for LaTeX too."""

    def to_markdown(self) -> str:
        """A table for a README or an issue, its legend and verdicts below."""
        return self._rendered("markdown")

    def to_latex(self) -> str:
        """A table environment; needs \\usepackage{booktabs}."""
        return self._rendered("latex")
