"""Errors of bad input: each is one line."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind, *says, begins="", match=None):
    """Assert that an error of this kind is raised, in one line that has each of these texts. Yields what is caught."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    line = str(caught.value)
    assert line.startswith(begins) and "\n" not in line and all(text in line for text in says), line
