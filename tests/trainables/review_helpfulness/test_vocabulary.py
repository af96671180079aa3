"""Tokens, vocabularies, word vectors, characters."""

from pathlib import Path

import numpy as np
import pytest

from contrasweep.errors import DataError
from contrasweep.trainables.review_helpfulness.vocabulary import (
    OOV,
    PAD,
    Characters,
    Vocabulary,
    tokenize,
    word_vectors,
)


def test_tokenize() -> None:
    assert tokenize("Don't BUY it!!") == ["don't", "buy", "it", "!", "!"]
    assert tokenize(None) == tokenize("") == []


def test_rare_words_are_dropped_and_not_replaced() -> None:
    vocabulary = Vocabulary.build(["a b", "a b", "a c", None], min_count=2)
    assert vocabulary.words == ("a", "b")
    assert vocabulary.encode("c a x b a", max_tokens=10).tolist() == [2, 3, 2]
    assert vocabulary.encode("c a x b a", max_tokens=2).tolist() == [2, 3]
    assert vocabulary.encode("x", max_tokens=2).tolist() == []
    assert len(vocabulary) == 4


def test_equally_frequent_words_are_numbered_by_spelling() -> None:
    assert Vocabulary.build(["b a", "a b"], 1).words == Vocabulary.build(["a b", "b a"], 1).words == ("a", "b")


@pytest.mark.parametrize("header", ["", "2 3\n"], ids=["glove", "fasttext"])
def test_word_vectors_from_a_file(header: str, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(header + "a 1 2 3\nnew york 9 9 9\nzzz 4 5 6\n")
    vocabulary = Vocabulary.build(["a b"], 1)
    vectors = word_vectors(vocabulary, 3, np.random.default_rng(0), file)
    assert vectors.dtype == np.float32 and vectors.shape == (4, 3)
    assert vectors[PAD].tolist() == [0, 0, 0]
    assert vectors[vocabulary.numbers["a"]].tolist() == [1, 2, 3]
    drawn = vectors[[OOV, vocabulary.numbers["b"]]]
    assert (np.abs(drawn) < 0.25).all() and drawn.std() > 0


def test_word_vectors_of_another_size_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("a 1 2\n")
    vocabulary = Vocabulary.build(["a"], 1)
    with pytest.raises(DataError, match=r"line 1.*word_dim is 3"):
        word_vectors(vocabulary, 3, np.random.default_rng(0), file)
    with pytest.raises(DataError, match="no file"):
        word_vectors(vocabulary, 3, np.random.default_rng(0), tmp_path / "none")


def test_characters() -> None:
    vocabulary = Vocabulary.build(["aab", "aab"], 1)
    characters = Characters.build(vocabulary.words)
    assert characters.characters == ("a", "b") and len(characters) == 4
    assert characters.table(vocabulary, 4).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [2, 2, 3, 0]]
    assert characters.table(vocabulary, 2).tolist()[2] == [2, 2]
