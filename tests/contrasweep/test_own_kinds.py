"""Datasets, searchers and pruners of somebody else's, by dotted path from a folder outside of the repository."""

import numpy as np
import pytest
from folders import importable
from stories import OWN_KINDS

from contrasweep import Choice, Float, Int
from contrasweep.storage.fsspec_store import FsspecStore
from contrasweep.tuning import pruners
from contrasweep.tuning.searchers import build


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    with importable(tmp_path_factory.mktemp("package"), own_kinds=OWN_KINDS):
        yield


def test_an_own_searcher_suggests():
    searcher = build("own_kinds:Backwards", {"x": Choice(["a", "b", "c"])}, skip=1)
    searcher.replay({"x": "a"})
    assert [searcher.ask(), searcher.ask()] == [{"x": "b"}, None]
    numbers = {"k": np.int64(3), "t": np.float32(0.5)}
    space = {"k": Int(1, 4), "t": Float(0.0, 1.0)}
    suggested = build("own_kinds:Says", space, config=numbers).ask()
    assert suggested == numbers and [*map(type, suggested.values())] == [int, float]


def test_an_own_pruner_decides():
    rule = pruners.build("own_kinds:Rule", mode="max", budget=3, answer="stop")
    rule.add("t", 0, 0)
    assert rule.on_report("t", 1, 0.5) is False and rule.resumable() == []
    assert not rule.is_paused("t")


def test_only_stores_that_create_in_one_step_say_so():
    assert not FsspecStore("local:///tmp/contrasweep-test-of-fsspec").has_conditional_writes()
