"""Display names: what a study's `labels` call its arms, axes, their values and metrics, wherever people read them.

Frames, JSON and files of data keep the names that the study declares.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


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
