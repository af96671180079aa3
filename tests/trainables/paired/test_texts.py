"""Sentence pairs: words, the encoder's padding, and the same guarantees as image pairs, on real SICK pairs."""

from typing import Any

import pytest
import torch
from to_the_bit import numbers, trained_and_resumed

from contrasweep.data import resolve
from contrasweep.trainables.paired_texts import Settings, train
from contrasweep.trainables.paired_texts.inputs import TextInputs
from contrasweep.trainables.texts.networks import ConvolutionEncoder
from contrasweep.trainables.texts.words import PADDING, UNKNOWN, tokens, vocabulary
from contrasweep.trial import Trial

torch.set_num_threads(1)
QUICK: dict[str, Any] = {
    "epochs": 2,
    "encoder": {"width": 16},
    "batch_size": 128,
    "projection": {"dim": 16},
    "classifier": {"hidden": 32},
    "artifacts": "none",
}


@pytest.fixture(scope="session")
def sick(staged):
    return resolve(staged("sick"), folds=None, storage="unused")


def trial(data, **config):
    return Trial(
        "study", "arm", "contrasweep.trainables.paired_texts:train", QUICK | config, data, None, 0
    )


def test_words():
    assert tokens("A man's 2 dogs, running!") == [
        "a",
        "man",
        "'",
        "s",
        "2",
        "dogs",
        ",",
        "running",
        "!",
    ]
    assert vocabulary([["b", "a", "b"], ["a", "c"]], min_count=2) == {"a": 2, "b": 3}
    assert tokens(None) == [], "a sentence that is missing in the data"


def test_padding_does_not_show_in_the_features():
    torch.manual_seed(0)
    encoder = ConvolutionEncoder(20, width=8, dropout=0.0).eval()
    words = torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0]])
    for padded in encoder(words):
        assert not padded[:, :, 3:].any()
    long_, short_ = (encoder(w)[-1].mean(2) for w in (torch.tensor([[3, 4, 5] + [0] * 12]), words))
    torch.testing.assert_close(long_, short_)


@pytest.mark.slow
def test_the_vocabulary_is_the_training_parts(sick):
    inputs = TextInputs(trial(sick), Settings(**QUICK), torch.device("cpu"))
    trained_on = torch.cat(inputs.sides["train"]).unique()
    assert len(trained_on[trained_on > UNKNOWN]) == inputs.reader.size - 2
    assert (torch.cat(inputs.sides["test"]) == UNKNOWN).any()


@pytest.mark.slow
def test_views_hide_words_and_never_padding(sick):
    inputs = TextInputs(
        trial(sick),
        Settings(**QUICK | {"augmentation": {"word_dropout": 0.5}}),
        torch.device("cpu"),
    )
    rows = torch.arange(50)
    for plain, view in zip(
        inputs.sides_of_rows("train", rows), inputs.epoch(0, 1)(rows, slice(0, 50)), strict=True
    ):
        assert torch.equal(plain == PADDING, view == PADDING)
        known = plain > UNKNOWN
        assert 0.35 < ((view == UNKNOWN) & known).sum() / known.sum() < 0.65


@pytest.mark.slow
def test_it_learns_deterministically_and_resumes_bit_for_bit(sick, tmp_path):
    one = trial(sick, loss="ocl", beta=0.5)
    reports = trained_and_resumed(train, one, tmp_path)
    assert numbers([next(train(one))]) == numbers(reports[:1])
    assert reports[-1].metrics["contrast_z"] < reports[0].metrics["contrast_z"]
    assert {"f1_class_0", "f1_class_2", "f1_macro"} <= set(reports[-1].metrics)
    assert len(reports[-1].items["accuracy"]) == 4906
