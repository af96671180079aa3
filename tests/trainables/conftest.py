"""Real data of which the trials of many methods are."""

import pytest

from contrasweep.data import resolve


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Digits with a long tail, on five folds."""
    return resolve("digits-lt", folds=5, storage=str(tmp_path_factory.mktemp("data")), write=True)
