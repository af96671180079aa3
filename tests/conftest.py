"""Fixtures that every area of the tests shares."""

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import shapes
from jaxtyping import install_import_hook

# No deadlines: machines are shared. The same examples in every run of CI, so that a failure there is the change's;
# new ones are found where people work.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two cores, two test workers

# Before anything imports them: types and shapes of calls in the trainables, in the processes of the tests alone.
install_import_hook("trainables", "shapes.check")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and reference values beside the checkout; tests that need it skip without it."""
    folder = Path(os.environ.get("CONTRASWEEP_SHARED", ROOT.parent / "shared"))
    if not (folder / "goldens").is_dir():
        pytest.skip(f"reference values and real data are not at {folder} (set CONTRASWEEP_SHARED)")
    return folder


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """For tests of what the code itself says of a wrong shape or type."""
    with shapes.unchecked():
        yield


def pytest_runtest_setup() -> None:
    shapes.next_test()
