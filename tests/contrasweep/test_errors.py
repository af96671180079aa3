"""Errors reach other processes whole: Ray pickles them."""

import pickle

import pytest

from contrasweep.errors import BrokenFileError, NotStagedError, NotTrainedError, SpecError

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
