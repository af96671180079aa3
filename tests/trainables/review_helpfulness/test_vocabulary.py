"""Tokens, vocabularies, word vectors, characters."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from refusals import refused

from contrasweep.data import stage
from contrasweep.errors import DataError, SpecError
from contrasweep.trainables.review_helpfulness.corpora import load
from contrasweep.trainables.review_helpfulness.datasets.word_vectors import read_vectors
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trainables.review_helpfulness.vocabulary import (
    OOV,
    PAD,
    build,
    characters,
    encode,
    tokenize,
    word_vectors,
)
from contrasweep.trial import Trial


def test_tokenize():
    assert tokenize("Don't BUY it!!") == ["don't", "buy", "it", "!", "!"]
    assert tokenize(None) == tokenize("") == []


def test_rare_words_are_dropped_and_not_replaced():
    words = build(["a b", "a b", "a c", None], min_count=2)
    assert words == {"a": 2, "b": 3}
    assert encode("c a x b a", words, max_tokens=10).tolist() == [2, 3, 2]
    assert encode("c a x b a", words, max_tokens=2).tolist() == [2, 3]
    assert encode("x", words, max_tokens=2).tolist() == []


def test_equally_frequent_words_are_numbered_by_spelling():
    assert build(["b a", "a b"], 1) == build(["a b", "b a"], 1) == {"a": 2, "b": 3}


@pytest.mark.parametrize("header", ["", "2 3\n"], ids=["glove", "fasttext"])
def test_word_vectors_from_a_file(header, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text(header + "a 1 2 3\nnew york 9 9 9\nzzz 4 5 6\n")
    words = build(["a b"], 1)
    vectors = word_vectors(words, 3, np.random.default_rng(0), read_vectors(file, 3))
    assert vectors.dtype == np.float32 and vectors.shape == (4, 3)
    assert vectors[PAD].tolist() == [0, 0, 0]
    assert vectors[words["a"]].tolist() == [1, 2, 3]
    drawn = vectors[[OOV, words["b"]]]
    assert (np.abs(drawn) < 0.25).all() and drawn.std() > 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a 1 2\n", r"line 1: 2 numbers, the vectors' dimension is 3"),
        ("a 1 2 3 4\n", r"line 1: 4 numbers, the vectors' dimension is 3"),
        ("2 4\na 1 2 3 4 \n", r"line 2: 4 numbers, the vectors' dimension is 3"),
        ("a 1 2 3\nb 1 2\n", r"line 2: 2 numbers"),
        ("a 1 2 3\nb 1 x 3\n", r"line 2: one of the last 3 values is no finite number"),
        ("a 1 2 nan\n", r"line 1: one of the last 3 values is no finite number"),
    ],
)
def test_word_vectors_of_another_size_and_what_are_no_numbers_are_refused(text, says, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text(text)
    with refused(DataError, match=says):
        list(read_vectors(file, 3))
    with refused(DataError, "no file"):
        list(read_vectors(tmp_path / "none", 3))


def test_word_vectors_with_a_byte_order_mark_and_broken_words_are_read(tmp_path):
    (tmp_path / "vectors.vec").write_bytes(b"\xef\xbb\xbfa 1 2 3\r\n\xff\xfe 4 5 6\r\nb 7 8 9\r\n")
    assert [word for word, _ in read_vectors(tmp_path / "vectors.vec", 3)][::2] == ["a", "b"]


def test_staged_word_vectors_are_those_of_the_file_and_part_of_what_a_trial_is(tmp_path):
    file = tmp_path / "vectors.vec"
    storage = tmp_path / "runs"
    rows = [
        " ".join([word, *(str(i / 8) for i in range(n, n + 8))])
        for n, word in enumerate(("item", "synthetic"))
    ]
    file.write_text("\n".join(["2 8", *rows]) + "\n")
    reviews = (
        "contrasweep.trainables.review_helpfulness.datasets:SYNTHETIC_REVIEWS?products=30&roi_dim=8"
    )
    data = stage(reviews, f"{storage}/datasets/planted")
    importer = "contrasweep.trainables.review_helpfulness.datasets:WORD_VECTORS"
    stage(importer, f"{storage}/datasets/glove", source=file, settings={"dim": 8})
    small = {"word_dim": 8, "min_word_count": 1}
    staged = Settings(word_vectors="glove", **small).resolve(data)
    assert re.fullmatch(r"glove#\w{12}", str(staged.word_vectors))
    assert staged.resolve(data) == staged
    trial = Trial("s", "a", "contrasweep.trainables.review_helpfulness:train", {}, data, None, 0)
    vectors = load(trial, staged).inputs.product_words
    for _, vector in read_vectors(file, 8):
        assert (vectors == torch.tensor(vector)).all(1).any()
    with refused(DataError, r"needed are word-vectors of word_dim 300"):
        Settings(word_vectors="glove").resolve(data)
    with refused(SpecError, r"there is no such dataset, got 'glov'"):
        Settings(word_vectors="glov", **small).resolve(data)
    with file.open("a") as more:
        more.write("more 1 1 1 1 1 1 1 1\n")
    stage(importer, f"{storage}/datasets/other", source=file, settings={"dim": 8})
    with refused(DataError, match=r"dataset 'other' has digest \w+ here and had"):
        load(
            trial, replace(staged, word_vectors=str(staged.word_vectors).replace("glove", "other"))
        )


def test_characters():
    words = build(["aab", "aab"], 1)
    table, numbers = characters(words, 4)
    assert numbers == 4
    assert table.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [2, 2, 3, 0]]
    assert characters(words, 2)[0].tolist()[2] == [2, 2]
