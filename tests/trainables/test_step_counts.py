"""The counts that a plan takes from `step_counts.json`: they are those of the networks."""

import functools
import itertools
import json

import pytest
from benchmarks.step_counts import PRECISIONS, counted

from contrasweep.cluster.memory import count
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.step_counts import ENCODERS, FILE, SHAPES, known_step

SLOW = {name for name in ENCODERS if name.startswith("resnet")}


@pytest.mark.parametrize(
    "encoder",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ENCODERS],
)
def test_the_file_has_what_the_networks_are_counted_to(encoder):
    kept = json.loads(FILE.read_text())
    for shape, precision in itertools.product(
        SHAPES[:1] if encoder in SLOW else SHAPES, PRECISIONS
    ):
        key, line = counted(encoder, shape, precision)
        assert kept[key] == line, key


def test_the_file_has_nothing_else():
    assert len(json.loads(FILE.read_text())) == len(ENCODERS) * len(SHAPES) * len(PRECISIONS)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("rows", [2, 37, 512])
def test_a_batch_of_any_size_is_on_the_line(rows, precision):
    settings = Settings()
    build = functools.partial(settings.build_network, (3, 32, 32))
    known = known_step(settings.network_text, (3, 32, 32), rows, precision)
    found = count(build, (rows, 3, 32, 32), precision=precision)
    assert known is not None
    assert (known.saved, known.parameters, known.work) == (
        found.saved,
        found.parameters,
        found.work,
    )


def test_another_network_or_image_is_not_in_it():
    wider = Settings(encoder={"name": "cnn", "width": 24})
    assert known_step(wider.network_text, (3, 32, 32), 8, "fp32") is None
    assert known_step(Settings().network_text, (3, 33, 32), 8, "fp32") is None
