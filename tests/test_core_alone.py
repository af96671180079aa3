"""The core does without what is reached by dotted path alone."""

import pytest
from places import ROOT

PACKAGES = ("platform", "trainables", "search_spaces", "cluster")


@pytest.mark.parametrize("extra", ["trainables/review_helpfulness"])
def test_no_module_of_the_core_names_an_extra(extra):
    name = extra.replace("/", ".")
    core = {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    naming = [path for path in core if name in path.read_text() and extra not in path.as_posix()]
    assert naming == []
