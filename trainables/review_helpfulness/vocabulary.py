"""From text to token numbers: tokenizer, vocabularies, word vectors, characters."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contrasweep.data.column_files import Ints
from contrasweep.trainables.review_helpfulness.datasets.word_vectors import WordVector

PAD = 0
"""The number that fills short texts."""
OOV = 1
"""The number of a text of which no word is known ("out of vocabulary")."""
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def tokenize(text: str | None) -> list[str]:
    """Return lower-cased words (with inner apostrophes) and single punctuation marks."""
    return _TOKEN.findall((text or "").lower())


@dataclass(frozen=True)
class Vocabulary:
    """Words numbered from 2 by falling frequency, then by spelling. 0 is `<PAD>`, 1 `<OOV>`.

    A word outside the vocabulary is dropped from its text, and not replaced by `<OOV>`. A text in which no word is left
    is one `<OOV>`.
    """

    words: tuple[str, ...]
    numbers: dict[str, int] = field(repr=False)

    @classmethod
    def build(cls, texts: Iterable[str | None], min_count: int = 5) -> "Vocabulary":
        """Return the words that occur at least `min_count` times in `texts` (those of the training part)."""
        counts = Counter(word for text in texts for word in tokenize(text))
        # A stable sort: first by spelling, then by falling frequency.
        by_spelling = sorted(word for word, n in counts.items() if n >= min_count)
        words = sorted(by_spelling, key=lambda word: -counts[word])
        return cls(tuple(words), {word: i for i, word in enumerate(words, start=2)})

    def __len__(self) -> int:
        return len(self.words) + 2

    def encode(self, text: str | None, max_tokens: int) -> Ints:
        """Return the numbers of the first `max_tokens` known words, int64 [t]; empty if none is known."""
        known = (self.numbers[word] for word in tokenize(text) if word in self.numbers)
        return np.fromiter(known, dtype=np.int64)[:max_tokens]


def word_vectors(
    vocabulary: Vocabulary,
    dim: int,
    rng: np.random.Generator,
    known: Iterable[WordVector] = (),
) -> NDArray[np.float32]:
    """Return the initial vectors of a vocabulary's words, float32 [v dim].

    A word in `known` (word, vector) has that vector, any other one that is uniform on (-.25, .25). The vector of
    `<PAD>` is zero.
    """
    # All are drawn, known ones too, so that a word's random vector does not depend on which others are known.
    vectors = rng.uniform(-0.25, 0.25, (len(vocabulary), dim)).astype(np.float32)
    for word, vector in known:
        if word in vocabulary.numbers:
            vectors[vocabulary.numbers[word]] = vector
    vectors[PAD] = 0
    return vectors


@dataclass(frozen=True)
class Characters:
    """The characters of a training vocabulary, numbered from 2 by frequency, then code point.

    0 is padding, 1 unknown.
    """

    characters: tuple[str, ...]

    @classmethod
    def build(cls, words: Sequence[str]) -> "Characters":
        """Return the characters of these words, the most frequent first."""
        counts = Counter("".join(words))
        return cls(tuple(sorted(counts, key=lambda character: (-counts[character], character))))

    def __len__(self) -> int:
        return len(self.characters) + 2

    def table(self, vocabulary: Vocabulary, max_characters: int = 16) -> Ints:
        """Return the characters of every word, int64 [v c], padded with 0; `<OOV>` is one unknown character."""
        numbers = {character: i for i, character in enumerate(self.characters, start=2)}
        table = np.zeros((len(vocabulary), max_characters), dtype=np.int64)
        table[OOV, 0] = 1
        for row, word in enumerate(vocabulary.words, start=2):
            spelled = [numbers.get(character, 1) for character in word[:max_characters]]
            table[row, : len(spelled)] = spelled
        return table
