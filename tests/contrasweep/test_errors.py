"""Errors reach other processes whole, as Ray pickles them; texts in them are of bounded length."""

import pickle

import pytest

from contrasweep.errors import (
    BrokenFileError,
    NotStagedError,
    NotTrainedError,
    SpecError,
    clipped,
)

ERRORS = [
    SpecError("a rule", place="arms.a", value=[1], hint="another"),
    NotStagedError("digits", "contrasweep data stage digits", "a folder", "looked in runs"),
    NotTrainedError("pilot", "contrasweep run pilot", 3),
    BrokenFileError("record.json", "no JSON", "run it again"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_pickled_error_has_its_message_and_its_parts(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("length", [0, 9, 10, 11, 25])
def test_a_clipped_text_has_at_most_as_many_characters_as_it_may(length):
    text = "x" * length
    assert len(clipped(text, 10)) == min(length, 10)
    assert clipped(text, 10) == (text if length <= 10 else "x" * 7 + "...")
