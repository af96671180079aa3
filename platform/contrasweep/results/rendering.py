"""How results are shown: by which names, and by which renderer."""

import importlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


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


RENDERER, PLOTS = "contrasweep.report.formats", "contrasweep.report.plots"
"""Modules of the package above, imported when something is first shown: what computes needs nothing that draws."""


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


def plots_of(results: Any) -> Plots:
    """The figures of a study."""
    plots: Plots = importlib.import_module(PLOTS).StudyPlots(results)
    return plots


class TextRenderable:
    """What has a text for a terminal."""

    def to_text(self, width: int = 100) -> str:
        """For a terminal of `width` columns; too wide a table is split by columns."""
        return self._rendered("text", width)

    def __str__(self) -> str:
        return self.to_text()

    def _rendered(self, format: Format, width: int = 100) -> str:
        return str(importlib.import_module(RENDERER).render_as(self, format, width=width))


class Renderable(TextRenderable):
    """What has a text for Markdown and for LaTeX too."""

    def to_markdown(self) -> str:
        """A table for a README or an issue, its legend and verdicts below."""
        return self._rendered("markdown")

    def to_latex(self) -> str:
        """A table environment; needs \\usepackage{booktabs}."""
        return self._rendered("latex")
