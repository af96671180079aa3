"""A trial without settings, on digits."""

import pytest

from contrasweep import data
from contrasweep.trial import Trial


@pytest.fixture
def trial(tmp_path):
    return Trial(
        "s", "a", "m:f", {}, data.resolve("digits", folds=2, storage=str(tmp_path)), fold=0
    )
