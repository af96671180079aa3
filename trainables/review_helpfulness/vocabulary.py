"""From text to token numbers: tokenizer, vocabularies, word vectors, characters."""

import re
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from contrasweep.data.column_files import Ints
from contrasweep.trainables.review_helpfulness.datasets.word_vectors import WordVector
from contrasweep.trainables.texts.words import vocabulary

PAD = 0
"""The number that fills short texts."""
OOV = 1
"""The number of a text of which no word is known ("out of vocabulary")."""
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def tokenize(text: str | None) -> list[str]:
    """Return lower-cased words (with inner apostrophes) and single punctuation marks."""
    return _TOKEN.findall((text or "").lower())


Words = Mapping[str, int]
"""Word -> number, from 2 on: the most frequent word first, equally frequent ones by spelling. See `PAD` and `OOV`."""


def build(texts: Iterable[str | None], min_count: int = 5) -> Words:
    """Return the numbers of the words that occur at least `min_count` times in `texts`, those of the training part.

    A word outside the vocabulary is dropped from its text, and not replaced by `<OOV>`. A text in which no word is left
    is one `<OOV>`.
    """
    return vocabulary(map(tokenize, texts), min_count)


def encode(text: str | None, words: Words, max_tokens: int) -> Ints:
    """Return the numbers of the first `max_tokens` known words of a text, int64 [t]; empty if none is known."""
    known = (words[word] for word in tokenize(text) if word in words)
    return np.fromiter(known, dtype=np.int64)[:max_tokens]


def word_vectors(
    words: Words,
    dim: int,
    rng: np.random.Generator,
    known: Iterable[WordVector] = (),
) -> NDArray[np.float32]:
    """Return the initial vectors of all numbers of a vocabulary, float32 [v dim].

    A word in `known` (word, vector) has that vector, any other one that is uniform on (-.25, .25). The vector of
    `<PAD>` is zero.
    """
    # All are drawn, known ones too, so that a word's random vector does not depend on which others are known.
    vectors = rng.uniform(-0.25, 0.25, (len(words) + 2, dim)).astype(np.float32)
    for word, vector in known:
        if word in words:
            vectors[words[word]] = vector
    vectors[PAD] = 0
    return vectors


def characters(words: Words, max_characters: int = 16) -> tuple[Ints, int]:
    """Return the first characters of every word as numbers, int64 [v c], and how many numbers there are.

    Characters are numbered from 2 by falling frequency in the words, then by code point. 0 fills short words; `<OOV>`
    is one unknown character, 1.
    """
    numbers = vocabulary(words, min_count=1)
    table = np.zeros((len(words) + 2, max_characters), dtype=np.int64)
    table[OOV, 0] = 1
    for word, row in words.items():
        spelled = [numbers[character] for character in word[:max_characters]]
        table[row, : len(spelled)] = spelled
    return table, len(numbers) + 2
