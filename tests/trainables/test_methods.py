"""The table of methods, and the paths that moved."""

from importlib import import_module
from inspect import isgeneratorfunction, unwrap

import pytest

from trainables.methods import METHODS, MOVED_TRAINABLES


@pytest.mark.parametrize("path", sorted({*METHODS.values(), *MOVED_TRAINABLES.values()}))
def test_every_path_leads_to_a_trainable(path: str) -> None:
    module, name = path.split(":")
    assert isgeneratorfunction(unwrap(getattr(import_module(module), name)))


@pytest.mark.parametrize("path", MOVED_TRAINABLES)
def test_what_moved_is_no_longer_where_it_was(path: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module(path.split(":")[0])
