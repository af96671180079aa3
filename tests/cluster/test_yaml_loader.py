"""YAML that a user writes: numbers as people write them."""

import pytest
import yaml

from contrasweep.cluster.yaml_loader import Loader


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("-1e-3", -1e-3),
        ("+2E3", 2e3),
        ("3.e2", 300.0),
        ("1e4x", "1e4x"),
        ("-e3", "-e3"),
    ],
)
def test_a_number_with_an_exponent_needs_no_point(text, value):
    found = yaml.load(f"x: {text}", Loader)["x"]
    assert found == value and type(found) is type(value)
