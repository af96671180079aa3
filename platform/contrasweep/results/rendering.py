"""Names and texts by which results are shown to people.

The report, a layer above, writes the texts; it is imported when something is first shown, and results are computed
without it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class DisplayNames:
    """Display names by declared name; a word without a display name is shown unchanged."""

    names: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names)

    def __call__(self, word: str) -> str:
        """Return the display name of a declared name."""
        return self.names.get(word, word)


NONE = DisplayNames()


def display_names(labels: Mapping[str, str], words: Iterable[str]) -> DisplayNames:
    """Return the display names of a study whose arms, axes and metrics are `words`, from its `labels`.

    Where several words would look alike, the declared name stands behind the display name: two arms never look like
    one.
    """
    if not labels:
        return NONE
    shown = {word: labels.get(word, word) for word in [*labels, *words]}
    counts = Counter(shown.values())
    return DisplayNames(
        {word: shown[word] if counts[shown[word]] == 1 else f"{shown[word]} ({word})" for word in labels}
    )


Format = Literal["text", "markdown", "latex", "html"]


class TextRenderable:
    """A value that has a text for a terminal."""

    def to_text(self, width: int = 100) -> str:
        """Return the text for a terminal; a wider table is split by columns.

        Args:
            width: The columns of the terminal.

        Returns:
            The text.
        """
        return self._rendered("text", width)

    def __str__(self) -> str:
        return self.to_text()

    def _rendered(self, format: Format, width: int = 100) -> str:
        from contrasweep.report.formats import render_as

        shown: Any = self  # a `Table`, a `Versus` or an `Advice`
        return render_as(shown, format, width=width)


class Renderable(TextRenderable):
    """A value that has a text for Markdown and for LaTeX too."""

    def to_markdown(self) -> str:
        """Return Markdown for a README or an issue: a table, its legend and verdicts below."""
        return self._rendered("markdown")

    def to_latex(self) -> str:
        """Return a LaTeX table environment; it needs `booktabs`."""
        return self._rendered("latex")
