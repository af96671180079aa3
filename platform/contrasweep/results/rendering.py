"""How results are shown: by which names, and as which text.

What writes a text is the report, a layer above, which is imported when something is first shown: results are computed
without it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class DisplayNames:
    """By declared name what is shown; a name that has none is shown as it is."""

    names: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names)

    def __call__(self, word: str) -> str:
        return self.names.get(word, word)


NONE = DisplayNames()


def display_names(labels: Mapping[str, str], words: Iterable[str]) -> DisplayNames:
    """The `labels` of a study whose arms, axes and metrics are `words`. Where several would be shown alike, the
    declared name stands behind the one that is shown: two arms never look like one."""
    if not labels:
        return NONE
    shown = {word: labels.get(word, word) for word in [*labels, *words]}
    counts = Counter(shown.values())
    return DisplayNames(
        {word: shown[word] if counts[shown[word]] == 1 else f"{shown[word]} ({word})" for word in labels}
    )


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
