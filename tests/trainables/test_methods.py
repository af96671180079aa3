"""The table of methods, each of which leads to a trainable."""

from importlib import import_module
from inspect import isgeneratorfunction, unwrap

import pytest

from contrasweep.trainables import METHODS


@pytest.mark.parametrize("path", METHODS.values())
def test_every_path_leads_to_a_trainable(path):
    module, name = path.split(":")
    assert isgeneratorfunction(unwrap(getattr(import_module(module), name)))
