"""Texts as rows of word indices: the words of a text, a vocabulary, and the reader that applies it."""

import importlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from contrasweep.errors import SpecError
from contrasweep.imports import install_command
from contrasweep.trainables.pytorch import Int, Tensor, torch

Words = Int[Tensor, "n w"]
"""Rows of word indices."""
PADDING = 0
"""The word index that fills short texts."""
UNKNOWN = 1
"""The word index of words that the vocabulary has not; those of the vocabulary follow."""
WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")
"""A word of the letters a to z, a number, or one other character that is no blank."""


def tokens(text: str | None) -> list[str]:
    """Return the words, numbers and punctuation marks of a text (None: there is none), in order and in lower case."""
    return WORD.findall((text or "").lower())


def vocabulary(texts: Iterable[Iterable[str]], min_count: int) -> dict[str, int]:
    """Return word -> index for words that occur at least `min_count` times in `texts`, which are lists of words.

    The most frequent word comes first, and words that are equally frequent follow the alphabet. Indices begin at 2,
    after those of padding and of unknown words.
    """
    counts = Counter(word for text in texts for word in text)
    # A stable sort: first by the alphabet, then by frequency.
    alphabetical = sorted(word for word, n in counts.items() if n >= min_count)
    ordered = sorted(alphabetical, key=lambda word: -counts[word])
    return {word: i for i, word in enumerate(ordered, start=2)}


@runtime_checkable
class Reader(Protocol):
    """Makes word indices of texts; `size` is the number of different indices, padding included."""

    size: int

    def __call__(self, texts: Sequence[str]) -> Words:
        """Return the word indices of each text, [n w], filled up with the reader's padding."""


class WordReader:
    """A reader with the vocabulary of `texts`: words seen less than `min_count` times are unknown.

    Of a text, the first `max_words` words are read.
    """

    def __init__(self, texts: Iterable[str], min_count: int, max_words: int) -> None:
        self.vocabulary = vocabulary(map(tokens, texts), min_count)
        self.max_words = max_words
        self.size = len(self.vocabulary) + 2

    def __call__(self, texts: Sequence[str]) -> Words:
        """Return the word indices of each text, [n max_words], 0 for padding."""
        indices = torch.full((len(texts), self.max_words), PADDING)
        for row, text in zip(indices, texts, strict=True):
            known = [self.vocabulary.get(word, UNKNOWN) for word in tokens(text)[: self.max_words]]
            row[: len(known)] = torch.tensor(known, dtype=row.dtype)
        return indices


def transformers() -> Any:
    """Return the package transformers; `SpecError` where it is not installed."""
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError:
        hint = install_command("transformers")
        raise SpecError(
            "transformers is not installed", place="encoder", value="hf:", hint=hint
        ) from None
