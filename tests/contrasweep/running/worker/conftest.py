"""A trial without settings, on digits."""

import pytest

from contrasweep import data
from contrasweep.trial import Trial


@pytest.fixture
def trial(storage):
    return Trial("s", "a", "m:f", {}, data.resolve("digits", folds=2, storage=storage), fold=0)
