"""A node cache of its own for every test."""

import pytest


@pytest.fixture(autouse=True)
def node_cache(tmp_path, monkeypatch):
    folder = tmp_path / "node-cache"
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(folder))
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)
    return folder


@pytest.fixture
def to(tmp_path):
    """Where a dataset is staged."""
    return str(tmp_path / "to")
